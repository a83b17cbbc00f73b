"""What happens to an instance of a campaign beside what its threads do."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter

from milestones.client.client_events import RemoveThread
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.records import TopicPartition
from milestones.instance.context import UncaughtExceptionResponse
from tests.milestones.chaos import crashes
from tests.milestones.chaos.moods import MAY_BE_TAKEN, REFUSED
from tests.milestones.chaos.threads import SteppedPolling
from tests.milestones.chaos.windows import GRACE_MS
from tests.milestones.chaos.world import ChaosWorld
from tests.milestones.disturber import Disturber

TASKS, MOST_THREADS, LONG_MS = 4, 4, 5_000

MUCH_LATER_MS = 70_000
"""After this the stores drop what is over."""


class PlannedDeath(RuntimeError):
    """What a state updater is killed with."""


class Disturbances(ABC):
    """`excused`: what explains that records are done again."""

    rng: random.Random
    world: ChaosWorld
    excused: set[str]
    happened: Counter[str]
    exactly_once: bool
    gentle: bool
    number: int
    time: int
    times: random.Random
    busily: random.Random

    @property
    @abstractmethod
    def keeps(self) -> bool: ...

    @property
    @abstractmethod
    def polling(self) -> SteppedPolling | None: ...

    @abstractmethod
    def poll(self) -> None: ...

    @abstractmethod
    def work(self) -> None: ...

    def feed(self) -> None:
        for _ in range(self.rng.randrange(1, 12)):
            self.number += 1
            partition = self.rng.randrange(TASKS)
            key, value = f"k{partition}-{self.rng.randrange(3)}", f"v{self.number}"
            self.world.logs[TopicPartition("in", partition)].add(value, key=key, timestamp=self._time())

    def _time(self) -> int:
        """That of a record: time goes on, with some that are late, but none for its window: a task that moves forgets
        what is too late, as in Kafka Streams."""
        self.time += self.times.choices([15, MUCH_LATER_MS], [60, 1])[0]
        return self.time - self.times.choice([0, 0, 50, GRACE_MS])

    def assign(self) -> None:
        tasks, rng = self.world.tasks, self.rng
        active = [id for id in tasks if rng.random() < 0.8]
        self.world.group.assign(active, [id for id in tasks if id not in active and rng.random() < 0.5])

    def lose(self) -> None:
        if self.rng.random() < 0.3 and self.polling is not None:
            self.excused.add("the membership was lost")
            self.world.group.lose()

    hold_offsets, hold_bounds = Disturber.hold_offsets, Disturber.hold_bounds

    def lock(self) -> None:
        self.world.state.locked = set(self.rng.sample(self.world.tasks, self.rng.randrange(2)))

    def poison(self) -> None:
        """User code refuses a record that comes soon, until it is soothed; or refuses none any more."""
        refused = self.world.user_code.refused
        refused.clear()
        if self.rng.random() < 0.8:
            refused.update(f"v{self.number + self.rng.randrange(1, 8)}" for _ in range(2))

    def break_stores(self) -> None:
        broken = self.world.state.broken
        broken.clear()
        if self.rng.random() < 0.6:
            broken[self.rng.choice(self.world.tasks)] = self.rng.choice(["open", "write", "corrupt", "close"])

    def trouble(self) -> None:
        self.excused.add("Kafka's answers were lost")
        self.world.moods.trouble = self.rng.choice([0, 0, 0.3])
        self.world.member.commit_errors.clear()
        if not self.exactly_once and self.rng.random() < 0.5:
            self.world.member.commit_errors.append(CommitRetriableError("a test"))

    def time_out(self) -> None:
        """The broker ends the transaction, which is too old."""
        if self.exactly_once:
            self.world.producer.age = 1_000  # long enough for it to be no take-over
            self.world.clients.coordinator.time_out()

    def stale(self) -> None:
        self.world.moods.stale = self.rng.random() < 0.5

    def withhold(self, *for_ms: int) -> None:
        """A call of a commit has no answer for a while."""
        producer = self.world.producer
        producer.withheld = {self.rng.choice(["flush", "send_offsets", "commit"])}
        producer.withheld |= {"abort"} if self.keeps and self.rng.random() < 0.3 else set()
        producer.answers_ms = self.world.clock.monotonic_ms() + self.rng.choice(for_ms or [30, 500, 3_000])
        self.world.member.withholds = not self.exactly_once and self.rng.random() < 0.5

    def excuse_long(self, ms: int) -> None:
        """What keeps the group waiting for so long may cost tasks that leave what isn't committed."""
        if ms >= LONG_MS:
            self.excused.add("the group couldn't be kept waiting any longer")

    def withhold_before_join(self) -> None:
        """The same of a commit that is waited for, before the member joins."""
        if self.world.running.stack:
            return
        self.feed()
        for step in (self.poll, self.work, self.work, self.work, self.world.group.need):
            step()
        self.excuse_long(15_000)
        self.withhold(15_000)
        self.poll()

    def refuse(self) -> None:
        """The broker refuses outputs for a key."""
        refused = self.world.moods.refused
        refused.clear()
        self.world.moods.error = self.rng.choice([REFUSED, MAY_BE_TAKEN])
        if self.rng.random() < 0.5:
            refused.add(f"k{self.rng.randrange(TASKS)}-0".encode())

    def undeliver(self) -> None:
        """The partitions of some keys' outputs have no leader, or have one again."""
        undelivered = self.world.moods.undelivered
        undelivered.clear()
        if self.rng.random() < 0.6:
            undelivered.update(f"k{self.rng.randrange(TASKS)}-0".encode() for _ in range(self.rng.randrange(1, 3)))

    def forbid(self) -> None:
        """The user loses a right on a topic, or has it again."""
        self.world.moods.forbidden.clear()
        if self.rng.random() < 0.4:
            self.world.moods.forbidden.add(f"k{self.rng.randrange(TASKS)}-0".encode())

    def enlarge(self) -> None:
        """Outputs of a key are too large."""
        self.world.moods.too_large.clear()
        if self.rng.random() < 0.5:
            self.world.moods.too_large.add(f"k{self.rng.randrange(TASKS)}-1".encode())

    def fill(self) -> None:
        """The client's queue is full, or has little room."""
        self.world.moods.room = self.rng.choice([None, 0, 1, 3, 10])

    def handle(self) -> None:
        """The production exception handler says something else from now on."""
        self.world.fate = self.rng.choice(["continue", "continue", "continue", "retry", "fail", "raise"])

    def slow_down(self) -> None:
        """New producers are ready some steps later."""
        self.world.moods.renewal_steps = self.rng.choice([0, 1, 3, 10]) if self.keeps else 0

    def kill_updater(self) -> None:
        if not self.world.restorer.next:
            self.world.restorer.next.append(PlannedDeath())

    def keep_busy(self) -> None:
        """Engines can't take writes now: for a moment, or until something else is done about it."""
        busy = self.world.state.busy
        busy.clear()
        for id in self.world.tasks:
            if self.busily.random() < 0.4:
                busy[id] = self.busily.choice([1, 2, 5, 10_000])
        self.happened["busy engines"] += bool(busy)

    def hang_updater(self) -> None:
        for updater in self.world.updaters.all[-1:]:
            updater.hangs = not updater.hangs

    def hang_openers(self) -> None:
        self.world.openers.hang = not self.world.openers.hang

    def pause(self) -> None:
        registry = self.world.context.thread_registry
        (registry.resume if registry.paused else registry.pause)([0])

    def add_thread(self) -> None:
        registry = self.world.context.thread_registry
        if registry.threads < MOST_THREADS:
            self.world.roster.add(registry.add())

    def remove_thread(self) -> None:
        registry = self.world.context.thread_registry
        if registry.threads and not self.world.running.amidst(SteppedPolling):
            number = registry.remove(self.rng.choice(registry.numbers()))
            self.world.roster.remove(RemoveThread(number, registry.serial(number)))

    def no_threads(self) -> None:
        if self.rng.random() < 0.2:
            for _ in range(self.world.context.thread_registry.threads):
                self.remove_thread()

    def jump(self) -> None:
        """Time passes; not in the midst of anything, and not while an answer is held back that is waited for."""
        if not self.world.running.stack:
            self.answer()
            loop = None if self.polling is None else self.polling.loop
            if loop is not None and any(task.applying for task in loop._tasks.processing.values()):
                self.excused.add("a write took long")
            ms = self.rng.choice([200, 1_500] if self.gentle else [200, 1_500, 25_000])
            self.stand_still(ms)

    @property
    def polls_now(self) -> bool:
        return self.world.running.amidst(SteppedPolling)

    def stand_still(self, ms: int) -> None:
        """Time passes in which the polling thread takes no step."""
        self.excuse_long(ms)
        self.world.clock.advance(ms)
        self.world.member.stood_still(ms)

    def crash(self) -> None:
        """The process is killed, and another one comes, on the same disk."""
        polling, world = self.polling, self.world
        if polling is None or world.running.stack or self.rng.random() < 0.5:
            return
        self.excused.add("the process was killed")
        self.happened["killed"] += 1
        crashes.kill(self.world, polling, self.rng)
        world.roster.replace(polling.name)

    def decide(self) -> None:
        replaced = [UncaughtExceptionResponse.REPLACE_THREAD] * 3
        self.world.decision = self.rng.choice([None, *replaced, UncaughtExceptionResponse.SHUTDOWN_CLIENT])

    def deliver(self) -> None:
        self.world.clients.coordinator.deliver()

    def answer(self) -> None:
        self.world.member.holds = self.world.requests.holds = self.world.member.withholds = False
        self.world.member.answer()
        self.world.requests.answer()

    def soothe(self) -> None:
        """So that tasks come to process."""
        self.answer()
        self.world.moods.calm()
        self.world.state.locked.clear()
        self.world.state.busy.clear()
        self.world.openers.hang = False
        for updater in self.world.updaters.all:
            updater.hangs = False
        if self.rng.random() < 0.3:
            self.world.state.broken.clear()
            self.world.user_code.refused.clear()
            self.world.context.thread_registry.resume([0])
