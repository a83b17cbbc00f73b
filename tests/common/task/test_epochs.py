"""A task that is invalidated while a record is in work: nothing of that record counts, however it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.records import TopicPartition
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import Harness, a_store, forward, processing

IN = TopicPartition("in", 0)


class Interrupted:
    """A task whose user code writes and forwards, and is invalidated at the value "now", after which it goes on by
    `then`; every other record is as usual."""

    def __init__(self, then: Callable[[], None] = lambda: None, **settings: Any) -> None:
        def work(context: Any, record: Any) -> None:
            context.get_state_store("store").put(record.key, record.value)
            context.forward(record)
            if record.value == "now" and self.armed:
                self.armed = False
                self.h.task.invalidate()
                then()

        self.armed = True
        self.h = Harness(processing(work, [a_store()]), **settings).start()
        self.h.feed(("a", "before", 1), ("b", "now", 2), ("c", "after", 3))

    def nothing_counts(self) -> None:
        task = self.h.task
        assert (task.input.position(IN), task.input.waiting()) == (1, 2)
        assert self.h.outputs() == []

    def goes_on(self) -> None:
        """Rolled back, all records come again, and count once."""
        assert self.h.task.roll_back() == 1
        self.h.ends.clear()
        self.h.feed(("a", "before", 1), ("b", "now", 2), ("c", "after", 3))
        assert self.h.run() == 3
        commit = self.h.commit()
        assert commit.offsets == {IN: 3}
        assert [sent.value for sent in self.h.sent if sent.topic == "out"] == [b"before", b"now", b"after"]
        assert self.h.engine("store") == {b"a": b"before", b"b": b"now", b"c": b"after"}


def fail() -> None:
    raise RuntimeError("user code")


@pytest.mark.parametrize("then", [lambda: None, fail], ids=["ends", "raises"])
def test_a_call_that_is_over_after_its_task_was_invalidated_leaves_nothing(then: Callable[[], None]) -> None:
    it = Interrupted(then)
    it.h.run()
    it.nothing_counts()
    it.goes_on()


def test_the_handler_is_not_asked_about_a_call_that_is_void() -> None:
    asked: list[object] = []

    class Asked(LogAndContinue):
        def handle(self, *arguments: Any) -> Any:
            asked.append(arguments)
            return super().handle(*arguments)

    it = Interrupted(fail, processing_handler=Asked())
    it.h.run()
    it.nothing_counts()
    assert asked == []


def test_a_record_that_was_skipped_after_its_task_was_invalidated_comes_again() -> None:
    def read(data: bytes) -> str:
        if data == b"now" and armed:
            armed.clear()
            h.task.invalidate()
            raise ValueError("unreadable")
        return data.decode()

    armed = [True]
    topology = processing(forward, value=serdes.Serde(str.encode, read))
    h = Harness(topology, deserialization_handler=LogAndContinue()).start()
    h.pipe(("a", "before", 1), ("b", "now", 2))
    assert (h.task.input.position(IN), h.outputs()) == (1, [])
    h.task.roll_back()
    h.ends.clear()
    assert h.pipe(("a", "before", 1), ("b", "now", 2)) == 2
    assert [value for _, _, value, _ in h.outputs()] == [b"before", b"now"]


def test_a_task_that_is_invalidated_and_rolled_back_counts_one_roll_back() -> None:
    h = Harness(processing(forward)).start()
    h.task.invalidate()
    h.task.roll_back()
    assert (h.task.epoch, h.task.counters.rolled_back) == (2, 1)
