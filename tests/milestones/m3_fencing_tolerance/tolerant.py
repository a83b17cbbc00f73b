"""Worlds with fencing tolerance: the same fakes, its two parts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from milestones import wiring
from milestones.common.errors import KafkaUnreachableError
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.metadata import OffsetMetadata
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from tests.milestones.fakes import World

IN = TopicPartition("in", 0)
FLAGS = frozenset({"fencing_tolerance"})


class TolerantWorld(World):
    """`also`: further flags."""

    def __init__(self, settings: dict[str, Any] | None = None, also: Collection[str] = ()) -> None:
        super().__init__(settings={"heartbeat_interval_ms": 10, **(settings or {})})
        self.parts = replace(
            wiring.parts(FLAGS | set(also)).thread,
            clients=lambda context, factory: self.clients,  # type: ignore[arg-type,return-value]
            state=lambda context, partitions_of: self.state,
        )

    def recovery(self) -> InPlaceRecovery:
        clients: Any = self.clients
        return InPlaceRecovery(self.context, clients)


def numbered(offset: int, number: int, transactional_id: str = "app-tx") -> OffsetAndMetadata:
    """An offset as a commit of that number writes it."""
    return OffsetAndMetadata(offset, OffsetMetadata(1, number, transactional_id).encode())


def unready(cause: Exception) -> KafkaUnreachableError:
    """What a producer that can't be initialised raises."""
    error = KafkaUnreachableError("not in time")
    error.__cause__ = cause
    return error
