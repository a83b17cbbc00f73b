"""Anything at any time, by seed: rebalances, failures, pauses, answers that don't come."""

from __future__ import annotations

import random

from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import Lost
from milestones.common.records import TaskId
from tests.milestones.fakes import FENCED, ILLEGAL_GENERATION, Running, put


class Disturber:
    """Does anything at any time to a running thread of up to four tasks."""

    def __init__(self, r: Running, seed: int) -> None:
        self.r, self.world, self.rng = r, r.world, random.Random(seed)
        self.actions = [
            self.rebalance, r.tasks.roll_back, self.hold_offsets, self.hold_bounds, self.lock, self.feed, self.lose,
            self.fail, self.pause, self.cut, lambda: None,
        ]  # fmt: skip

    def once(self) -> None:
        self.rng.choice(self.actions)()

    def roles(self) -> tuple[list[int], frozenset[TaskId]]:
        """Active tasks, by partition, and standbys."""
        active = self.rng.sample(range(4), self.rng.randrange(5))
        return active, frozenset(TaskId(0, p) for p in range(4) if p not in active and self.rng.random() < 0.5)

    def rebalance(self) -> None:
        active, others = self.roles()
        self.r.rebalance(*active, standby=others)

    def hold_offsets(self) -> None:
        self.world.member.holds = not self.world.member.holds
        if not self.world.member.holds:
            self.world.member.answer()

    def hold_bounds(self) -> None:
        self.world.requests.holds = not self.world.requests.holds
        if not self.world.requests.holds:
            self.world.requests.answer()

    def lock(self) -> None:
        self.world.state.locked = {TaskId(0, p) for p in self.rng.sample(range(4), self.rng.randrange(3))}

    def feed(self) -> None:
        put(self.world, self.rng.randrange(4), "x")

    def lose(self) -> None:
        self.world.member.events.append(Lost("session timeout"))

    def fail(self) -> None:
        error = self.rng.choice([FENCED, ILLEGAL_GENERATION])
        self.world.producer.fail(self.rng.choice(["commit", "send_offsets"]), error)

    def pause(self) -> None:
        self.r.loop.pause(frozenset(self.rng.sample([0], self.rng.randrange(2))))

    def cut(self) -> None:
        assigned = sorted(self.world.restorer.assigned)
        if assigned:
            self.world.restorer.next.append(Fetched(out_of_range=[self.rng.choice(assigned)]))

    def calm(self) -> None:
        self.world.member.holds = self.world.requests.holds = False
        self.world.member.answer()
        self.world.requests.answer()
        self.world.state.locked.clear()
        self.world.producer.errors.clear()
        self.r.loop.pause(frozenset())
