"""The fetcher of snapshots: whoever asks is answered, and what can't be had is a warning."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compat_tests.network.serving import Quiet, serving
from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.errors import ConfigError
from milestones.common.records import TaskId
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.testing import StepClock
from milestones.instance.snapshot_fetcher import (
    PIECE_BYTES,
    PIECE_MS,
    Fetching,
    NoSnapshots,
    SnapshotFetcher,
    snapshot_source,
)
from tests.common.state.test_repository import local
from tests.common.state.test_sealing import K1
from tests.common.state.test_snapshot import MANIFEST
from tests.milestones.fakes import CHANGELOG, World

PLACE = TaskId(0, MANIFEST.partition)
MIB = 1024 * 1024


class Fetched:
    """A fetcher whose thread doesn't run by itself, and a task that asks."""

    def __init__(self, directory: Path, url: str | None = None, timeout_ms: int = 30_000) -> None:
        self.remote, self.state = directory / "remote", directory / "state"
        self.state.mkdir()
        self.clock = StepClock()
        self.real = SystemClock()
        self.repository = SnapshotRepository(url or f"file://{self.remote}", "app", timeout_ms=timeout_ms)
        self.fetcher = SnapshotFetcher("fetcher", self.repository, self.state, self.clock, 30_000)
        self.task = World().task(MANIFEST.partition)

    def ask(self) -> Fetching:
        asked = self.fetcher.ask(self.task)
        assert asked is not None
        return asked

    def serve(self, steps: int = 1_000) -> None:
        for _ in range(steps):
            if not self.fetcher.run_once(0):
                break

    def here(self) -> list[str]:
        return [path.name for path in self.state.rglob("*.sst")]


def alive() -> list[str]:
    """The fetcher's threads."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fetcher")]


@pytest.fixture
def f(tmp_path: Path) -> Fetched:
    assert MANIFEST.changelog == CHANGELOG
    return Fetched(tmp_path)


def test_whoever_asks_gets_the_newest_snapshot_of_each_empty_store(f: Fetched, tmp_path: Path) -> None:
    snapshot = local(tmp_path)
    f.repository.publish(snapshot)
    asked = f.ask()
    assert asked.take(0) is None
    f.serve()
    (found,) = (asked.take(0) or {}).values()
    assert found.manifest == snapshot.manifest
    assert [path.read_bytes() for path in found.files] == [path.read_bytes() for path in snapshot.files]


def test_where_there_is_none_the_answer_is_empty(f: Fetched) -> None:
    asked = f.ask()
    f.serve()
    assert asked.take(0) == {}


def test_a_task_without_an_empty_store_has_nothing_to_wait_for(f: Fetched) -> None:
    f.task.restore("counts", [], 5)
    assert f.fetcher.ask(f.task) is None


@pytest.mark.parametrize("damage", ["expired", "file", "manifest", "foreign"])
def test_what_is_no_use_is_a_warning_and_an_empty_answer(
    f: Fetched, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    f.repository.publish(local(tmp_path, usable_until_ms=2_000 if damage == "expired" else None))
    for path in f.remote.rglob({"manifest": "*.json", "file": "*.sst"}.get(damage, "nothing")):
        path.write_bytes(b"")
    if damage == "foreign":
        place = f.remote / "app" / CHANGELOG
        shutil.rmtree(place / "3")
        f.repository.publish(local(tmp_path, partition=0))
        shutil.copytree(place / "0", place / "3")
    asked = f.ask()
    f.serve()
    assert asked.take(0) == {}
    assert "store counts is restored from its changelog, its snapshot is no use" in caplog.text
    assert f.here() == []


def test_a_zombies_snapshot_is_not_given(f: Fetched, tmp_path: Path) -> None:
    owner, zombie = local(tmp_path, offset=100, generation=10), local(tmp_path, offset=900, generation=9)
    for snapshot in (owner, zombie):
        f.repository.publish(snapshot)
    asked = f.ask()
    f.serve()
    assert (asked.take(0) or {})["counts"].manifest == owner.manifest


def test_one_that_is_too_old_does_not_hide_an_older_generations_that_is_not(f: Fetched, tmp_path: Path) -> None:
    expired, good = local(tmp_path, generation=10, usable_until_ms=2_000), local(tmp_path, generation=9)
    for snapshot in (expired, good):
        f.repository.publish(snapshot)
    asked = f.ask()
    f.serve()
    assert (asked.take(0) or {})["counts"].manifest == good.manifest


def test_a_key_that_is_missing_is_a_warning_that_names_it(
    f: Fetched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    SnapshotRepository(f"file://{f.remote}", "app", encryption_key=K1).publish(local(tmp_path))
    asked = f.ask()
    f.serve()
    assert asked.take(0) == {}
    assert "needs the key of the id 'k1'" in caplog.text
    assert K1[3:] not in caplog.text


def test_while_the_store_is_away_nobody_waits_longer_than_for_the_first_answer(tmp_path: Path) -> None:
    f = Fetched(tmp_path, "http://127.0.0.1:1", timeout_ms=300)
    waiting = [f.ask() for _ in range(20)]
    f.clock.advance(30_001)
    f.serve(1)
    assert [asked.take(f.clock.monotonic_ms()) for asked in waiting] == [{}] * 20
    began = f.real.monotonic_ms()
    f.serve()
    assert f.real.monotonic_ms() - began < 1_000, "nobody wants them any more"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_store_that_is_away_is_one_warning_for_all_who_wait_and_another_one_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    f = Fetched(tmp_path, "http://127.0.0.1:1", timeout_ms=90)
    for told in (1, 2):
        for _ in range(2):
            waiting = [f.ask() for _ in range(10)]
            f.serve()
            assert [asked.take(f.clock.monotonic_ms()) for asked in waiting] == [{}] * 10
            f.clock.advance(1_000)
        assert len(warnings(caplog)) == told
        f.clock.advance(30_001)
    assert "as snapshots can't be had: can't read app/" in warnings(caplog)[0]


def test_a_store_that_says_nothing_is_one_warning_for_all_who_wait(
    f: Fetched, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = [f.ask() for _ in range(10)]
    f.clock.advance(30_001)
    assert [asked.take(f.clock.monotonic_ms()) for asked in waiting] == [{}] * 10
    (warning,) = warnings(caplog)
    assert "for 30000 ms (snapshot_timeout_ms): its changelogs are read instead" in warning


def test_whoever_has_waited_for_too_long_gives_up_with_a_warning(
    f: Fetched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    f.repository.publish(local(tmp_path))
    asked = f.ask()
    now = f.clock.monotonic_ms()
    assert asked.take(now + 30_000) is None
    assert asked.take(now + 30_001) == {}
    assert "snapshot_timeout_ms" in caplog.text
    f.serve()
    assert f.here() == []


def test_bytes_that_come_for_anybody_are_a_reason_to_wait_on(f: Fetched) -> None:
    asked = f.ask()
    f.clock.advance(25_000)
    f.serve()
    waiting = f.ask()
    assert waiting.take(f.clock.monotonic_ms() + 29_000) is None
    assert asked.take(f.clock.monotonic_ms() + 40_000) == {}


class Trickle(Quiet):
    """A store over HTTP from which a MiB comes in `ms_per_mib` of a clock; each MiB asks `waits`."""

    clock: StepClock
    waits: Fetching
    ms_per_mib: int
    given_up: list[tuple[int, object]]

    def copyfile(self, source: Any, outputfile: Any) -> None:
        while piece := source.read(MIB):
            if len(piece) == MIB:
                self.clock.advance(self.ms_per_mib)
                answer = self.waits.take(self.clock.monotonic_ms())
                if answer is not None:
                    self.given_up.append((self.clock.monotonic_ms(), answer))
                    return
            outputfile.write(piece)


Trickling = Callable[[int], tuple[Fetched, Fetching, list[tuple[int, object]]]]


@pytest.fixture
def trickle(tmp_path: Path) -> Iterator[Trickling]:
    """A task that asks for two files of 64 MiB, and when it gave up with what; the argument: `ms_per_mib`."""
    snapshot = local(tmp_path, content=bytes(64 * MIB))
    SnapshotRepository(f"file://{tmp_path}/remote", "app").publish(snapshot)
    handler: Any = type("Handler", (Trickle,), {})
    with serving(partial(handler, directory=str(tmp_path / "remote"))) as url:

        def asked(ms_per_mib: int) -> tuple[Fetched, Fetching, list[tuple[int, object]]]:
            f = Fetched(tmp_path, url)
            handler.clock, handler.waits, handler.ms_per_mib, handler.given_up = f.clock, f.ask(), ms_per_mib, []
            return f, handler.waits, handler.given_up

        yield asked


def test_a_store_that_trickles_is_given_up_at_its_bound_and_named(
    trickle: Trickling, caplog: pytest.LogCaptureFixture
) -> None:
    f, _, given_up = trickle(2_000)
    began_ms = f.clock.monotonic_ms()
    f.serve()
    ((at_ms, answer),) = given_up
    assert answer == {}
    assert 30_000 < at_ms - began_ms <= 30_000 + 2_000 + PIECE_MS * (2 + 40 * MIB / PIECE_BYTES)
    (warning,) = warnings(caplog)
    assert "is too slow" in warning
    assert "snapshot_timeout_ms" in warning
    assert "its changelogs are read instead" in warning
    assert f.here() == []


def test_a_store_that_is_just_fast_enough_is_waited_for_however_long_it_takes(trickle: Trickling) -> None:
    f, asked, given_up = trickle(PIECE_MS * MIB // PIECE_BYTES)
    f.serve()
    assert given_up == []
    assert (asked.take(f.clock.monotonic_ms()) or {}).keys() == {"counts"}
    assert f.clock.monotonic_ms() > 30_000


def test_an_answer_that_nobody_takes_is_deleted(f: Fetched, tmp_path: Path) -> None:
    f.repository.publish(local(tmp_path))
    asked = f.ask()
    f.serve()
    assert len(f.here()) == 2
    asked.close()
    assert f.here() == []


def test_the_most_important_tasks_files_come_first_and_of_these_the_smallest(
    f: Fetched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {0: 3_000, 1: 1_000, 2: 2_000}
    for partition, size in sizes.items():
        snapshot = local(tmp_path, partition=partition)
        snapshot.files[0].write_bytes(b"x" * size)
        f.repository.publish(snapshot)
    brought: list[str] = []
    fetch = f.repository.fetch

    def noted(manifest: Any, *given: Any) -> Any:
        brought.append(f"{manifest.partition}")
        return fetch(manifest, *given)

    monkeypatch.setattr(f.repository, "fetch", noted)
    f.fetcher._weights = {1: 4}
    for subtopology, partition in ((0, 0), (0, 2), (0, 1), (1, 0)):
        task: Any = World().task(partition)
        task.id = TaskId(subtopology, partition)
        assert f.fetcher.ask(task) is not None
    f.serve()
    assert brought == ["0", "1", "2", "0"]


def test_a_fetcher_that_died_is_a_warning(f: Fetched, caplog: pytest.LogCaptureFixture) -> None:
    f.fetcher.queue.close(RuntimeError("died"))
    assert f.fetcher.ask(f.task) is None
    assert "its changelogs are read instead" in caplog.text


def test_the_thread_serves_and_ends_and_leaves_nothing(f: Fetched, tmp_path: Path) -> None:
    f.repository.publish(local(tmp_path))
    f.fetcher.start()
    asked: Any = f.ask()
    assert asked._answers.wait(10_000)
    assert asked.take(f.clock.monotonic_ms()).keys() == {"counts"}
    f.fetcher.close()
    assert not alive()
    assert list(f.state.iterdir()) == []


def test_an_idle_fetcher_has_ended_when_its_client_has(f: Fetched) -> None:
    f.fetcher.start()
    f.fetcher.close()
    assert not alive()


def test_a_fetcher_that_was_never_started_can_be_closed(f: Fetched) -> None:
    f.fetcher.close()


def test_the_setting_says_whether_there_are_snapshots(tmp_path: Path) -> None:
    config = StreamsConfig(application_id="app", bootstrap_servers="localhost:1")
    assert isinstance(snapshot_source(config, "s", tmp_path, StepClock()), NoSnapshots)
    found = snapshot_source(config.replace(snapshot_url="file:///x"), "s", tmp_path, StepClock())
    assert isinstance(found, SnapshotFetcher)
    with pytest.raises(ConfigError, match="snapshot_url"):
        snapshot_source(config.replace(snapshot_url="nonsense://x"), "s", tmp_path, StepClock())
