"""Processing threads driven by hand, and a Kafka in memory that knows transactions.

While user code runs, others may do anything: `UserCode.at` is called in the midst of each record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from milestones.common import serdes
from milestones.common.records import Emitted, Output, Record, TaskId, TopicPartition, output_of
from milestones.common.testing import StepClock
from milestones.common.topology import Topology
from milestones.instance.context import ThreadContext
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.m2_processing_threads.processing import ThreadedProcessing
from milestones.m2_processing_threads.worker import Worker
from milestones.shared_parts.committer import Committer
from tests.milestones.fake_kafka import FakeMember, FakeProducer, Logs
from tests.milestones.fakes import CHANGELOG, Counting, Running, World, counting
from tests.milestones.stepped import RunningUpdater, UpdaterWorld


class SteppedWorker:
    """A worker in a thread that never runs by itself. `inside`: it is in the midst of a step."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.inside = False
        self.joined: list[float | None] = []

    def step(self) -> bool:
        if self.inside or self.worker.ended:
            return False
        if self.worker.leaving and not self.worker.over:
            self.worker.close()
            return False
        self.inside = True
        try:
            return self.worker.run_once()
        finally:
            self.inside = False

    def join(self, timeout: float | None = None) -> None:
        self.joined.append(timeout)


class Workers:
    """All workers of a world. `stuck`: none of them moves."""

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock
        self.all: list[SteppedWorker] = []
        self.stuck = False

    def launch(self, worker: Worker, _: ThreadContext) -> SteppedWorker:
        self.all.append(SteppedWorker(worker))
        return self.all[-1]

    def wait(self, condition: threading.Condition, timeout_ms: int) -> None:
        """Whoever waits lets the others work; a worker's sleep is no wait: it is asked again by the test."""
        if any(one.inside for one in self.all):
            return
        condition.release()
        try:
            self.clock.advance(min(5, timeout_ms))
            self.step()
        finally:
            condition.acquire()

    def step(self, times: int = 1) -> None:
        for _ in range(0 if self.stuck else times):
            for one in self.all:
                one.step()


class Ledger(FakeProducer):
    """What is sent is in the logs once it is committed, with the offsets of its input."""

    def __init__(self, logs: Logs, member: FakeMember, *, transactional: bool = True) -> None:
        super().__init__(transactional=transactional)
        self._logs, self._member = logs, member
        self._open: list[Output] = []

    def send(
        self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str] = (), **_: Any
    ) -> Sequence[Emitted]:
        self._call("send")
        self.begin()
        self.contributors.add(task)
        for output in map(output_of, outputs):
            self.sent.append((task, output))
            if self.transactional:
                self._open.append(output)
            else:
                self._write(output)
            if output.topic in changelogs:
                at = TopicPartition(output.topic, output.partition)
                pending = sum(o.topic == output.topic and o.partition == output.partition for o in self._open)
                self.acknowledged[at] = self._logs[at].end + pending
        return ()

    def _write(self, output: Output) -> None:
        log = self._logs[TopicPartition(output.topic, max(0, output.partition))]
        log.entries.append(log.message(log.end, output.key, output.value, output.timestamp, output.headers))

    def commit(self, timeout_ms: int) -> None:
        self._call("commit")
        self._member.committed.update(self.offsets)
        self.committed.update(self.offsets)
        for output in self._open:
            self._write(output)
        self._open.clear()
        self.in_transaction = False

    def abort(self, timeout_ms: int) -> None:
        super().abort(timeout_ms)
        self._open.clear()


def with_ledger(world: World) -> World:
    """The world, with producers whose outputs are in the logs once they are committed."""

    def ledger() -> Ledger:
        return Ledger(world.logs, world.member, transactional=world.config.exactly_once)

    world.clients.producer, world.clients.new_producer = ledger(), ledger  # type: ignore[method-assign]
    return world


class UserCode:
    """What the topology's processor does besides counting: `at` is called in the midst of each record; the values in
    `refused` raise. `seen`: the values that it was called with; `done`: those of them that it has done.
    `asks_for_a_commit`: whether it does, after a record."""

    def __init__(self) -> None:
        self.at: Callable[[Record], None] = lambda _: None
        self.asks_for_a_commit: Callable[[], bool] = lambda: False
        self.refused: set[str] = set()
        self.seen: list[str] = []
        self.done: list[str] = []

    def processor(self) -> type[Counting]:
        user_code = self

        class Watched(Counting):
            def process(self, record: Record) -> None:
                user_code.seen.append(record.value)
                user_code.at(record)
                if record.value in user_code.refused:
                    raise RuntimeError(f"user code refuses {record.value}")
                super().process(record)
                if user_code.asks_for_a_commit():
                    self.context.commit()
                user_code.done.append(record.value)

        return Watched


class ProcessingWorld(UpdaterWorld):
    """A world of stage m2: in -> count per key -> out."""

    def __init__(
        self,
        topology: Topology | None = None,
        *,
        user_code: UserCode | None = None,
        cached: bool = False,
        **settings: Any,
    ) -> None:
        """`user_code`: that of the topology, if that is given."""
        self.user_code = user_code or UserCode()
        super().__init__(topology or counting(processor=self.user_code.processor(), cached=cached), settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        workers = self.workers = Workers(self.clock)
        with_ledger(self)
        self.parts = replace(
            self.parts,
            processing=lambda context: ThreadedProcessing(context, workers.launch, workers.wait),
            collection=BufferedCollection,  # type: ignore[arg-type]
            commit=Committer,  # type: ignore[arg-type]
        )

    def work(self) -> None:
        super().work()
        self.workers.step()

    def written(self, partition: int = 0) -> list[tuple[str, int]]:
        """Key and count of what is in partition `partition` of the changelog."""
        log = self.logs[TopicPartition(CHANGELOG, partition)]
        return [(m.key().decode(), serdes.LONG.deserialize("", m.value())) for m in log.entries if m is not None]


class RunningProcessing(RunningUpdater):
    """A loop with a world of stage m2. Updaters and workers take a step after each of the loop's."""

    world: ProcessingWorld

    def __init__(self, world: ProcessingWorld | None = None) -> None:
        super().__init__(world or ProcessingWorld())
        self.inside = False

    def step(self, times: int = 1, *, ms: int = 0) -> None:
        for _ in range(times):
            with self.turn():
                super().step(ms=ms)
            self.world.workers.step()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The stream thread does something: nobody may have it do something else in the midst of that."""
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before


STAGES: dict[str, Callable[..., Running]] = {
    "baseline": lambda topology=None, **settings: Running(World(topology or counting(), settings)),
    "m1": lambda topology=None, **settings: RunningUpdater(UpdaterWorld(topology or counting(), settings)),
    "m2": lambda topology=None, **settings: RunningProcessing(ProcessingWorld(topology, **settings)),
}
"""By stage: a thread of it, with this topology and these settings."""


def running(*partitions: int, **settings: Any) -> RunningProcessing:
    """A thread of such a world that has these tasks."""
    return RunningProcessing(ProcessingWorld(**settings)).run(*partitions)  # type: ignore[return-value]
