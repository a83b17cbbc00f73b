"""What a user may rely on when a task fails on processing threads: what is tried again, and what ends the stream
thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import ProcessingError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.topology import StreamsBuilder, Topology
from milestones.parts import CloseMode
from tests.milestones.fakes import put
from tests.milestones.m2_processing_threads.test_scheduler import Shop
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing

A = TaskId(0, 0)
LARGE, SMALL = 10_000_000, 1


class Database:
    """What user code behind a cache calls at each flush. `up`: it answers; `asked`: with what it was."""

    def __init__(self) -> None:
        self.up = True
        self.asked: list[int] = []
        self.at: Callable[[], object] = lambda: None

    def store(self, count: int) -> int:
        self.asked.append(count)
        self.at()
        if not self.up:
            raise ConnectionError("the database is down")
        return count


def counted_into(database: Database) -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key().count("counts")
    counts.to_stream().map_values(database.store).to("out", value=serdes.LONG)
    return builder.build()


def running(database: Database, cache: int = LARGE, **settings: Any) -> RunningProcessing:
    settings = {"statestore_cache_max_bytes": cache, "commit_interval_ms": 50, **settings}
    r: Any = RunningProcessing(ProcessingWorld(counted_into(database), **settings)).run(0)
    assert isinstance(r, RunningProcessing)
    return r


def committed(r: RunningProcessing) -> int:
    at = r.world.member.committed.get(TopicPartition("in", 0))
    return 0 if at is None else at.offset


@pytest.mark.parametrize("cache", [LARGE, SMALL])
def test_a_flush_that_failed_is_tried_again_although_no_record_comes_and_a_success_ends_the_failure(cache: int) -> None:
    database = Database()
    r = running(database, cache, task_timeout_ms=1_000)
    database.up = False
    put(r.world, 0, "a")
    r.step(30, ms=10)
    assert r.tasks.place_labels() == {A: "quarantined"}
    database.up = True
    r.step(100, ms=20)
    assert (r.tasks.place_labels(), committed(r), r.world.written()) == ({A: "processing"}, 1, [("k", 1)])


def test_a_flush_that_fails_for_task_timeout_ends_the_thread() -> None:
    database = Database()
    r = running(database, task_timeout_ms=1_000)
    database.up = False
    put(r.world, 0, "a")
    with pytest.raises(ProcessingError, match="the database is down"):
        r.step(100, ms=20)
    assert 1_000 <= r.world.clock.monotonic_ms() < 1_500
    assert len(database.asked) > 3


def test_a_request_of_a_task_whose_cache_cant_be_flushed_has_no_commit_made_each_turn() -> None:
    database = Database()
    r = running(database, commit_interval_ms=10_000)
    database.up = False
    r.world.state.tasks[A].request_commit()
    put(r.world, 0, "a")
    r.step(10, ms=10)
    assert r.tasks.place_labels() == {A: "quarantined"}
    commits = r.loop._commits.commits
    r.step(50, ms=10)
    assert r.loop._commits.commits - commits <= 1
    database.up = True
    r.step(50, ms=20)
    assert committed(r) == 1


class Listening(logging.Handler):
    """A log handler of a user's, which looks at the scheduler. `heard`: the message, and whether the lock was held."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.heard: list[tuple[str, bool]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append((record.getMessage(), self.scheduler._lock.locked()))


@pytest.fixture
def listening() -> Iterator[Callable[[Shop], Listening]]:
    root, before, handlers = logging.getLogger("milestones"), logging.getLogger("milestones").level, list[Any]()

    def listen(shop: Shop) -> Listening:
        handlers.append(Listening(shop.scheduler))
        root.addHandler(handlers[-1])
        root.setLevel(logging.INFO)
        return handlers[-1]  # type: ignore[no-any-return]

    yield listen
    root.setLevel(before)
    for handler in handlers:
        root.removeHandler(handler)


def test_log_handlers_and_texts_of_errors_are_called_without_the_schedulers_lock(
    listening: Callable[[Shop], Listening],
) -> None:
    shop = Shop({"waiting": 1}, {"waiting": 1}, {"waiting": 1})
    listener = listening(shop)
    first, second, third = shop.take(), shop.take(), shop.take()
    shop.scheduler.give_back(first, ValueError("of the first"))
    shop.scheduler.remove(second.task.id, CloseMode.CLOSE)
    shop.scheduler.give_back(second, ValueError("of the second"))
    shop.scheduler.remove(third.task.id, CloseMode.CLOSE)
    shop.scheduler.close(0)
    shop.scheduler.give_back(third)
    shop.work(3)
    texts = " ".join(text for text, _ in listener.heard)
    assert all(part in texts for part in ("of the first", "of the second", f"task {third.task.id} came back"))
    assert not any(held for _, held in listener.heard)


# -- how long a task may fail


def failing() -> RunningProcessing:
    r = RunningProcessing(ProcessingWorld(task_timeout_ms=1_000))
    r.run(0)
    r.world.user_code.refused = {"a"}
    put(r.world, 0, "a")
    r.step(30, ms=10)
    assert r.tasks.place_labels() == {A: "quarantined"}
    return r


@pytest.mark.parametrize("mended", [True, False])
def test_a_task_that_failed_before_a_pause_of_its_topology_has_a_try_after_the_pause_before_the_thread_ends(
    mended: bool,
) -> None:
    r = failing()
    r.world.context.thread_registry.pause(frozenset({0}))
    r.step(30, ms=100)
    if mended:
        r.world.user_code.refused = set()
    r.world.context.thread_registry.resume(frozenset({0}))
    if mended:
        r.step(10, ms=10)
        assert (r.tasks.place_labels(), r.world.user_code.seen[-1]) == ({A: "processing"}, "a")
    else:
        with pytest.raises(ProcessingError, match="user code refuses a"):
            r.step(10, ms=10)


def test_a_try_that_takes_longer_than_task_timeout_may_still_succeed() -> None:
    r = failing()
    r.world.user_code.refused = set()

    def call(_: Any) -> None:
        r.world.clock.advance(5_000)
        with r.turn():
            r.loop.run_once(r.world.clock.monotonic_ms())

    r.world.user_code.at = call
    r.step(20, ms=100)
    assert (r.tasks.place_labels(), committed(r)) == ({A: "processing"}, 1)


def test_a_task_has_its_last_try_when_it_has_failed_for_task_timeout() -> None:
    r = failing()
    with pytest.raises(ProcessingError, match="user code refuses a"):
        r.step(200, ms=10)
    assert 1_000 <= r.world.clock.monotonic_ms() <= 1_100
