"""A confirmed commit whose engines are busy: it is kept as it is, and written whole and in its turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from milestones.common.errors import OwnershipError, StateBusyError, StateError
from milestones.common.records import OffsetAndMetadata
from milestones.common.state import steps
from milestones.common.state.engine import Batch
from milestones.common.task.standby import StandbyTask
from tests.common.task.harness import Harness, keeping, message
from tests.common.task.test_task_commits import IN

LIMIT_MS = 300_000


class BusyEngine:
    """Takes so many steps of a write, then none while `busy`."""

    def __init__(self, engine: Any, *, takes: int = 0, limit_ms: int | None = None) -> None:
        self._engine, self._takes, self._limit_ms = engine, takes, limit_ms
        self.busy = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        if self.busy and not self._takes:
            raise StateBusyError("the stores of 0_0", "the disk is full", "make room", 20, self._limit_ms)
        self._takes -= self.busy
        self._engine.apply(batches, offsets)


def committed(h: Harness, **busy: Any) -> BusyEngine:
    """The task has a confirmed commit, whose engine is busy."""
    store = h.state.stores["store"]
    engine = BusyEngine(store.engine, **busy)
    store.engine = engine  # type: ignore[assignment]
    h.task.confirmed(h.task.freeze(), {"store": 2})
    return engine


def apply_busy(h: Harness) -> StateBusyError:
    with pytest.raises(StateBusyError) as error:
        h.task.apply()
    return error.value


def test_a_commit_that_cant_be_written_now_stays_to_be_applied_and_reads_see_all_of_it() -> None:
    h = keeping()
    h.pipe(("a", "1", 5), ("b", "2", 5))
    engine = committed(h)
    for _ in range(3):
        assert apply_busy(h).pause_ms >= 20
        assert (h.task.applying, h.task.committable, h.task.position()) == (True, False, 2)
        assert h.engine("store") == {}
    h.pipe(("a", "3", 6))
    store = h.task.store("store")
    assert (store.get("a"), store.get("b"), list(store.all())) == ("3", "2", [("a", "3"), ("b", "2")])
    engine.busy = False
    h.task.apply()
    assert (h.task.applying, h.task.committable, h.engine("store")) == (False, True, {b"a": b"1", b"b": b"2"})
    assert h.task.commit_needed()


def test_no_later_commit_begins_before_it_is_written() -> None:
    h = keeping()
    h.pipe(("a", "1", 5))
    committed(h)
    apply_busy(h)
    h.pipe(("a", "2", 5))
    h.task.request_commit()
    assert not h.task.commit_requested()
    with pytest.raises(OwnershipError, match="still pending"):
        h.task.freeze()


def test_the_steps_that_were_written_are_written_again_with_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_ENTRIES", 1)
    h = keeping()
    h.pipe(("a", "1", 5), ("b", "2", 5))
    engine = committed(h, takes=1)
    apply_busy(h)
    assert (h.engine("store"), h.state.offsets()) == ({b"a": b"1"}, {"store": None})
    h.pipe(("a", "9", 6))
    apply_busy(h)
    engine.busy = False
    h.task.apply()
    assert (h.engine("store"), h.state.offsets()) == ({b"a": b"1", b"b": b"2"}, {"store": 2})
    assert h.task.store("store").get("a") == "9"


def test_a_commit_whose_engine_is_busy_for_too_long_is_restored_as_after_any_error() -> None:
    h = keeping(transactional_id="tx")
    h.pipe(("a", "1", 5), ("b", "2", 5))
    engine = committed(h, limit_ms=LIMIT_MS)
    apply_busy(h)
    h.clock.advance(LIMIT_MS - 1)
    apply_busy(h)
    h.clock.advance(1)
    with pytest.raises(StateError, match="a write was refused for 300 s, as the disk is full: make room") as error:
        h.task.apply()
    assert not isinstance(error.value, StateBusyError)
    assert (h.task.applying, h.task.committable) == (False, False)
    engine.busy = False
    h.task.roll_back()
    h.task.compare({IN: OffsetAndMetadata(2, "")})
    assert h.task.needs_restoration


def test_without_a_limit_a_commit_waits_for_as_long_as_it_takes() -> None:
    h = keeping()
    h.pipe(("a", "1", 5))
    engine = committed(h)
    for _ in range(100):
        apply_busy(h)
        h.clock.advance(LIMIT_MS)
    engine.busy = False
    h.task.apply()
    assert h.engine("store") == {b"a": b"1"}


def test_after_the_last_call_the_commit_is_given_up_and_the_end_closes_the_stores() -> None:
    h = keeping()
    h.pipe(("a", "1", 5))
    committed(h)
    with pytest.raises(StateError, match="task 0_0: the stores of 0_0: no write is possible now, as the disk is full"):
        h.task.apply(last=True)
    assert not h.task.applying
    h.task.close()
    assert (h.state.closed, h.engine("store")) == (1, {})


def test_restored_records_that_an_engine_was_too_busy_for_are_written_later_and_count_at_once() -> None:
    h = keeping()
    standby = StandbyTask(h.task.id, h.task.subtopology, lambda: h.state)
    standby.open()
    store = h.state.stores["store"]
    engine: Any = BusyEngine(store.engine)
    store.engine = engine
    standby.restore("store", [message(0, b"a", b"1", 5)], 1)
    assert (standby.unwritten, h.engine("store"), standby.changelog_offsets()) == (True, {}, {"store": 1})
    with pytest.raises(StateBusyError):
        standby.write_restored()
    assert h.state.offsets() == {"store": None}
    engine.busy = False
    standby.write_restored()
    assert (standby.unwritten, h.engine("store"), h.state.offsets()) == (False, {b"a": b"1"}, {"store": 1})
