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
from typing import Any

from milestones.common.records import Record, TaskId
from milestones.instance.context import ProcessingThreadMoved, UncaughtExceptionResponse
from milestones.stream_thread.task_registry import Phase
from tests.milestones.chaos import checks
from tests.milestones.chaos.disturbances import MOST_THREADS, Disturbances
from tests.milestones.chaos.threads import SteppedPolling
from tests.milestones.chaos.world import ChaosWorld
from tests.noted import noted

STEPS, DEPTH, LAST_STEPS = 240, 3, 800
GENTLE = 0.4
"""The part of the seeds in which neither the membership is lost, nor the outcome of a commit remains unknown."""
SMALL_BUFFERS: dict[str, Any] = {"output_buffer_max_bytes": 1_000}
LITTLE_STATE: dict[str, Any] = {"statestore_uncommitted_max_bytes": 6_000}


class Chaos(Disturbances):
    """An instance of up to four tasks, and all that happens to it. `happened`: how often what was done, and came."""

    def __init__(self, seed: int, stage: str = "m4") -> None:
        self.stage = stage
        rng = self.rng = random.Random(seed)
        more = self.more = random.Random(f"{seed} {stage}")
        self.gentle = more.random() < GENTLE
        self.busily = random.Random(f"{seed} busy")
        self.often_busy = self.busily.choice([0, 0.05, 0.2])
        self.ticks, self.time, self.times = Counter[bytes](), 1_000, random.Random(seed)
        self.excused: set[str] = set()
        self.exactly_once, self.cached = rng.random() < 0.75, rng.random() < 0.25
        self.disturbed = rng.choice([0.05, 0.1, 0.2])
        self.world = ChaosWorld(
            rng,
            stage,
            cached=self.cached,
            ticking=more.random() < 0.4,
            wide=self.times.random() < 0.6 and (self.keeps or not self.cached),
            **more.choice([{}, {}, SMALL_BUFFERS, LITTLE_STATE]),
            state_write_interval_ms=random.Random(f"{seed} waits").choice([0, 50, 5_000]),
            num_processing_threads=rng.randrange(1, MOST_THREADS + 1),
            processing_guarantee="exactly_once_v2" if self.exactly_once else "at_least_once",
            **({"statestore_cache_max_bytes": rng.choice([500, 10_000_000])} if self.cached else {}),
        )
        self.happened = Counter[str]()
        self.depth = self.number = self.deaths = 0
        self.calm_now = False
        world = self.world
        world.clients.coordinator.watch = partial(checks.check_transaction, self)
        world.user_code.asks_for_a_commit = lambda: more.random() < 0.03
        world.user_code.at, world.state.meanwhile, world.waits.others = self._in_a_record, self.meanwhile, self._others
        self.disturbances: list[Callable[[], object]] = [
            world.group.need, self.hold_offsets, self.hold_bounds, self.lock, self.stale, self.withhold,
            self.time_out, self.deliver, self.kill_updater, self.handle, self.slow_down, self.hang_updater,
            self.hang_openers, self.pause, self.decide, self.no_threads, self.undeliver, self.undeliver, self.forbid,
            self.enlarge, self.fill, self.fill,
            *[self.poison, self.refuse, self.add_thread, self.remove_thread] * 2, *[self.jump, self.soothe] * 3,
        ]  # fmt: skip
        if not self.gentle:
            self.disturbances += [
                self.lose, *[self.crash, self.trouble, self.break_stores] * 2, *[self.withhold_before_join] * 3,
            ]  # fmt: skip
        world.group.told = partial(checks.check_told, self)
        world.roster.start()

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
        roster = self.world.roster
        events, self.world.events[:] = list(self.world.events), []
        for event in events:
            if isinstance(event, ProcessingThreadMoved):
                roster.processing_moved(event)
        for name, member in list(roster.members.items()):
            thread = member.thread
            assert isinstance(thread, SteppedPolling)
            if thread.ended:
                checks.note_end(self, thread)
                roster.ended(name) if member.leaves else roster.replace(name)

    def _others(self) -> None:
        """While the polling thread waits."""
        if self.depth < DEPTH:
            self.depth += 1
            self.rng.choice([self.work, self.world.openers.step, self.update])()
            self.depth -= 1

    def _in_a_record(self, _: Record) -> None:
        if self.times.random() < 0.05 and self.depth < DEPTH and not (self.calm_now or self.polls_now):
            self._long_call()
        else:
            self.meanwhile()

    def _long_call(self) -> None:
        """The record takes so long that nobody waits for its task."""
        self.happened["long calls"] += 1
        self.depth += 1
        try:
            self.stand_still(self.times.choice([200, 1_500]))
            for _ in range(self.times.randrange(30)):
                self.anything()
        finally:
            self.depth -= 1

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

    # -- from the beginning to the end

    def play(self) -> None:
        for _ in range(STEPS):
            self.world.clock.advance(self.rng.randrange(30))
            self.anything()
            if self.busily.random() < self.often_busy:
                self.keep_busy()
            self.supervise()
        self.calm()
        self.settle()
        checks.check_threads(self)
        checks.check_outputs(self)
        checks.check_user_code(self)
        checks.check_kept(self)
        self.close()
        checks.check_closed(self)
        if self.more.random() < 0.5:
            self.restore_elsewhere()

    def restore_elsewhere(self) -> None:
        """Another machine, with nothing on its disk, has all tasks: its stores are those that were here."""
        self.world.ticks = False
        before = checks.contents(self)
        checks.forget_disk(self)
        self.add_thread()
        self.settle()
        checks.check_contents(self, before)
        self.close()

    def calm(self) -> None:
        """All causes are mended."""
        self.calm_now = True
        self.soothe()
        self.world.state.broken.clear()
        self.world.user_code.refused.clear()
        self.world.restorer.next.clear()
        self.world.context.thread_registry.resume([0])
        self.world.producer.withheld.clear()
        self.world.decision = UncaughtExceptionResponse.REPLACE_THREAD
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
        for assigned in ([], self.world.tasks):
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

    def _settled(self, assigned: Iterable[TaskId]) -> bool:
        places = checks.places(self)
        if places != dict.fromkeys(assigned, Phase.PROCESSING) or self.world.group.joined:
            return False
        return not self.world.member.events and all(map(self._all_committed, assigned))

    def _all_committed(self, task: TaskId) -> bool:
        inputs = checks.inputs_of(self, task)
        return all(checks.committed(self, at) == self.world.logs[at].end for at in inputs)

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
    with noted(f"seed {seed}"):
        chaos.play()
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
