"""Joins of two streams in a task's life: records that fail, roll-backs, restarts, stores that come from changelogs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milestones import JoinWindows, StreamsBuilder, Topology, serdes
from milestones.common.records import OffsetAndMetadata
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import Harness, message, named

TEXT = serdes.STRING
OUT = "out"


def pair(left: str | None, right: str | None) -> str:
    if "fail" in (left, right):
        raise RuntimeError("user code")
    return f"{left or '-'}+{right or '-'}"


def joins(*, left_only: bool = False) -> Topology:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=TEXT, value=TEXT) for topic in ("left", "right"))
    join = left.left_join if left_only else left.outer_join
    join(right, pair, within=JoinWindows(10, grace=5), store="s").to(OUT, key=TEXT, value=TEXT)
    return builder.build()


class Life(Harness):
    """A task that joins two streams; it doesn't wait for records of both. `former`: the life whose stores it has."""

    def __init__(self, former: Harness | None = None, topology: Topology | None = None) -> None:
        super().__init__(
            topology or joins(), processing_handler=LogAndContinue(), max_task_idle_ms=-1, transactional_id="tx"
        )
        if former is not None:
            self.state = former.state

    def sends(self, topic: str, *records: tuple[Any, Any, int]) -> list[tuple[str, int]]:
        """(value, timestamp) of what these records lead to."""
        self.pipe(*records, topic=topic)
        return [(value.decode(), timestamp) for name, _, value, timestamp in self.outputs() if name == OUT]

    def back(self) -> None:
        """Roll back, and read on behind what was read: what came since the last commit is gone for good."""
        self.task.roll_back()
        self.go_on()

    def waiting(self) -> list[bytes]:
        """The keys of the committed records without a partner."""
        return sorted(key[9:] for key in self.engine("s-outer-shared-join-store"))


def started(former: Harness | None = None) -> Life:
    life = Life(former)
    life.start()
    return life


def restore(life: Harness, sender: Harness) -> None:
    """Have the stores complete the changelogs that `sender` has written."""
    for store, topic in life.task.subtopology.changelogs.items():
        records = [each for each in sender.sent if each.topic == topic]
        messages = [message(n, each.key, each.value, each.timestamp, topic) for n, each in enumerate(records)]
        life.task.restore(store, messages[life.task.changelog_offsets()[store] or 0 :], len(messages))


def restored(former: Harness) -> Life:
    """A life with the stores that the changelogs of a former one make."""
    life = Life()
    life.task.open()
    restore(life, former)
    life.task.start(dict.fromkeys(life.task.partitions, 0), {})
    return life


CLOSING = ("x", "y", 100)
"""A record by which all windows so far are over."""


def test_a_record_that_fails_sends_nothing_and_moves_no_time() -> None:
    life = started()
    life.sends("left", ("k", "a", 1), ("j", "fail", 2))
    assert life.sends("left", CLOSING) == []
    assert life.task.dropped_records == 1
    assert life.sends("right", ("z", "late if the time had moved", 1), ("k", "b", 3)) == [("a+b", 3)]
    life.commit()
    assert life.waiting() == [b"j", b"z"]


def test_a_roll_back_lets_records_wait_that_were_sent_since_the_commit() -> None:
    life = started()
    life.sends("left", ("k", "a", 1))
    life.commit()
    assert life.sends("left", CLOSING) == [("a+-", 1)]
    life.back()
    assert life.sends("right", ("k", "b", 2)) == [("a+b", 2)]
    life.back()
    assert life.sends("left", CLOSING) == [("a+-", 1)]
    life.commit()
    assert life.waiting() == [b"x"]


def test_a_commit_without_an_answer_that_was_made_is_remembered_with_what_waits() -> None:
    life = Life(topology=joins(left_only=True))
    life.start()
    life.sends("left", ("k", "a", 1))
    assert life.sends("right", CLOSING, ("z", "nothing waits any more", 200)) == [("a+-", 1)]
    life.commit()
    life.sends("left", ("j", "b", 201))
    life.outputs()
    unanswered = life.task.freeze()
    life.sent += named(unanswered.all_outputs())
    life.task.roll_back()
    life.task.compare({p: OffsetAndMetadata(at, unanswered.metadata[p]) for p, at in unanswered.offsets.items()})
    restore(life, life)
    life.task.start(unanswered.offsets, unanswered.metadata)
    assert life.sends("right", ("z", "much later", 1000)) == [("b+-", 201)]


def test_a_roll_back_forgets_records_that_were_kept_since_the_commit() -> None:
    life = started()
    life.commit()
    life.sends("left", ("k", "a", 1))
    life.back()
    assert life.sends("right", ("k", "b", 2)) == []
    assert life.sends("right", CLOSING) == [("-+b", 2)]


@pytest.mark.parametrize("again", [started, restored])
def test_a_restart_finds_what_was_kept_and_what_waits(again: Callable[[Harness], Life]) -> None:
    former = started()
    former.sends("left", ("k", "a", 1), ("j", "b", 2))
    former.sends("right", ("j", "c", 3))
    former.commit()
    former.task.close()
    life = again(former)
    assert life.sends("right", ("k", "d", 4)) == [("a+d", 4)]
    assert life.sends("left", ("j", "e", 5)) == [("e+c", 5)]
    assert life.sends("left", CLOSING) == []
    life.commit()
    assert life.waiting() == [b"x"]


@pytest.mark.parametrize("again", [started, restored])
def test_a_restart_sends_what_waited_with_the_first_record_beyond_its_window(again: Callable[[Harness], Life]) -> None:
    former = started()
    former.sends("left", ("k", "a", 1))
    former.commit()
    former.task.close()
    assert again(former).sends("right", CLOSING) == [("a+-", 1)]
