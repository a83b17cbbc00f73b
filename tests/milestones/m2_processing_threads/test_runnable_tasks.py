"""What a lease costs, and that no task is forgotten: without the patrol, which would find it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from milestones.common.clock import SystemClock
from milestones.common.metrics import Metrics
from milestones.common.records import TaskId
from milestones.common.testing.clock import StepClock
from milestones.m2_processing_threads import runnable_tasks
from milestones.m2_processing_threads.commit_preparation import LOCK_MS
from milestones.m2_processing_threads.scheduled_task import SchedulerPlace
from milestones.m2_processing_threads.scheduler import IDLE_MS, Scheduler
from milestones.m2_processing_threads.worker import Worker
from milestones.parts import CloseMode
from tests.milestones.m2_processing_threads.failures import final_failure
from tests.milestones.m2_processing_threads.test_chaos import Chaos, play
from tests.milestones.work import Work, room_of

MANY, ROOM = 512, 4_000


@pytest.fixture
def no_patrol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runnable_tasks, "PATROL", 0)


# -- what it costs


QUESTIONS = {"ready", "punctuation_due", "next_punctuation_ms", "output_bytes"}


class Counted(Work):
    """Counts how often it is asked. `misses_a_partition`: its records wait for those of another partition."""

    asked = 0
    misses_a_partition = False

    def __getattribute__(self, name: str) -> Any:
        Counted.asked += name in QUESTIONS
        return super().__getattribute__(name)

    def ready(self, now_ms: int) -> bool:
        return super().ready(now_ms) and not self.misses_a_partition


class Hall:
    """A scheduler with very many tasks."""

    def __init__(self, *, waiting: int = 0) -> None:
        self.clock, self.slept = StepClock(), list[int]()
        self.scheduler = Scheduler(
            self.clock, 4, 60_000, room=room_of(ROOM), wait=lambda _, ms: self.slept.append(ms)
        )
        self.tasks: list[Any] = [Counted(self.clock, number, waiting) for number in range(MANY)]
        for task in self.tasks:
            task.initialise()
            self.scheduler.add(task)
        self.worker = Worker("a thread", self.scheduler, self.clock, Metrics(self.clock))

    def questions(self, act: Any) -> int:
        before = Counted.asked
        act()
        return Counted.asked - before

    def turn(self) -> None:
        """One task gets input, a thread works on it, and sleeps; the stream thread has its turn, too."""
        task = random.choice(self.tasks)
        task.waiting += 3
        self.scheduler.wake([task.id])
        assert self.scheduler.working() == (0, 1)
        assert self.worker.run_once()
        assert task.waiting == 0
        assert not self.worker.run_once()
        self.scheduler.wake([])
        assert final_failure(self.scheduler) is None
        self.scheduler.statistics()


def test_a_lease_a_wake_up_and_a_sleep_ask_a_few_tasks_although_five_hundred_have_nothing_to_do() -> None:
    hall = Hall()
    assert max(hall.questions(hall.turn) for _ in range(200)) < 50


def test_a_lease_asks_a_few_tasks_although_five_hundred_are_ready() -> None:
    hall = Hall(waiting=10**6)

    def lease() -> None:
        taken = hall.scheduler.take("a thread")
        assert taken is not None
        hall.scheduler.give_back(taken)

    assert max(hall.questions(lease) for _ in range(2 * MANY)) < 10


def test_a_punctuation_of_one_task_is_found_among_five_hundred_when_it_is_due(no_patrol: None) -> None:
    hall = Hall()
    task = hall.tasks[77]
    task.waiting = 1
    hall.scheduler.wake([task.id])
    taken: Any = hall.scheduler.take("a thread")
    task.waiting, task.punctuation_ms = 0, hall.clock.wall_ms() + 300
    hall.scheduler.give_back(taken)
    assert not hall.worker.run_once()
    assert hall.slept == [300]
    hall.clock.advance(299)
    assert hall.scheduler.take("a thread") is None
    hall.clock.advance(1)
    assert hall.questions(hall.worker.run_once) <= 10
    assert task.done[-1] == "punctuate"


def test_punctuations_of_all_tasks_are_due_when_the_wall_clock_is_put_back_as_the_tasks_say(no_patrol: None) -> None:
    hall = Hall()
    for task in hall.tasks:
        task.punctuation_ms = hall.clock.wall_ms() + 10**9
    hall.scheduler.wake()
    hall.tasks[5].punctuation_ms = 7_000  # what a task says that sees the clock go back
    hall.clock.set_wall_ms(8_000)
    taken = hall.scheduler.take("a thread")
    assert taken is not None
    assert taken.task is hall.tasks[5]


def test_records_that_wait_for_another_partition_are_looked_at_soon_and_the_other_tasks_arent(no_patrol: None) -> None:
    hall = Hall()
    task = hall.tasks[3]
    task.waiting, task.misses_a_partition = 1, True
    hall.scheduler.wake([task.id])
    assert not hall.worker.run_once()
    assert hall.slept == [runnable_tasks.LOOK_MS]
    task.misses_a_partition = False
    hall.clock.advance(runnable_tasks.LOOK_MS)
    assert hall.questions(hall.worker.run_once) <= 10
    assert task.waiting == 0


def test_a_patrol_finds_what_nobody_has_reported() -> None:
    hall = Hall()
    hall.tasks[300].waiting = 1
    turns = 0
    while hall.tasks[300].waiting:
        hall.worker.run_once()
        hall.clock.advance(runnable_tasks.PATROL_MS)
        turns += 1
    assert turns <= MANY // runnable_tasks.PATROL + 1


def test_patrols_come_no_oftener_than_their_interval() -> None:
    hall = Hall()
    hall.worker.run_once()
    hall.tasks[runnable_tasks.PATROL].waiting = 1  # the next patrol is to find it
    for _ in range(100):
        hall.worker.run_once()
    assert hall.tasks[runnable_tasks.PATROL].waiting == 1
    hall.clock.advance(runnable_tasks.PATROL_MS)
    hall.worker.run_once()
    hall.worker.run_once()
    assert hall.tasks[runnable_tasks.PATROL].waiting == 0


# -- nobody is forgotten


@pytest.mark.parametrize("committed", [True, False])
def test_all_that_were_locked_for_a_commit_are_taken_again_after_it_or_when_their_locks_end(
    committed: bool, no_patrol: None
) -> None:
    hall = Hall(waiting=10)
    for task in hall.tasks:
        task.cached = task.unflushed = True
    assert not hall.scheduler.flush()
    for _ in hall.tasks:
        hall.worker.run_once()
    assert hall.scheduler.flush()
    assert set(hall.scheduler.places().values()) == {SchedulerPlace.LOCKED}
    assert hall.scheduler.take("a thread") is None
    if committed:
        hall.scheduler.unlock()
    else:
        hall.clock.advance(LOCK_MS)
    leases: list[Any] = [hall.scheduler.take("a thread") for _ in hall.tasks]
    assert {lease.task.id for lease in leases} == {task.id for task in hall.tasks}


class Told(Chaos):
    """What happens to tasks is told of, once; nothing looks at all of them."""

    def feed(self) -> None:
        super().feed()
        self.scheduler.wake(list(self.here))

    def pass_time(self) -> None:
        self.clock.advance(self.rng.choice([1, 10, 100, 1_000, 20_000]))
        if self.rng.random() < 0.1:
            self.clock.set_wall_ms(self.rng.randrange(10**9))
        self.scheduler.wake([])

    def send(self) -> None:
        for task in self.here.values():
            task.bytes = 0
        self.scheduler.wake([])

    def commit(self) -> None:
        """Caches are flushed, mostly, before it: so that tasks come to be locked."""
        self.scheduler.flush(final=self.rng.random() < 0.1)
        for hand in self.rng.choices(self.hands, k=self.rng.randrange(12)):
            hand.step()
            self.check()
        super().commit()

    def schedule(self) -> None:
        for task in self.at_work:
            task.punctuation_ms = self.rng.choice([None, self.clock.wall_ms() + self.rng.randrange(500)])

    def once(self) -> None:
        if self.rng.random() < 0.1:
            self.schedule()
        if self.rng.random() < 0.3:
            self.add()
            self.feed()
        super().once()

    def check(self) -> None:
        super().check()
        scheduler: Any = self.scheduler
        scheduler.working()  # what time has brought
        found, now_ms = scheduler._runnable, self.clock.monotonic_ms()
        for id, entry in scheduler._scheduled.items():
            queued = entry in found._maintenance or entry.number is not None
            if entry.lease is not None:
                assert not queued, f"{id} is leased, and in the queue"
            elif entry.place is SchedulerPlace.LOCKED and now_ms >= entry.locked_until_ms:
                raise AssertionError(f"{id}: its lock is over, and it is locked")
            elif found.job(entry, now_ms) is not None:
                assert queued, f"{id} could be taken, and nobody knows"
        assert len(found._turns) == sum(entry.number is not None for entry in scheduler._scheduled.values())
        assert found._maintenance.keys() <= set(scheduler._scheduled.values())
        assert {id: entry.failure for id, entry in scheduler._scheduled.items() if entry.failure} == scheduler._failing
        assert {entry for entry in scheduler._scheduled.values() if entry.full} == scheduler._full.keys()


@pytest.mark.parametrize("fifty", range(10))
def test_whoever_has_something_to_do_is_in_the_queue_whatever_happened(fifty: int, no_patrol: None) -> None:
    play(Told, range(fifty * 50, (fifty + 1) * 50))


# -- real threads


class Real(Work):
    """A task that real threads work on. `left`: records to come; some fail once."""

    def __init__(self, clock: Any, partition: int, rng: random.Random) -> None:
        super().__init__(clock, partition, record_ms=0, sub=partition % 3)
        self.rng, self.lock = rng, threading.Lock()
        self.inside = 0

    def process(self, limit: int, now_ms: int) -> int:
        self.inside += 1
        assert self.inside == 1, "two threads have the same task"
        try:
            self.limit, done, epoch = limit, 0, self.epoch
            while done < self.limit and self.waiting and self.epoch == epoch:
                if self.rng.random() < 0.01:
                    raise ValueError("user code")
                with self.lock:
                    self.waiting -= 1
                done += 1
                self.counters.processed += 1
                self.unflushed = self.cached
            return done
        finally:
            self.inside -= 1


class Crew:
    """Real threads on a scheduler that nothing wakes but what it is told, and its own alarms."""

    def __init__(self, seed: int) -> None:
        self.rng, self.clock = random.Random(seed), SystemClock()
        self.weights = [1, 1, 1]
        self.scheduler = Scheduler(
            self.clock, 4, 60_000, lambda id: self.weights[id.subtopology], room_of(ROOM), self._wait
        )
        self.workers = [
            Worker(f"thread {n}", self.scheduler, self.clock, Metrics(self.clock)) for n in range(4)
        ]
        self.here: dict[TaskId, Any] = {}
        self.away: dict[TaskId, Any] = {}
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run, args=(worker,)) for worker in self.workers]
        for number in range(24):
            task: Any = Real(self.clock, number, random.Random(seed * 100 + number))
            task.cached = number % 4 == 0
            self.here[task.id] = task
            self.scheduler.add(task)
        for thread in self.threads:
            thread.start()

    def _wait(self, condition: threading.Condition, timeout_ms: int) -> None:
        """A sleep without an alarm ends when somebody is called only: a wake-up that is lost would be for ever."""
        condition.wait(None if timeout_ms >= IDLE_MS else timeout_ms / 1000)

    def _run(self, worker: Worker) -> None:
        try:
            while worker.run_once() or not worker.over:
                pass
        except BaseException as error:
            self.errors.append(error)

    def feed(self) -> None:
        chosen = self.rng.sample(sorted(self.here), min(len(self.here), self.rng.randrange(1, 5)))
        for id in chosen:
            with self.here[id].lock:
                self.here[id].waiting += self.rng.randrange(1, 30)
        self.scheduler.wake(chosen)

    def commit(self) -> None:
        self.scheduler.flush(final=self.rng.random() < 0.1)
        for task in self.here.values():
            if self.rng.random() < 0.3 and task.initialised and not task.applying and not task.unflushed:
                task.busy, task.applying = self.rng.choice([0, 0, 0, 1, 3]), True
                self.scheduler.apply(task.id)
        self.scheduler.unlock()

    def pause(self) -> None:
        self.scheduler.pause(frozenset(self.rng.sample([0, 1, 2], self.rng.randrange(3))))

    def revoke(self) -> None:
        if self.here:
            task = self.here.pop(self.rng.choice(sorted(self.here)))
            self.away[task.id] = task
            self.scheduler.remove(task.id, CloseMode.SUSPEND)
            self.weights = self.rng.choices([1, 2, 5], k=3)

    def come_back(self) -> None:
        for removed in self.scheduler.take_removed():
            task = self.away.pop(removed.task.id)
            self.here[task.id] = task
            self.scheduler.add(task)

    def finish(self, within_s: float) -> bool:
        """Nobody calls any more, but for tasks that come back: all has to be done all the same."""
        self.scheduler.pause(frozenset())
        self.scheduler.unlock()
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s and not self.errors:
            self.come_back()
            if not self.away and not any(task.waiting or task.applying for task in self.here.values()):
                return True
            self.scheduler.wait_for_news(20, lambda: False)
        return False

    def close(self) -> None:
        self.scheduler.close(5_000)
        for thread in self.threads:
            thread.join(10)


@pytest.fixture
def crew(request: pytest.FixtureRequest, no_patrol: None) -> Iterator[Crew]:
    crew = Crew(request.param)
    yield crew
    crew.close()


@pytest.mark.parametrize("crew", range(6), indirect=True)
def test_real_threads_do_all_there_is_and_no_wake_up_is_lost(crew: Crew) -> None:
    actions = [crew.feed] * 8 + [crew.commit, crew.pause, crew.revoke, crew.come_back, crew.come_back]
    for _ in range(600):
        crew.rng.choice(actions)()
    assert crew.finish(within_s=60), [(task.id, task.waiting, task.applying) for task in crew.here.values()]
    assert crew.errors == []
    assert crew.scheduler.processed > 0
