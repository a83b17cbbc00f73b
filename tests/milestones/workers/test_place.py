"""Which worker a process is, how many there are, and which settings a worker has."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from milestones import Streams, StreamsBuilder, StreamsConfig
from milestones.client.workers import become_worker, own_state_dir
from milestones.common.assignment.machines import COMMAND_TAG, WORKER_TAG, given_tags
from milestones.common.config import KEYS
from milestones.common.errors import ConfigError
from milestones.workers import counting
from milestones.workers import place as module
from milestones.workers.place import VARIABLE, Inherited, WorkerPlace, inherited
from milestones.workers.settings import DIVIDED, idle_folders, worker_config

SECOND = WorkerPlace(2, 4, "of-one-command")


def config(**settings: object) -> StreamsConfig:
    return StreamsConfig(
        variables={}, application_id="app", bootstrap_servers="localhost:1", **settings,  # type: ignore[arg-type]
    )  # fmt: skip


# -- the settings of a worker


def test_worker_1_has_the_state_directory_of_the_command_and_the_others_have_folders_in_it(tmp_path: Path) -> None:
    given = config(state_dir=tmp_path)
    assert worker_config(given, WorkerPlace(1, 2)).state_dir == given.state_dir
    assert worker_config(config(), WorkerPlace(1, 2)).origin("state_dir") == "default"  # a warning depends on it
    assert worker_config(given, WorkerPlace(2, 2)).state_dir == str(tmp_path / "worker-2")


def test_given_ids_get_the_workers_number_and_others_stay_unset() -> None:
    found = worker_config(config(client_id="pod-7", group_instance_id="pod-7"), SECOND)
    assert (found.client_id, found.group_instance_id) == ("pod-7-2", "pod-7-2")
    found = worker_config(config(), SECOND)
    assert (found.client_id, found.group_instance_id) == (None, None)


@pytest.mark.parametrize("key", DIVIDED)
def test_a_bound_of_memory_that_was_given_is_divided_and_a_default_isnt(key: str) -> None:
    assert getattr(worker_config(config(**{key: 1000}), SECOND), key) == 250
    assert getattr(worker_config(config(**{key: 2}), SECOND), key) == 1
    assert getattr(worker_config(config(), SECOND), key) == KEYS[key].default


def test_the_values_that_mean_none_and_no_limit_stay() -> None:
    found = worker_config(config(statestore_cache_max_bytes=0, statestore_uncommitted_max_bytes=-1), SECOND)
    assert (found.statestore_cache_max_bytes, found.statestore_uncommitted_max_bytes) == (0, -1)


def test_every_bound_of_an_instances_memory_is_divided() -> None:
    assert {key for key in KEYS if key.endswith("_max_bytes")} == set(DIVIDED) - {"rocksdb_block_cache_bytes"}


def test_a_worker_with_a_parent_serves_its_metrics_on_the_loopback_interface() -> None:
    given = config(metrics_port=9400, metrics_host="0.0.0.0")
    found = worker_config(given, SECOND)
    assert (found.metrics_host, found.metrics_port) == ("127.0.0.1", 0)
    assert worker_config(config(), SECOND).metrics_port is None
    assert worker_config(given, WorkerPlace(2, 4)).metrics_port == 9400


def test_no_value_of_the_environment_counts_as_overridden_by_the_code() -> None:
    variables = {"MILESTONES_METRICS_PORT": "9400", "MILESTONES_CLIENT_ID": "pod"}
    given = StreamsConfig(variables=variables, application_id="app", bootstrap_servers="localhost:1")
    assert worker_config(given, SECOND).overridden() == {}


def test_workers_of_one_command_share_a_tag_and_a_user_may_have_as_many_tags_as_before() -> None:
    tags = {f"tag{i}": "x" for i in range(5)}
    found = worker_config(config(client_tags=tags), SECOND)
    assert found.client_tags == tags | {COMMAND_TAG: "of-one-command", WORKER_TAG: "2/4"}
    assert given_tags(found.client_tags) == tags
    with pytest.raises(ConfigError, match="at most 5 tags"):
        worker_config(config(), SECOND).with_options({"client_tags": tags | {"sixth": "x"}})


def test_folders_of_workers_that_the_command_doesnt_have_are_found(tmp_path: Path) -> None:
    for name in ("worker-2/app", "worker-3/app", "worker-10/app", "worker-4/other", "worker-x/app", "app", "worker-03"):
        (tmp_path / name).mkdir(parents=True)
    given = config(state_dir=tmp_path)

    def idle(number: int, count: int) -> list[str]:
        return [path.name for path in idle_folders(worker_config(given, WorkerPlace(number, count)))]

    assert idle(1, 2) == ["worker-3", "worker-10"]
    assert idle(1, 10) == []
    assert idle(2, 2) == []
    assert [path.name for path in idle_folders(given)] == ["worker-2", "worker-3", "worker-10"]


# -- which worker this is


@pytest.mark.parametrize("text", ["", "2", "0/0", "5/4", "2/4/1", "a/b", "-1/4", "2/2000", " 1/2"])
def test_a_place_that_cant_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="isn't a worker's place"):
        WorkerPlace.parse(text)


def test_a_process_that_its_parent_has_started_knows_its_place() -> None:
    passed = Inherited(SECOND, os.getppid(), 7, (8, 9))
    assert inherited({VARIABLE: passed.as_variable()}) == passed
    assert inherited({}) is None


def test_a_program_that_a_worker_starts_isnt_a_worker() -> None:
    passed = Inherited(SECOND, os.getppid() + 1, 99, ())
    assert inherited({VARIABLE: passed.as_variable()}) is None


def test_a_worker_whose_parent_is_gone_before_it_comes_so_far_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    passed = Inherited(SECOND, os.getppid() + 1, theirs.fileno(), ()).as_variable()
    assert inherited({VARIABLE: passed}) is None  # another process holds the other end
    ours.close()

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(module.os, "_exit", end)
    with pytest.raises(SystemExit) as ended:
        inherited({VARIABLE: passed})
    assert ended.value.code == 1
    theirs.close()


# -- how many


@pytest.mark.parametrize(("given", "number"), [(1, 1), ("3", 3), (1024, 1024), ("auto", None)])
def test_a_number_of_workers_or_auto_is_accepted(given: object, number: int | None) -> None:
    assert counting.parse_workers(given) == number


@pytest.mark.parametrize("given", [0, -1, 1025, "", "many", "1.5", 1.5, None, True, "AUTO"])
def test_another_number_of_workers_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="must be a number from 1 to 1024, or auto") as error:
        counting.parse_workers(given)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "9900000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ],
)
def test_auto_counts_the_cores_that_a_container_may_use(
    files: dict[str, str], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(counting, "CGROUP", tmp_path)
    monkeypatch.setattr(counting.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert counting.cores() == count


# -- a client that becomes a worker


def client(**settings: object) -> Streams:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return Streams(builder, config(**settings))


def test_a_client_that_becomes_a_worker_keeps_its_listeners_and_has_the_workers_settings(tmp_path: Path) -> None:
    streams = client(state_dir=tmp_path)
    listener = streams.set_state_listener
    listener(print)
    become_worker(streams, WorkerPlace(2, 3), None)
    assert streams.config.state_dir == str(tmp_path / "worker-2")
    assert streams._supervisor.listener is print
    assert streams._supervisor._config is streams.config


def test_a_worker_cleans_up_its_own_state_also_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("app", "worker-2/app"):
        (tmp_path / folder / "0_0").mkdir(parents=True)
        (tmp_path / folder / "0_0" / "x").touch()
    monkeypatch.setenv(VARIABLE, Inherited(SECOND, os.getppid(), 99, ()).as_variable())
    streams = client(state_dir=tmp_path)
    streams.clean_up()
    assert (tmp_path / "app" / "0_0" / "x").exists()
    assert not (tmp_path / "worker-2" / "app" / "0_0").exists()
    become_worker(streams, SECOND, None)
    assert own_state_dir(streams.config) == str(tmp_path / "worker-2")


def test_state_of_workers_that_arent_started_is_a_warning_that_names_the_folders(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "worker-2" / "app").mkdir(parents=True)
    streams = client(state_dir=tmp_path, request_timeout_ms=1_000)
    caplog.set_level(logging.WARNING)
    assert streams.run() == 3
    (line,) = [one for one in caplog.messages if "worker-2" in one]
    assert line.startswith(f"workers that aren't started have left state in {tmp_path / 'worker-2'}: ")

