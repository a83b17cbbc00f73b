"""A task whose commits wait for the disk: what becomes of them when the disk doesn't take them, or the task ends."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common.errors import StateBusyError, StateCorruptError, StateError
from milestones.common.records import OffsetAndMetadata, StoreId, TaskId
from milestones.common.state.storage import TaskStorage
from milestones.common.state.write_behind import WaitingCommits
from milestones.common.task.standby import StandbyTask
from tests.common.task.harness import Harness, a_store, keep, message, processing
from tests.common.task.test_task_commits import IN

INTERVAL_MS = 5_000


class Waiting(Harness):
    """A task with a commit that is written, and one that waits. `storage`: what the task has in front of `state`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(processing(keep, [a_store()]), **settings)
        disk = self.state
        self.waiting = WaitingCommits(1 << 20, INTERVAL_MS)
        self.storage: TaskStorage = self.waiting.of(disk, self.task.subtopology.stores, self.clock)
        self.state = self.storage  # type: ignore[assignment]  # what the task opens
        self.start()
        self.state = disk
        for value in "12":
            self.pipe(("a", value, 5))
            self.commit()
        assert self.engine("store") != self.content()

    def content(self) -> dict[bytes, bytes]:
        return dict(self.storage.namespace("store").scan(None, None))

    def due(self, error: Exception | None = None) -> None:
        """What waits is due, and is refused with this error."""
        self.clock.advance(INTERVAL_MS)

        def refused(*_: Any) -> None:
            raise error or AssertionError

        if error is not None:
            self.state.stores["store"].engine.apply = refused  # type: ignore[assignment]


BUSY = StateBusyError("the stores of 0_0", "the disk is full", "make room", 20)
LOST = StateCorruptError("a block's checksum is wrong", [StoreId(TaskId(0, 0), "store")])
REFUSALS = pytest.mark.parametrize("error", [BUSY, LOST, StateError("no")], ids=lambda error: type(error).__name__)


def test_what_waits_is_written_when_it_is_due() -> None:
    h = Waiting()
    h.task.apply()
    assert h.engine("store") != h.content()
    h.due()
    h.task.apply()
    assert h.engine("store") == h.content()
    assert h.task.write_due_ms is None


@REFUSALS
def test_a_task_is_rolled_back_whatever_its_disk_says_of_what_waits_and_has_it_afterwards(error: StateError) -> None:
    h = Waiting(transactional_id="tx")
    committed = {IN: OffsetAndMetadata(2, h.task.freeze().metadata[IN])}
    h.task.roll_back()
    h.task.start({IN: 2}, {IN: committed[IN].metadata})
    h.pipe(("a", "3", 5))
    h.due(error)
    with pytest.raises(type(error)):
        h.task.apply()
    for _ in range(2):
        h.task.roll_back()
        h.task.compare({IN: OffsetAndMetadata(2, "")})
        assert not h.task.needs_restoration
        h.task.start({IN: 2}, {})
        assert h.task.store("store").get("a") == "2"
    assert h.task.committable


@REFUSALS
@pytest.mark.parametrize("end", ["recycle", "close"])
def test_a_task_ends_whatever_its_disk_says_of_what_waits(error: StateError, end: str) -> None:
    h = Waiting()
    h.due(error)
    assert getattr(h.task, end)() is (h.storage if end == "recycle" else None)
    assert h.state.closed == (end == "close")


def test_a_disk_that_is_busy_for_long_is_asked_less_often_and_given_up_in_time() -> None:
    h = Waiting()
    h.due(StateBusyError("the stores of 0_0", "the disk is full", "make room", 1, 60_000))
    pauses = []
    for _ in range(10):
        with pytest.raises(StateBusyError) as busy:
            h.task.apply()
        pauses.append(busy.value.pause_ms)
    assert (pauses[0], pauses[-1]) == (1, 50)
    h.clock.advance(60_000)
    with pytest.raises(StateError, match="task 0_0, the stores of 0_0: a write was refused for 60 s"):
        h.task.apply()


@pytest.mark.parametrize("error", [None, BUSY, LOST])
def test_a_task_that_becomes_a_standby_writes_what_waits(error: StateError | None) -> None:
    """A standby commits nothing, so that nothing else would write it, and its memory would stay taken."""
    h = Waiting()
    h.due(error)
    storage, content = h.task.recycle(), h.content()
    standby = StandbyTask(h.task.id, h.task.subtopology, lambda: storage)
    standby.open()
    assert (h.engine("store") == content, h.waiting.memory_bytes() == 0) == (error is None, error is None)
    vars(h.state.stores["store"].engine).pop("apply", None)
    standby.restore("store", [message(2, b"a", b"3", 5)], 3)
    assert (h.engine("store"), h.waiting.memory_bytes()) == (h.content(), 0)
    assert standby.changelog_offsets() == {"store": 3}
