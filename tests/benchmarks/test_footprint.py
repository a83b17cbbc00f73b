"""The benchmark `footprint`: what it makes of looks at a process and its connections."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.footprint.looks import OTHER, ROLES, Look, figures, role_of, seen
from benchmarks.footprint.work import Footprint
from benchmarks.process import Measured, sample
from compat_tests.network.frames import Api
from compat_tests.network.proxy import OpenConnection

PATIENCE_S = 30.0


def look(sockets: int, threads: int = 10, rss_mb: float = 50.0, **roles: int) -> Look:
    return Look(sockets, Counter(roles), threads, rss_mb, rss_mb - 5)


@pytest.mark.parametrize(
    ("client_id", "apis", "role"),
    [
        ("app-StreamThread-1-consumer", {Api.FETCH}, "consumer"),
        ("app-StreamThread-1-consumer", {Api.FIND_COORDINATOR, Api.JOIN_GROUP, Api.OFFSET_COMMIT}, "membership"),
        ("app-StreamThread-1-consumer", {Api.HEARTBEAT}, "membership"),
        ("app-StreamThread-1-restore-consumer", {Api.FETCH}, "restore"),
        ("app-PollingThread-producer", {Api.PRODUCE}, "producer"),
        ("app-admin", {Api.METADATA}, "admin"),
        ("", set(), OTHER),
    ],
)
def test_the_requests_of_a_connection_say_what_it_is_for(client_id: str, apis: set[int], role: str) -> None:
    assert role_of(OpenConnection(client_id, frozenset(apis))) == role


def test_the_look_with_most_connections_counts_among_those_that_both_sides_agree_on() -> None:
    found = figures(
        [
            look(3, consumer=2, producer=1),
            look(9, consumer=2, producer=1, admin=1),
            look(4, threads=12, rss_mb=70, consumer=2, membership=1, producer=1),
            look(3, rss_mb=60, consumer=2, producer=1),
        ],
        processing=4,
    )
    assert {name: found[name] for name in ("connections", *ROLES)} == {
        "connections": 4, "consumer": 2, "membership": 1, "restore": 0, "producer": 1, "admin": 0,
    }  # fmt: skip
    assert (found["threads"], found["other_threads"]) == (12, 8)
    assert (found["rss_mb"], found["pss_mb"]) == (60, 55)


def test_looks_that_disagree_and_connections_without_a_role_are_errors() -> None:
    with pytest.raises(BenchmarkError, match="in none of 1 looks"):
        figures([look(2, consumer=1)], 1)
    with pytest.raises(BenchmarkError, match="in none of 0 looks"):
        figures([], 1)
    with pytest.raises(BenchmarkError, match="1 connections have no role"):
        figures([look(2, consumer=1, other=1)], 1)


def test_a_process_is_seen_with_its_threads_and_memory() -> None:
    found = seen(psutil.Process(), [OpenConnection("app-admin", frozenset())], port=1)
    assert (found.sockets, found.roles) == (0, {"admin": 1})
    assert found.threads > 0
    assert found.rss_mb >= found.pss_mb > 0


def ending(log_file: Path) -> Measured:
    """A process that ends once something has been written to it."""
    return Measured([sys.executable, "-c", "print('its last words'); raise SystemExit(3)"], log_file)


def test_a_process_that_ends_while_it_is_looked_at_is_an_error_with_its_log(tmp_path: Path) -> None:
    with ending(tmp_path / "log") as process:

        def look_too_late(at: psutil.Process) -> int:
            psutil.wait_procs([at], PATIENCE_S)
            raise FileNotFoundError(f"/proc/{at.pid}/smaps_rollup")

        with pytest.raises(BenchmarkError, match=r"(?s)ended by itself.*its last words"):
            process.look(look_too_late)


def test_a_process_that_has_ended_before_it_is_sampled_is_an_error_with_its_log(tmp_path: Path) -> None:
    with ending(tmp_path / "log") as process:
        with pytest.raises(BenchmarkError, match="ended by itself, with exit code 3"):
            process.wait(lambda: False, PATIENCE_S)
        with pytest.raises(BenchmarkError, match=r"(?s)ended by itself.*its last words"):
            process.look(sample)


def test_a_living_process_that_cannot_be_looked_at_is_an_error_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.process.ENDING_S", 0.01)

    def refused(at: psutil.Process) -> int:
        raise psutil.AccessDenied(at.pid)

    with Measured([sys.executable, "-c", "input()"], tmp_path / "log") as process, pytest.raises(BenchmarkError):
        process.look(refused)


def test_state_and_input_lie_in_each_tasks_partition_and_no_thread_is_without_a_task() -> None:
    work = Footprint(None, Path(), tasks=4, records=1_000, seconds=2, seed=1)  # type: ignore[arg-type]
    for rows in (list(work.state("changelog")), list(work.backlog("in"))):
        assert Counter(partition for _, partition, *_ in rows) == dict.fromkeys(range(4), 250)
    many = Contender("many", lambda job: job.arguments(), threads=5)
    with pytest.raises(BenchmarkError, match="many has more threads than there are tasks"):
        work.prepare([many])
