"""Anything at any time to an instance of a stage from M4 on, by seed: open, restore, process, fail, commit, roll back,
revoke, add and remove threads; then calm, and what comes of it.

Each thread takes a step when the seed says so, also in the midst of another one's user code or call of a store. After
each step of the polling thread `checks.py` looks at all of it.

    python -m tests.milestones.chaos.campaign FIRST END [STAGE]
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from milestones.client.client_events import RemoveThread
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.records import Record, TaskId
from milestones.instance.context import Exceptions, ProcessingThreadMoved
from milestones.stream_thread.task_registry import Phase
from tests.milestones.chaos import checks
from tests.milestones.chaos.kafka import MAY_BE_TAKEN, REFUSED
from tests.milestones.chaos.threads import SteppedPolling
from tests.milestones.chaos.world import ChaosWorld
from tests.milestones.disturber import Disturber
from tests.milestones.fakes import put

TASKS, STEPS, DEPTH, MOST_THREADS = 4, 240, 3, 4
GENTLE = 0.4
"""The part of the seeds in which neither the membership is lost, nor the outcome of a commit remains unknown."""
LAST_STEPS, LONG_MS = 800, 5_000


class PlannedDeath(RuntimeError):
    """What a state updater is killed with."""


class Chaos:
    """An instance of up to four tasks, and all that happens to it. `happened`: how often what was done, and came."""

    def __init__(self, seed: int, stage: str = "m4") -> None:
        self.stage = stage
        rng = self.rng = random.Random(seed)
        self.gentle = random.Random(f"{seed} {stage}").random() < GENTLE
        self.excused: set[str] = set()
        self.exactly_once, self.cached = rng.random() < 0.75, rng.random() < 0.25
        self.disturbed = rng.choice([0.05, 0.1, 0.2])
        self.world = ChaosWorld(
            rng,
            stage,
            cached=self.cached,
            num_processing_threads=rng.randrange(1, MOST_THREADS + 1),
            processing_guarantee="exactly_once_v2" if self.exactly_once else "at_least_once",
            **({"statestore_cache_max_bytes": rng.choice([500, 10_000_000])} if self.cached else {}),
        )
        self.happened = Counter[str]()
        self.depth = self.number = self.deaths = 0
        self.calm_now = False
        world = self.world
        world.clients.coordinator.watch = partial(checks.check_transaction, self)
        world.user_code.at, world.state.meanwhile, world.waits.others = self._in_a_record, self.meanwhile, self._others
        self.disturbances: list[Callable[[], object]] = [
            world.group.need, self.hold_offsets, self.hold_bounds, self.lock, self.stale, self.withhold,
            self.time_out, self.deliver, self.kill_updater, self.handle, self.slow_down, self.hang_updater,
            self.hang_openers, self.pause, self.decide, self.no_threads,
            *[self.poison, self.refuse, self.add_thread, self.remove_thread] * 2, *[self.jump, self.soothe] * 3,
        ]  # fmt: skip
        if not self.gentle:
            self.disturbances += [self.lose, *[self.trouble, self.break_stores] * 2, *[self.withhold_before_join] * 3]
        world.group.told = partial(checks.check_told, self)
        world.crew.start()

    @property
    def keeps(self) -> bool:
        """Whether the stage keeps what isn't confirmed."""
        return self.stage == "m5"

    def thinned(self, topic: str) -> bool:
        """Whether the topic has some of a key's updates only, the last one among them."""
        return topic in ("changelog", "latest") if self.keeps else self.cached

    # -- the threads

    @property
    def polling(self) -> SteppedPolling | None:
        """The polling thread that runs."""
        return next((one for one in reversed(self.world.polling) if not one.ended), None)

    def _steps(self) -> list[Callable[[], object]]:
        return [self.poll] * 6 + [self.work] * 6 + [self.world.openers.step] * 4 + [self.update] * 3 + [self.help]

    def poll(self) -> None:
        polling = self.polling
        if polling is not None and not self.world.running.amidst(SteppedPolling):
            self.world.group.listen()
            if self.rng.random() < 0.3:
                self.assign()
            polling.step()
            try:
                checks.check(self)
            except AssertionError as error:
                self.world.wrong.append(str(error))  # what is interrupted here may pass over the error
                raise

    def work(self) -> None:
        workers = [one for one in self.world.workers.all if not (one.inside or one.worker.ended)]
        if workers:
            self.rng.choice(workers).step()

    def update(self) -> None:
        for updater in self.world.updaters.all:
            updater.step()

    def help(self) -> None:
        """A handler thread asks, and answers."""
        if self.world.handler_threads:
            self.happened["handlers asked"] += 1
            self.world.handler_threads.pop(self.rng.randrange(len(self.world.handler_threads))).run()

    def supervise(self) -> None:
        """The supervisor takes what it was told, and lets the next polling thread come."""
        crew = self.world.crew
        events, self.world.events[:] = list(self.world.events), []
        for event in events:
            if isinstance(event, ProcessingThreadMoved):
                crew.processing_moved(event)
        for name, member in list(crew.members.items()):
            thread = member.thread
            assert isinstance(thread, SteppedPolling)
            if thread.ended:
                checks.note_end(self, thread)
                crew.ended(name) if member.leaves else crew.replace(name)

    def _others(self) -> None:
        """While the polling thread waits."""
        if self.depth < DEPTH:
            self.depth += 1
            self.rng.choice([self.work, self.world.openers.step, self.update])()
            self.depth -= 1

    def _in_a_record(self, _: Record) -> None:
        self.meanwhile()

    def meanwhile(self) -> None:
        """In the midst of user code, or of a call of a store."""
        if self.calm_now:
            return
        self.world.clock.advance(self.rng.randrange(20))
        if self.depth >= DEPTH or self.rng.random() < 0.6:
            return
        self.depth += 1
        try:
            for _ in range(self.rng.randrange(3)):
                self.anything()
        finally:
            self.depth -= 1

    def anything(self) -> None:
        """A thread's step, or something else."""
        if self.rng.random() < 0.05:
            self.feed()
        elif self.rng.random() < self.disturbed:
            disturb = self.rng.choice(self.disturbances)
            self.happened[disturb.__name__] += 1
            disturb()
        else:
            self.rng.choice(self._steps())()

    # -- what happens

    def feed(self) -> None:
        for _ in range(self.rng.randrange(1, 12)):
            self.number += 1
            partition = self.rng.randrange(TASKS)
            put(self.world, partition, f"v{self.number}", key=f"k{partition}-{self.rng.randrange(3)}")

    def assign(self) -> None:
        active = [p for p in range(TASKS) if self.rng.random() < 0.8]
        self.world.group.assign(active, [p for p in range(TASKS) if p not in active and self.rng.random() < 0.5])

    def lose(self) -> None:
        if self.rng.random() < 0.3 and self.polling is not None:
            self.excused.add("the membership was lost")
            self.world.group.lose()

    hold_offsets, hold_bounds = Disturber.hold_offsets, Disturber.hold_bounds

    def lock(self) -> None:
        self.world.state.locked = {TaskId(0, p) for p in self.rng.sample(range(TASKS), self.rng.randrange(2))}

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
            broken[TaskId(0, self.rng.randrange(TASKS))] = self.rng.choice(["open", "write", "corrupt", "close"])

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

    def handle(self) -> None:
        """The production exception handler says something else from now on."""
        self.world.fate = self.rng.choice(["continue", "continue", "continue", "retry", "fail", "raise"])

    def slow_down(self) -> None:
        """New producers are ready some steps later."""
        self.world.moods.renewal_steps = self.rng.choice([0, 1, 3, 10]) if self.keeps else 0

    def kill_updater(self) -> None:
        if not self.world.restorer.next:
            self.world.restorer.next.append(PlannedDeath())

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
            self.world.crew.add(registry.add())

    def remove_thread(self) -> None:
        registry = self.world.context.thread_registry
        if registry.threads and not self.world.running.amidst(SteppedPolling):
            number = registry.remove(self.rng.choice(registry.numbers()))
            self.world.crew.remove(RemoveThread(number, registry.serial(number)))

    def no_threads(self) -> None:
        if self.rng.random() < 0.2:
            for _ in range(self.world.context.thread_registry.threads):
                self.remove_thread()

    def jump(self) -> None:
        """Time passes; not in the midst of anything, and not while an answer is held back that is waited for."""
        if not self.world.running.stack:
            self.answer()
            ms = self.rng.choice([200, 1_500] if self.gentle else [200, 1_500, 25_000])
            self.excuse_long(ms)
            self.world.clock.advance(ms)
            self.world.member.stood_still(ms)

    def decide(self) -> None:
        self.world.decision = self.rng.choice([None, *[Exceptions.REPLACE_THREAD] * 3, Exceptions.SHUTDOWN_CLIENT])

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
        self.world.openers.hang = False
        for updater in self.world.updaters.all:
            updater.hangs = False
        if self.rng.random() < 0.3:
            self.world.state.broken.clear()
            self.world.user_code.refused.clear()
            self.world.context.thread_registry.resume([0])

    # -- from the beginning to the end

    def play(self) -> None:
        for _ in range(STEPS):
            self.world.clock.advance(self.rng.randrange(30))
            self.anything()
            self.supervise()
        self.calm()
        self.settle()
        checks.check_threads(self)
        checks.check_outputs(self)
        checks.check_user_code(self)
        self.close()
        checks.check_closed(self)

    def calm(self) -> None:
        """All causes are mended."""
        self.calm_now = True
        self.soothe()
        self.world.state.broken.clear()
        self.world.user_code.refused.clear()
        self.world.restorer.next.clear()
        self.world.context.thread_registry.resume([0])
        self.world.producer.withheld.clear()
        self.world.decision = Exceptions.REPLACE_THREAD
        self.deliver()
        if not self.world.context.thread_registry.threads:
            self.add_thread()

    def _round(self) -> None:
        """Each thread takes a step."""
        self.world.clock.advance(20)
        self.supervise()
        self.answer()
        self.poll()
        self.world.openers.step()
        self.update()
        self.world.workers.step()
        while self.world.handler_threads:
            self.help()

    def settle(self) -> None:
        """All tasks come here, also those that have ended, and process all there is."""
        for assigned in ([], range(TASKS)):
            self.supervise()
            self.world.group.need()
            for _ in range(LAST_STEPS):
                self._round()
                if self.world.group.joined:
                    self.world.group.assign(assigned)
                if self._settled(assigned):
                    break
            else:
                raise AssertionError(f"it doesn't come to an end with {list(assigned)}: {checks.places(self)}")

    def _settled(self, assigned: Iterable[int]) -> bool:
        places = checks.places(self)
        if places != dict.fromkeys((TaskId(0, p) for p in assigned), Phase.PROCESSING) or self.world.group.joined:
            return False
        return not self.world.member.events and all(map(self._all_committed, assigned))

    def _all_committed(self, partition: int) -> bool:
        return checks.committed(self, partition) == len(self.world.keys_of(partition))

    def close(self) -> None:
        """The last thread goes."""
        self.supervise()
        for _ in range(self.world.context.thread_registry.threads):
            self.remove_thread()
        for _ in range(LAST_STEPS):
            self._round()
            if self.polling is None and all(one.worker.ended for one in self.world.workers.all):
                break
        self.supervise()


def play(seed: int, stage: str = "m4") -> Chaos:
    """Have a seed's run; an error names it."""
    chaos = Chaos(seed, stage)
    try:
        chaos.play()
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return chaos


def main(first: int, end: int, stage: str = "m4") -> int:
    """Play these seeds; print what went wrong, and how often what happened."""
    logging.disable(logging.CRITICAL)
    happened, failed, began = Counter[str](), 0, time.monotonic()
    for seed in range(first, end):
        try:
            happened += play(seed, stage).happened
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        if (seed + 1) % 500 == 0:
            print(f"... {seed + 1 - first} seeds, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{end - first} seeds, {failed} failed, {time.monotonic() - began:.0f} s")
    print(", ".join(f"{what} {count}" for what, count in sorted(happened.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
