"""Attempts of Spark tasks, without Spark: what they commit, and what they leave. On a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from milestones.common.errors import StateLockedError
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.producer import OutputProducer
from milestones.common.state.directory import StateDirectory
from milestones.common.state.spark_folders import spark_attempts_folder, spark_directories
from milestones.pipeline.hosting.hosted_task import HostedTask
from milestones.pipeline.hosting.ranges import RangeEnd
from milestones.pipeline.hosting.surroundings import HostedClients, state_folder
from tests.pipeline.attempts_bench import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    SLOW,
    TASK,
    Make,
)

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_range_is_processed_to_its_end_and_no_further(bench: Make, guarantee: str) -> None:
    b = bench(guarantee)
    b.send(*"abcde")
    done = b.attempt(b.range(3))
    assert (done.end, done.records, b.committed(), b.counts()) == (RangeEnd.DONE, 3, 3, [1, 2, 3])
    done = b.attempt(b.range(5))
    assert (done.records, done.restored, b.committed(), b.counts()) == (2, 0, 5, [1, 2, 3, 4, 5])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_what_waits_in_caches_is_emitted_with_the_commit_as_in_a_live_instance(bench: Make, guarantee: str) -> None:
    b = bench(guarantee, **SLOW, statestore_cache_max_bytes=1_000_000)
    done = b.attempt(b.range(b.send(*"abc")))
    assert (done.end, b.committed(), b.counts()) == (RangeEnd.DONE, 3, [3])
    b.attempt(b.range(b.send(*"de")))
    assert b.counts() == [3, 5]


def test_what_is_committed_already_isnt_processed_again(bench: Make) -> None:
    b = bench()
    end = b.send(*"abc")
    b.attempt(b.range(end))
    again = b.attempt(b.range(end), first=False)
    assert (again.end, again.records, again.schedule, b.counts()) == (RangeEnd.DONE, 0, None, [1, 2, 3])


def test_without_local_state_it_is_restored_from_the_changelog(bench: Make, tmp_path: Path) -> None:
    b = bench()
    b.attempt(b.range(b.send(*"abc")))
    elsewhere = b.config.replace(state_dir=str(tmp_path / "elsewhere"))
    b.config = elsewhere
    done = b.attempt(b.range(b.send("d")))
    assert (done.records, done.restored, b.counts()) == (1, 3, [1, 2, 3, 4])


def test_a_limit_ends_a_range_early(bench: Make) -> None:
    b = bench()
    done = b.attempt(b.range(b.send(*"abcde"), limit=2))
    assert (done.end, done.records, b.committed()) == (RangeEnd.DONE, 2, 2)


def test_an_attempt_whose_state_is_held_restores_anew(bench: Make) -> None:
    b = bench()
    b.attempt(b.range(b.send(*"abc")))
    holder = b.clients(b.range(3))
    done = b.attempt(b.range(b.send("d")), first=False)
    holder.close()
    assert (done.records, done.restored, b.counts()) == (1, 3, [1, 2, 3, 4])
    assert [path.parent for path in spark_directories(b.config.state_dir, b.id)] == [state_folder(b.config, TASK)]


def test_what_an_attempt_that_was_killed_has_left_on_the_disk_goes_with_the_next_one(bench: Make) -> None:
    b = bench()
    left = spark_attempts_folder(b.config.state_dir, b.id) / "0_0-killed"
    StateDirectory(left, b.id).close()
    end = b.send("a")
    holder = b.clients(b.range(end))
    b.attempt(b.range(end), first=False)
    holder.close()
    assert not left.exists()


def test_an_attempt_waits_for_state_that_no_changelog_has_instead_of_beginning_without_it(bench: Make) -> None:
    b = bench(store={"logging": False})
    b.attempt(b.range(b.send(*"abc")))
    holder = b.clients(b.range(3))
    end = b.send("d")
    with pytest.raises(StateLockedError, match="counts have no changelog"):
        b.attempt(b.range(end), first=False)
    assert b.committed() == 3
    holder.close()
    done = b.attempt(b.range(end), first=False)
    assert (done.records, b.counts()) == (1, [1, 2, 3, 4])


def test_an_error_of_the_users_code_is_told_and_nothing_of_the_record_is_committed(bench: Make) -> None:
    b = bench()
    end = b.send("a", "poison", "b")
    failed = b.attempt(b.range(end))
    assert (failed.end, failed.exit_code) == (RangeEnd.FAILED, 1)
    assert "not this" in failed.error
    assert b.counts() in ([], [1])


def test_what_a_handler_skips_is_told(bench: Make) -> None:
    b = bench(processing_exception_handler="log_and_continue")
    done = b.attempt(b.range(b.send("a", "poison", "b")))
    assert (done.end, done.records, done.dropped, b.counts()) == (RangeEnd.DONE, 3, 1, [1, 2])


def test_where_latest_begins_is_settled_by_the_first_range(bench: Make) -> None:
    b = bench(auto_offset_reset="latest")
    end = b.send(*"abc")
    done = b.attempt(b.range(end))
    assert (done.records, b.committed()) == (0, 3)
    done = b.attempt(b.range(b.send("d")))
    assert (done.records, b.counts()) == (1, [1])


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_commit_that_the_client_cannot_vouch_for_is_made_again(
    bench: Make, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_flush, doubts = OutputProducer.begin_flush, iter([True])

    def doubtful(self: OutputProducer, timeout_ms: int) -> None:
        self._watch.assumed = next(doubts, False)
        begin_flush(self, timeout_ms)

    monkeypatch.setattr(OutputProducer, "begin_flush", doubtful)
    b = bench(guarantee)
    done = b.attempt(b.range(b.send(*"abc")))
    assert (done.end, done.records, b.committed()) == (RangeEnd.DONE, 3, 3)
    assert next(doubts, None) is None
    if guarantee == EXACTLY_ONCE:
        assert b.counts() == [1, 2, 3]


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_outputs_are_sent_one_by_one_until_the_next_commit_only(bench: Make, guarantee: str) -> None:
    b = bench(guarantee, commit_interval_ms=1)
    b.attempt(b.range(b.send("a")))
    end = b.send(*["x"] * 5_000)
    work = b.range(end)
    clients = HostedClients(b.config, b.application, work, b.clock, isolation=BatchIsolation())
    done = HostedTask(clients, work).run()
    clients.close()
    if guarantee == AT_LEAST_ONCE:
        assert (done.records, clients.producer.isolation, b.committed()) == (5_000, None, end)
    else:
        # Another producer might fence a later attempt: the rest is for the next range, and its producer.
        assert (0 < done.records < 5_000, done.commits, b.committed()) == (True, 1, 1 + done.records)
