"""Runs a random case on a real broker, as real processes, and judges it.

*Guarantees*: what isn't as promised is raised; processes that a fault has killed are started again.
*Assumes*: a world of its own.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path as File
from typing import Any

from compat_tests.harness.brokers import Broker
from compat_tests.harness.emitting import thins_out
from compat_tests.harness.instance import DiedError, Instance
from compat_tests.harness.judge import judge, table_of
from compat_tests.harness.world import World, new_world, stop_all
from compat_tests.oracles.changelog import changelog_equals_table
from compat_tests.oracles.findings import Findings, hold
from compat_tests.oracles.group import at_most_warming
from compat_tests.random_topologies.cases import BEYOND_TRANSACTION_MS, COMMITS, Case, Fault
from compat_tests.random_topologies.inputs import Inputs
from compat_tests.random_topologies.interpretation import flows, numbered_flows
from compat_tests.random_topologies.shaped_judgement import Circumstances, judge_shaped
from compat_tests.random_topologies.shaped_stores import judge_stores
from milestones.testing import NotYet

SHORT_PAUSE_S = 4.0
"""A pause that took longer, on a loaded machine, may have cost the membership: the session lasts 6 s."""
TASK_TIMEOUT_MS = 60_000
"""A stall, then a broker that is away, then a client that hangs: together they may take more than the usual 30 s."""
KILLED = -9
BATCHES_TO_A_POINT = 200
"""Batches of input until a process has made some commits."""
NAMES = "abcdefghijklmnopqrstuvwxyz"


def run(broker: Broker, case: Case, stage: str, directory: File) -> list[Fault]:
    """The case in a world of its own, below `directory`; the faults of it that never came to strike."""
    directory.mkdir(parents=True, exist_ok=True)
    with new_world(broker, f"random-{case.seed}", stage, case.guarantee, case.seed, directory) as world:
        return run_in(world, case)


def run_in(world: World, case: Case) -> list[Fault]:
    """The case, from its topics to the judgement; the faults that never came to strike."""
    course = Course(world, case)
    course.start()
    for fault in case.faults:
        course.strike(fault)
    course.feed(case.rest)
    course.come_to_rest()
    judge_course(world, case, course)
    return course.missed


def thinned(world: World, case: Case) -> bool:
    """Whether a cache leaves out outputs of one of the case's stages."""
    return thins_out(case.cache, world.stage, case.beside or world.stage)


def judge_course(world: World, case: Case, course: Course) -> None:
    """All that is promised, once everybody has ended."""
    judge(
        world,
        *flows(case.plan, thinned(world, case)),
        crashed=course.repeats,
        zombies=course.zombies,
        repartitions=case.plan.repartitions(),
        timed_out=case.outlasts,
    )
    hold(judge_shapes(world, case, course))
    hold(at_most_warming(world.history().generations, case.warmups, standbys=case.standbys))
    if world.exactly_once or not course.repeats:
        judge_memory(world, case)


def judge_memory(world: World, case: Case) -> None:
    """Of stores in memory only the changelog is left."""
    for number, flow in numbered_flows(case.plan, thinned(world, case)).items():
        if not (case.plan.paths[number].in_memory and flow.step):
            continue
        inputs = [row for source in flow.sources for row in world.feeds[source].rows]
        table = table_of(flow, inputs, world.cluster.read(world.topic(flow.output)))
        if table is not None:
            hold(changelog_equals_table(world.cluster.read(world.topic(f"store{number}-changelog")), table))


def judge_shapes(world: World, case: Case, course: Course) -> Findings:
    """The paths that look at time or at another source: their outputs, then what is behind them."""
    repeats = course.repeats and not world.exactly_once
    zombies, prefix = repeats and course.zombies, f"{world.application_id}-"
    how = Circumstances(course.inputs.round_of, repeats, thinned(world, case), zombies, prefix)
    rows = [row._replace(topic=source) for source, feed in world.feeds.items() for row in feed.rows]
    findings: Findings = []
    for number, path in enumerate(case.plan.paths):
        if path.shaped:
            found = world.cluster.read(world.topic(f"out{number}"))
            findings += judge_shaped(case.plan, number, rows, found, how)
            if not how.zombies:
                findings += judge_stores(world, path, number)
    return findings


class Course:
    """What happens in a case. `config`: more settings of its instances. `repeats`, `zombies`: what it may have led to,
    as `judge` calls it. `missed`: faults at a point that nobody came to."""

    def __init__(self, world: World, case: Case, **config: Any) -> None:
        self._world, self._case, self._config = world, case, config
        self.inputs = Inputs(case)
        self.group: list[Instance] = []
        self._armed: set[str] = set()
        self._due: dict[str, int] = {}
        self._batches = 0
        self.missed: list[Fault] = []
        self.repeats, self.zombies = case.repeats, case.zombies

    def start(self) -> None:
        plan, world = self._case.plan, self._world
        world.create(**{f"out{number}": path.partitions for number, path in enumerate(plan.paths)})
        for source in plan.used:
            world.input(f"in{source}", plan.sources[source])
        for _ in range(self._case.instances):
            self.join()

    def join(self) -> None:
        """One more instance."""
        case, name = self._case, NAMES[len(self.group)]
        instance = self._world.instance(
            f"plan:{case.plan.text()}",
            name,
            num_stream_threads=case.threads,
            num_processing_threads=case.workers,
            statestore_cache_max_bytes=case.cache,
            commit_interval_ms=case.commit_ms,
            group_instance_id=name if case.static else None,
            task_timeout_ms=TASK_TIMEOUT_MS,
            num_standby_replicas=case.standbys,
            acceptable_recovery_lag=case.lag,
            max_warmup_replicas=case.warmups,
            session_timeout_ms=case.session_ms,
            state_cleanup_delay_ms=case.clean_ms,
            repartition_purge_interval_ms=case.purge_ms,
            **self._config,
        )
        self.group.append(instance)
        self._begin(instance)

    def _begin(self, one: Instance, fault: str | None = None) -> None:
        """Start it: in a group of two stages as the other one than its last time."""
        stages = (self._world.stage, self._case.beside or self._world.stage)
        one.start(fault, milestones=stages[(self.group.index(one) + one.starts) % 2])

    def feed(self, batches: int) -> None:
        """So many batches of input. What died of its fault, or was to come back by now, comes back."""
        for _ in range(batches):
            for source, rows in self.inputs.batch().items():
                self._world.feeds[source].send(rows)
            self._batches += 1
            self._revive()

    def _revive(self) -> None:
        for one in self.group:
            if one.name in self._armed and one.exit_code == KILLED:
                self._armed.discard(one.name)
                self._begin(one)
            elif self._due.get(one.name, self._batches + 1) <= self._batches:
                del self._due[one.name]
                self._begin(one)
        self._world.must_live()

    def feed_until_they_run(self, some: list[Instance]) -> None:
        """Input goes on until these run, or have ended."""

        def all_run() -> object:
            self.feed(1)
            states = {one.name: one.state() for one in some if one.running}
            return set(states.values()) <= {"RUNNING"} or NotYet(str(states))

        self._world.wait(all_run, "the instances run")

    def strike(self, fault: Fault) -> None:
        """The fault, in its time, on one of those that run."""
        if fault.calm:
            self.feed_until_they_run(self.group)
            if self._case.plan.shaped:
                self._disarm()
                self._leap()
        self.feed(fault.after)
        if fault.kind == "join":
            self.join()
            return
        if fault.kind == "broker":
            # One that is only starting gives up after 10 s without a broker, as it should.
            self.feed_until_they_run(self.group)
            self._world.broker.kill()
            self._world.broker.start()
            return
        running = [one for one in self.group if one.running]
        if running:
            victim = running[fault.who % len(running)]
            getattr(self, f"_{fault.kind}")(victim, fault)

    def _kill(self, victim: Instance, fault: Fault) -> None:
        self._armed.discard(victim.name)
        victim.kill()
        self._due[victim.name] = self._batches + fault.down
        self._revive()

    def _restart(self, victim: Instance, fault: Fault) -> None:
        self._halt(victim)
        self._due[victim.name] = self._batches + fault.down
        self._revive()

    def _wipe(self, victim: Instance, fault: Fault) -> None:
        self._halt(victim)
        shutil.rmtree(victim.state_dir, ignore_errors=True)
        self._due[victim.name] = self._batches + fault.down
        self._revive()

    def _leave(self, victim: Instance, fault: Fault) -> None:
        if sum(one.running for one in self.group) > 1:
            self._halt(victim)

    def _pause(self, victim: Instance, fault: Fault) -> None:
        began = time.monotonic()
        victim.pause()
        self.feed(fault.down)
        victim.resume()
        if time.monotonic() - began > SHORT_PAUSE_S:
            self.repeats = self.zombies = True

    def _stall(self, victim: Instance, fault: Fault) -> None:
        victim.pause()
        self._world.gives_up(victim)
        victim.resume()

    def _point(self, victim: Instance, fault: Fault) -> None:
        self._halt(victim)
        self._armed.add(victim.name)
        self._begin(victim, fault.point)
        self.feed_until_they_run([victim])
        self.feed(fault.down)
        step, action, *_ = fault.point.split(":")
        if action != "kill":
            return
        left = BATCHES_TO_A_POINT if step in COMMITS else 0
        while left and victim.name in self._armed:
            self.feed(1)
            left -= 1
        if victim.name in self._armed:
            self.missed.append(fault)

    def _stand(self, victim: Instance, fault: Fault) -> None:
        if self._stands_at(victim, fault):
            self._world.let_pass(BEYOND_TRANSACTION_MS / 1000, "Kafka ends what is open")
            victim.resume()

    def _outage(self, victim: Instance, fault: Fault) -> None:
        self.feed_until_they_run(self.group)
        if self._stands_at(victim, fault):
            self._world.broker.kill()
            victim.resume()
            self._world.broker.start()

    def _stands_at(self, victim: Instance, fault: Fault) -> bool:
        """Whether the victim has come to the point; one that has nothing to commit never does."""
        self._halt(victim)
        self._begin(victim, fault.point)
        for _ in range(BATCHES_TO_A_POINT):
            if victim.standing:
                return True
            self.feed(1)
            self._world.wait(
                lambda: victim.standing or victim.state() == "RUNNING" or NotYet(victim.state()), "it runs"
            )
        self._rouse(victim)
        self.missed.append(fault)
        return False

    def _rouse(self, victim: Instance) -> None:
        """A clean stop of one that may stop itself meanwhile, and a start without the fault."""
        victim.ask_to_stop()

        def ended() -> bool:
            if victim.standing:
                victim.resume()
            return not victim.running

        self._world.wait(ended, f"{victim.name} ends")
        victim.dies(0)
        self._begin(victim)

    def _halt(self, victim: Instance) -> None:
        """A clean stop; one whose fault is armed may die of it instead."""
        armed = victim.name in self._armed
        self._armed.discard(victim.name)
        try:
            victim.ask_to_stop()
        except DiedError:
            if not (armed and victim.exit_code == KILLED):
                raise
        code = victim.wait()
        if not (armed and code == KILLED):
            victim.dies(0)

    def come_to_rest(self) -> None:
        """Everybody back and unarmed, all inputs processed, a clean end."""
        self._disarm()
        if self._case.plan.shaped:
            self._leap()
            for source, rows in self.inputs.last().items():
                self._world.feeds[source].send(rows)
        self._all_processed()
        stop_all(self.group)

    def _disarm(self) -> None:
        """Nobody dies from now on while inputs are waited for: without more of them nobody comes back."""
        for one in self.group:
            if one.name in self._armed and one.running:
                self._halt(one)
                self._begin(one)

    def _leap(self) -> None:
        """The inputs' next round: all that has come is processed before."""
        self._all_processed()
        self.inputs.leap()

    def _all_processed(self) -> None:
        self._batches = max(self._batches, *self._due.values(), 0)
        self._revive()
        self._world.processed(self._case.plan.repartitions())
