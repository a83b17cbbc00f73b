"""The state thread: what takes long is asked of it by message, and answered."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common.errors import StateBusyError, StateCorruptError, StateError, StateLockedError
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.metrics import Metrics
from milestones.common.records import StoreId, TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.rocks import MIB, RocksSettings
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.common.state.write_behind import WaitingCommits
from milestones.common.testing import StepClock
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending import mender
from milestones.m6_state_manager.mending.database_folder import aside
from milestones.m6_state_manager.opening import StateThreadOpening, start
from milestones.m6_state_manager.state_thread import DatabaseDamaged, StateKeeper
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine
from milestones.m6_state_manager.wiped_spans import NOTES, notes_of
from milestones.testing import NotYet, until
from tests.milestones.m6_state_manager.damage import ENTRIES, Damaged, flip, mend, table_files, written
from tests.milestones.m6_state_manager.states import (
    COUNTS,
    NEIGHBOUR,
    OTHER,
    TASK,
    entries,
    found,
    offsets,
    reopened,
)

INTERVAL_MS = 1_000


class Steps:
    """An opening whose thread a test drives."""

    def __init__(self, manager: RangeStateManager) -> None:
        self.clock = StepClock(1_000_000)
        self.context: Any = SimpleNamespace(
            metrics=Metrics(self.clock), state=manager, clock=self.clock, name="app-PollingThread",
            transactional_id="app-1",
            config=SimpleNamespace(
                state_sync_interval_ms=INTERVAL_MS, exactly_once=True, snapshot_url=None, state_full="wait"
            ),
            identity=SimpleNamespace(helper=lambda what: f"app-{what}"),
            memory=SimpleNamespace(waiting=WaitingCommits(0, 0)),
            application=SimpleNamespace(subtopology=lambda _: SimpleNamespace(stores=(COUNTS,))),
        )  # fmt: skip
        self.opening = StateThreadOpening(self.context, launch=self._launch)
        self.joined = False

    def _launch(self, name: str, keeper: StateKeeper) -> Any:
        self.name, self.keeper = name, keeper
        return SimpleNamespace(join=self._join)

    def _join(self, timeout_s: float) -> None:
        while self.keeper.run_once():
            pass
        self.joined = True

    def run(self) -> list[Any]:
        """The answers, once all requests are carried out."""
        while len(self.keeper.requests):
            self.keeper.run_once()
        return self.opening.run_once()

    def opened(self, *tasks: TaskId) -> list[Any]:
        for task in tasks:
            self.opening.open(task)
        return [answer.stores for answer in self.run()]


@pytest.fixture
def steps(manager: RangeStateManager) -> Iterator[Steps]:
    yield (made := Steps(manager))
    made.keeper.requests.close()
    made.keeper.end(10)


def test_stores_are_opened_and_closed_by_message(steps: Steps) -> None:
    mine, other = steps.opened(TASK, NEIGHBOUR)
    mine.apply({"counts": entries(3)}, {"counts": 3})
    steps.opening.close_stores(TASK, mine)
    (answer,) = steps.run()
    assert (answer.task, answer.error) == (TASK, None)
    assert found(steps.opened(TASK)[0]) == entries(3)
    assert found(other) == {}
    assert steps.name == "app-State"


def test_an_error_of_an_opening_is_its_answer(steps: Steps) -> None:
    steps.opened(TASK)
    steps.opening.open(TASK)
    (answer,) = steps.run()
    assert isinstance(answer.error, StateLockedError)


def test_a_request_that_waits_can_be_taken_back(steps: Steps) -> None:
    steps.opening.open(TASK)
    steps.opening.cancel(TASK)
    (answer,) = steps.opening.run_once()
    assert (answer.task, answer.stores, answer.error) == (TASK, None, None)
    assert len(steps.keeper.requests) == 0


def test_damaged_stores_are_emptied_by_message(steps: Steps) -> None:
    (mine,) = steps.opened(TASK)
    mine.apply({"counts": entries(3)}, {"counts": 3})
    steps.opening.set_aside(TASK, mine, {"counts": "a block is damaged"})
    (answer,) = steps.run()
    assert (found(answer.stores), answer.stores.offsets()) == ({}, {"counts": None})


def test_what_was_written_is_synced_once_an_interval_and_nothing_else_is(
    steps: Steps, manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine,) = steps.opened(TASK)
    (database,) = manager.databases()
    synced: list[int] = []
    sync = database.engine.sync
    monkeypatch.setattr(database.engine, "sync", lambda: (synced.append(steps.clock.monotonic_ms()), sync()))
    monkeypatch.setattr(Mailbox, "get", lambda _, wait_ms: steps.clock.advance(wait_ms))
    began_ms = steps.clock.monotonic_ms()
    for turn in range(10):
        if turn < 3:
            mine.apply({"counts": entries(1)}, {"counts": turn})
        steps.keeper.run_once()
    assert [at - began_ms for at in synced] == [INTERVAL_MS, 2 * INTERVAL_MS, 3 * INTERVAL_MS]


def test_the_room_of_wiped_ranges_is_given_back_beside(steps: Steps, manager: RangeStateManager) -> None:
    (mine,) = steps.opened(TASK)
    mine.apply({"counts": entries(1_000, b"x" * 1_000)}, {"counts": 1})
    mine.clear("counts")
    (database,) = manager.databases()
    assert len(database.wiped) == 1
    room_is_given_back(steps)


def room_is_given_back(steps: Steps) -> None:
    """The state thread has all that was wiped of the only database compacted, and its notes removed."""
    (database,) = steps.context.state.databases()

    def is_back() -> object:
        steps.clock.advance(INTERVAL_MS)
        steps.keeper.run_once()
        return not notes_in(database) or NotYet("notes are left")

    until(is_back, "it is compacted", 20)
    assert not database.wiped
    assert database.engine.statistics()["estimate-num-keys"] < 10


def notes_in(database: SubtopologyEngine) -> int:
    return len(list(database.engine.open(NOTES).scan(None, None)))


WAYS = {
    "rocksdict": ("a task is removed", "a store is emptied", "rows expire", "beside a mending"),
    "rocksdb": ("a task is removed", "a store is emptied", "rows expire"),
}


@pytest.mark.parametrize(("engine", "way"), [(engine, way) for engine, ways in WAYS.items() for way in ways])
def test_the_room_of_what_was_wiped_is_given_back_after_a_restart(
    directory: StateDirectory, engine: str, way: str
) -> None:
    if engine == "rocksdb":
        pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    manager = reopened(directory, engines=open_engines(engine))
    storage = manager.open(TASK, [COUNTS])
    storage.apply({"counts": {b"%06d" % key: os.urandom(1_000) for key in range(5_000)}}, {"counts": 1})
    storage.close()
    manager.release()
    storage = (manager := reopened(directory, engines=open_engines(engine))).open(TASK, [COUNTS])
    (database,) = manager.databases()
    if way == "rows expire":
        storage.expire("counts", [(b"", b"\xff")])
    elif way == "a store is emptied":
        storage.clear("counts")
    elif way == "beside a mending":
        database.gate.shut("a test", "wait")
        storage.clear("counts")
        mend(manager)
    storage.close()
    if way == "a task is removed":
        manager.remove(TASK)
    manager.release()
    assert size(directory) > 4 * MIB
    steps = Steps(manager := reopened(directory, engines=open_engines(engine)))
    room_is_given_back(steps)
    assert size(directory) < MIB
    steps.keeper.requests.close()
    steps.keeper.end(10)
    manager.release()


def test_a_compaction_that_ends_after_its_database_was_replaced_leaves_nothing_to_do(
    steps: Steps, manager: RangeStateManager
) -> None:
    (mine,) = steps.opened(TASK)
    mine.apply({"counts": entries(3)}, {"counts": 1})
    mine.clear("counts")
    (database,) = manager.databases()
    begun = database.wiped.take()
    assert begun is not None
    mend(manager)
    database.wiped.given_back(begun)
    steps.clock.advance(INTERVAL_MS)
    steps.keeper.run_once()
    assert (database.wiped.done(), notes_in(database)) == ([], 0)


def size(directory: StateDirectory) -> int:
    """The bytes of table files of the database that counts."""
    return sum(file.stat().st_size for file in table_files(directory) if aside(file.parents[1]) != file.parent)


def test_a_damaged_database_is_mended_beside_and_its_stores_are_set_aside_by_message(directory: StateDirectory) -> None:
    files, contents = written(directory, (TASK, NEIGHBOUR), [COUNTS])
    flip(files[TASK, "counts"])
    manager = reopened(directory)
    steps = Steps(manager)
    mine, other = steps.opened(TASK, NEIGHBOUR)
    with pytest.raises(StateCorruptError) as raised:
        found(mine)
    steps.opening.set_aside(TASK, mine, {"counts": raised.value})
    steps.keeper.run_once()
    (database,) = manager.databases()
    until(lambda: not database.gate.reason, "it is mended", 20)
    (answer,) = steps.run()
    assert (found(answer.stores), answer.stores.offsets()) == ({}, {"counts": None})
    answer.stores.apply({"counts": entries(2)}, {"counts": 1})
    assert (found(answer.stores), found(other)) == (entries(2), contents[NEIGHBOUR, "counts"])
    steps.keeper.requests.close()
    steps.keeper.end(10)
    manager.release()
    assert aside(database.path).is_dir()


def test_the_end_of_the_instance_gives_a_mending_up_and_the_damaged_database_stays(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _ = written(directory, (TASK, NEIGHBOUR), [COUNTS])
    flip(files[TASK, "counts"])
    manager = reopened(directory)
    steps = Steps(manager)
    (database,) = manager.databases()
    begun, go_on = threading.Event(), threading.Event()

    def held(point: str) -> None:
        begun.set()
        assert go_on.wait(20)

    monkeypatch.setattr(mender, "reach", held)
    database.damage("a test")
    steps.keeper.run_once()
    assert begun.wait(20)
    steps.keeper._mender._over.set()
    go_on.set()
    steps.keeper.requests.close()
    steps.keeper.end(20)
    manager.release()
    assert [path.name for path in database.path.iterdir() if path.is_dir()] == ["rocksdb"]
    again = reopened(directory)
    assert offsets(again) == {TASK: {"counts": 7}, NEIGHBOUR: {"counts": 7}}
    again.release()


def test_a_database_whose_mending_fails_is_mended_again_after_a_pause(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(directory, (TASK,), [COUNTS])
    manager = reopened(directory)
    steps = Steps(manager)
    (database,) = manager.databases()
    with monkeypatch.context() as patched:
        patched.setattr(mender, "SstWriter", failing)
        database.damage("a test")
        steps.keeper.run_once()
        until(lambda: not steps.keeper._mender._threads[0].is_alive(), "it has failed", 20)
        steps.keeper.requests.put(DatabaseDamaged(), timeout_ms=1_000)
        steps.keeper.run_once()
        assert not steps.keeper._mender._threads, "it isn't tried again at once"
    steps.clock.advance(mender.FIRST_PAUSE_MS)
    steps.keeper.run_once()
    until(lambda: not database.gate.reason, "it is mended", 20)
    steps.keeper.requests.close()
    steps.keeper.end(20)
    manager.release()


def failing(*_: Any) -> Any:
    raise StateError("disk full: free some space")


def test_metrics_show_each_database_and_why_its_writes_wait(steps: Steps, manager: RangeStateManager) -> None:
    (mine,) = steps.opened(TASK)
    mine.apply({"counts": entries(3)}, {"counts": 3})
    (database,) = manager.databases()
    shown = shown_after_a_sync(steps)
    assert (shown["writes-wait"], shown["unsynced-ms"]) == (0, 0)
    assert shown["size-bytes"] > 0
    assert shown["files"] > 2
    database.room.refused(database.path)
    assert shown_after_a_sync(steps)["writes-wait"] == 1
    database.gate.shut("a test", "wait")
    assert shown_after_a_sync(steps)["writes-wait"] == 2
    mine.close()


def shown_after_a_sync(steps: Steps) -> Any:
    steps.clock.advance(INTERVAL_MS)
    steps.keeper._mender.run_once = lambda _: None  # type: ignore[method-assign]  # nothing is mended
    steps.keeper.run_once()
    (scope,) = steps.keeper._measures._scopes.values()  # type: ignore[union-attr]
    return scope.published.values


def test_the_end_of_the_instance_doesnt_wait_for_a_long_compaction(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that would take a minute."""
    engines = RocksDictEngines(RocksSettings(write_buffer_bytes=4 * MIB))
    storage = (manager := reopened(directory, engines=engines)).open(TASK, [COUNTS])
    for number in range(20):
        batch = {b"%06d-%02d" % (key, number): os.urandom(1_000) for key in range(1_000)}
        storage.apply({"counts": batch}, {"counts": number})
    storage.close()
    manager.release()
    usual = engines.options

    def slow() -> Any:
        options = usual()
        options.set_ratelimiter(400_000, 100_000, 10)
        return options

    monkeypatch.setattr(engines, "options", slow)
    manager = reopened(directory, engines=engines)
    (database,) = manager.databases()
    database.open_store(NOTES)
    notes = notes_of({"counts": (b"", b"\xff")})
    database.engine.apply({NOTES: dict(notes)}, {})
    database.wiped.add(notes)
    steps = Steps(manager)
    steps.clock.advance(INTERVAL_MS)
    steps.keeper.run_once()
    until(lambda: database.engine.statistics()["num-running-compactions"], "it compacts", 20)
    steps.keeper.requests.close()
    began = time.monotonic()
    steps.keeper.end(60)
    manager.release()
    assert time.monotonic() - began < 20
    again = reopened(directory)
    assert len(again.databases()[0].wiped) == 1, "what was given up is to be done by the next start"
    assert len(found(again.open(TASK, [COUNTS]))) == 20_000
    again.release()


def test_what_is_opened_for_a_thread_that_has_ended_is_closed(steps: Steps, manager: RangeStateManager) -> None:
    steps.opening.open(TASK)
    steps.opening.close(10_000)
    assert steps.joined
    manager.open(TASK, [COUNTS]).close()


def test_where_little_memory_is_left_the_store_that_holds_most_is_flushed_not_the_one_that_is_written(
    directory: StateDirectory,
) -> None:
    settings = RocksSettings(all_write_buffers_bytes=4 * MIB, write_buffer_bytes=4 * MIB)
    manager = RangeStateManager(directory, RocksDictEngines(settings), "m6")
    steps = Steps(manager)
    quiet, busy = steps.opened(TASK, OTHER)
    held = {at: database.engine for at, database in enumerate(manager.databases())}

    def unflushed() -> dict[int, int]:
        return {at: engine.unflushed()["counts"] for at, engine in held.items()}

    quiet.apply({"counts": entries(20_000, b"v" * 100)}, {"counts": 1})
    busy.apply({"counts": entries(1_000, b"v" * 100)}, {"counts": 1})
    before = unflushed()
    steps.clock.advance(INTERVAL_MS)
    steps.keeper.run_once()
    most = max(before, key=lambda at: before[at])
    until(lambda: unflushed()[most] < before[most] / 10, "the largest memtable is in a file", 30)
    assert unflushed()[1 - most] == before[1 - most]
    steps.keeper.requests.close()
    manager.release()


def test_the_state_thread_takes_the_steps_of_the_snapshots_and_ends_them(steps: Steps) -> None:
    done: list[str] = []
    steps.keeper._snapshots = SimpleNamespace(
        run_once=lambda: done.append("step"), close=lambda: done.append("end"), wait_ms=lambda: 1
    )
    steps.opening.open(TASK)
    steps.keeper.run_once()
    assert done == []  # what is asked of it comes first
    steps.keeper.run_once()
    steps.opening.close(10_000)
    assert done == ["step", "end"]


def test_damage_that_is_met_at_the_end_of_the_instance_is_no_error_of_the_read(steps: Steps) -> None:
    steps.opened(TASK)
    (database,) = steps.context.state.databases()
    steps.keeper.requests.close()
    database.damage("it is met by a read")
    assert database.gate.reason


READS: list[Callable[[Any], object]] = [
    lambda counts: [counts.get(b"key-%06d" % number) for number in range(ENTRIES)],
    lambda counts: list(counts.scan(None, None)),
    lambda counts: list(counts.scan(None, None, reverse=True)),
    lambda counts: counts.scan_bounded(b"", b"z", 10_000),
    lambda counts: counts.reader()(b"", b"z", 10_000),
]


@pytest.mark.parametrize("ends", ["as planned", "by an error"])
@pytest.mark.parametrize("read", READS, ids=["get", "scan", "reverse scan", "bounded scan", "reader"])
def test_damage_that_a_store_meets_after_the_end_of_the_state_thread_names_the_range(
    damaged: Damaged, read: Callable[[Any], object], ends: str
) -> None:
    """A call of the program's may still run then. Nothing is mended any more: the next start finds the damage."""
    opening = ended(Steps(damaged.manager), ends)
    with pytest.raises(MailboxClosedError):
        opening._keeper.requests.try_put(DatabaseDamaged())
    with pytest.raises(StateCorruptError) as raised:
        read(damaged.damaged.namespace("counts"))
    assert raised.value.damaged == {StoreId(TASK, "counts")}
    with pytest.raises(StateBusyError, match="is damaged and being mended"):
        damaged.neighbour.apply({"counts": entries(1)}, {"counts": 8})


@pytest.mark.parametrize("ends", ["as planned", "by an error"])
def test_a_write_that_meets_damage_after_the_end_of_the_state_thread_is_refused_as_any_other(
    damaged: Damaged, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(Steps(damaged.manager), ends)
    monkeypatch.setattr(damaged.database.engine, "apply", Mock(side_effect=StateCorruptError("a block is damaged")))
    with pytest.raises(StateBusyError, match="is damaged and being mended"):
        damaged.neighbour.apply({"counts": entries(1)}, {"counts": 8})


def ended(steps: Steps, ends: str) -> StateThreadOpening:
    """An opening whose state thread, a real one, has ended."""

    def launch(name: str, keeper: StateKeeper) -> Any:
        if ends == "by an error":
            keeper.run_once = Mock(side_effect=RuntimeError("planted"))  # type: ignore[method-assign]
        return start(name, keeper)

    opening = StateThreadOpening(steps.context, launch=launch)
    if ends == "by an error":
        opening._thread.join(20)
        with pytest.raises(StateError, match="planted"):
            opening.run_once()
    opening.close(20_000)
    assert not opening._thread.is_alive()
    return opening


@pytest.mark.parametrize("part", ["sync", "_flush_largest", "_give_room_back", "_publish"])
def test_a_part_of_a_step_that_fails_keeps_no_request_waiting(
    steps: Steps, part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(steps.keeper, part, Mock(side_effect=RuntimeError("can't start new thread")))
    steps.clock.advance(INTERVAL_MS)
    assert steps.opened(TASK)
    assert "can't start new thread" in caplog.text


def test_a_disk_that_does_not_say_whether_a_database_is_there_is_a_warning(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps.opened(TASK)
    monkeypatch.setattr("pathlib.Path.exists", Mock(side_effect=OSError(5, "Input/output error")))
    steps.keeper.sync()
    assert "the writes of sub-topology 0 can't be synced: can't look for" in caplog.text


def test_the_death_of_the_state_thread_ends_the_thread_that_polls_with_its_stores_closed(steps: Steps) -> None:
    """What the dead thread was to close is closed; what it was to open isn't opened."""
    mine, other = steps.opened(TASK, NEIGHBOUR)
    steps.opening.close_stores(TASK, mine)
    steps.opening.open(OTHER)
    steps.keeper.died(RuntimeError("planted"))
    with pytest.raises(StateError, match="has died, and no store is opened: RuntimeError: planted"):
        steps.opening.run_once()
    closed, refused = steps.opening.run_once()
    assert (closed.task, closed.error) == (TASK, None)
    assert refused.task == OTHER
    assert isinstance(refused.error, StateError)
    steps.opening.close_stores(NEIGHBOUR, other)
    (answer,) = steps.opening.run_once()
    assert (answer.task, answer.error) == (NEIGHBOUR, None)
    steps.opening.open(TASK)
    (answer,) = steps.opening.run_once()
    assert "no store is opened" in str(answer.error)
