"""Records come and are counted, while a network in memory does what it likes to the ends of transactions, and takes its
time over answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from milestones.common.records import TaskId, TopicPartition
from milestones.common.task.lifecycle import TaskState
from tests.milestones.fakes import CHANGELOG, Running, World, put
from tests.milestones.m3_fencing_tolerance.simulated import SimulatedClients
from tests.milestones.m3_fencing_tolerance.tolerant import TolerantWorld

RECORDS, TROUBLE = 40, 0.4
SETTINGS = {"transaction_timeout_ms": 1_000, "task_timeout_ms": 10_000_000}


class Scenario:
    """One task that counts; records come, ends are lost, late ones arrive, transactions time out, as the seed says.

    `world` and `running`: of which stage; with fencing tolerance.
    """

    def __init__(self, seed: int, world: World | None = None, running: Callable[[Any], Running] = Running) -> None:
        self.chance = random.Random(seed)
        self.world = world or TolerantWorld(settings=SETTINGS)
        self.clients = SimulatedClients(self.world, self.chance, TROUBLE)
        self.world.clients = self.clients
        self.running = running(self.world).run(0)
        self.rejoins = 0

    def play(self) -> None:
        sent = 0
        while sent < RECORDS:
            if self.chance.random() < 0.5:
                put(self.world, 0, "x", key=self.chance.choice("ab"))
                sent += 1
            self.go_on()
        for _ in range(2_000):
            task = self.world.state.tasks[TaskId(0, 0)]
            over = not (self.running.loop._commits.under_way or task.commit_needed())
            if over and self.committed_offset() == RECORDS and task.state is TaskState.READY:
                return
            self.go_on()
        raise AssertionError("it doesn't come to an end")

    def go_on(self) -> None:
        if self.chance.random() < 0.2:
            self.clients.coordinator.deliver()
        if self.chance.random() < 0.05:
            # Long enough ago for it to be no take-over.
            self.world.producer.age = 1_000
            self.clients.coordinator.time_out()
        if self.chance.random() < 0.1:
            producer = self.world.producer
            producer.withheld = {self.chance.choice(["flush", "send_offsets", "commit"])}
            producer.answers_ms = self.world.clock.monotonic_ms() + self.chance.choice([100, 1_500])
        self.world.member.answer()
        self.running.step(ms=self.chance.choice([10, 100]))
        if len(self.world.member.rejoins) > self.rejoins:
            self.rejoins += 1
            self.running.rebalance(0)

    def committed_offset(self) -> int:
        at = self.world.member.committed.get(TopicPartition("in", 0))
        return 0 if at is None else at.offset

    def must_be_exact(self) -> None:
        keys = [message.key() for message in self.world.logs[TopicPartition("in", 0)].entries if message]
        counts = {key: keys.count(key) for key in sorted(set(keys))}
        for topic in ("out", CHANGELOG):
            for key, count in counts.items():
                values = [
                    int.from_bytes(output.value or b"", "big")
                    for output in self.clients.coordinator.committed
                    if output.topic == topic and output.key == key
                ]
                assert values == list(range(1, count + 1)), (topic, key)
        content = self.world.state.content(TaskId(0, 0))
        assert {key: int.from_bytes(value, "big") for key, value in content.items()} == counts

    def must_have_lost_nothing_in_vain(self) -> None:
        """A task is lost, and made again, only when the outcome of a commit stayed unknown."""
        recovery: Any = self.running.loop._recoveries._recovery
        assert (self.world.state.made > 1) == (recovery.lost > 0)
        assert bool(self.world.member.rejoins) == (recovery.lost > 0)
