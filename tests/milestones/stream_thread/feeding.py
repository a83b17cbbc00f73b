"""Inputs with one task, for tests."""

from __future__ import annotations

from typing import Any

from milestones.common import serdes
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.task import Task
from milestones.common.topology import Topology
from milestones.stream_thread.inputs import Inputs
from tests.milestones.fakes import World, passing, put

LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)


class Fed:
    """Inputs with task 0_0."""

    def __init__(self, *topics: str, topology: Any = None, **settings: Any) -> None:
        self.world = World(topology or passing(topics or ("in",)), settings)
        self.inputs = Inputs(self.world.context, self.world.clients)  # type: ignore[arg-type]
        self.task = self.world.task()

    def start(self, *committed: int) -> list[Task]:
        """At these committed offsets, partition by partition; what has started is initialised."""
        offsets = {p: OffsetAndMetadata(at) for p, at in zip(self.task.partitions, committed, strict=False)}
        self.inputs.start(self.task, offsets)
        self.inputs.run_once()
        started = self.inputs.take_started()
        for task in started:
            task.initialise()
        return started

    def failure(self) -> Exception:
        """The error of the one task that can't be started, or go on."""
        self.inputs.run_once()
        ((id, error),) = self.inputs.take_failed()
        assert id == self.task.id
        return error

    def paused(self, after: int = 0) -> set[TopicPartition]:
        """The partitions that are paused once so many more records are processed."""
        if after:
            self.task.process(after, 0)
        self.inputs.throttle()
        return set(self.world.consumer.paused)

    def commit(self) -> None:
        """As the thread does, when a commit is asked for."""
        self.task.applied(self.task.freeze(), {})
        self.inputs.run_once()


def full(records: int, **settings: Any) -> Fed:
    """Inputs with so many records."""
    f = Fed(**settings)
    put(f.world, 0, *["x"] * records)
    f.start(0)
    f.inputs.fetch(0)
    return f


def two() -> Topology:
    """Two sub-topologies: in -> out, other -> copies."""
    topology = passing()
    topology.add_source("others", "other", key=serdes.STRING, value=serdes.STRING)
    topology.add_sink("copies", "copies", "others", key=serdes.STRING, value=serdes.STRING)
    return topology
