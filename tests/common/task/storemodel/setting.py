"""What a life of a store happens in: how the application is set up, and the changelog as Kafka has it.

*Guarantees*: a changelog has an offset for each record that was sent, aborted ones and transactions' markers too.
*Assumes*: values are those of the numbers 0 to 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from milestones.common.records import Output
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.task.task import PendingCommit
from tests.common.task.storemodel.calls import Plain, Row, Rows

IN, STORE = "in", "store"


class WrongStoreError(AssertionError):
    """A store isn't what the reference says."""


class UserError(Exception):
    """User code failed."""


def need(right: bool, otherwise: object) -> None:
    if not right:
        raise WrongStoreError(str(otherwise))


@dataclass(frozen=True)
class How:
    """How an application is set up. `exactly_once`: what is sent becomes part of the changelog with the commit, else at
    once. `skipping`: records that fail are skipped, else they are tried again. `listening`: the processor has a flush
    listener, `old_values`: that wants them. `at_commit`: the changelog gets the last write of each key, with the
    commit."""

    kind: Plain
    spec: StoreSpec
    exactly_once: bool
    skipping: bool
    caches: RecordCaches
    read_caches: ReadCaches
    listening: bool
    old_values: bool
    at_commit: bool

    @property
    def cached(self) -> bool:
        """Whether updates wait in a cache."""
        return self.spec.cached and self.caches.max_bytes > 0


@dataclass
class Pending:
    """A commit under way. `sent`: how many of the transaction's records are of it. `offset`: at least once, the
    changelog's end behind them; None when there are none. `logged`: what the changelog was to get."""

    commit: PendingCommit
    rows: Rows
    sent: int
    offset: int | None
    logged: list[Any]


class Changelog:
    """One partition. `committed`: the offset behind the last commit."""

    def __init__(self) -> None:
        self.records: list[Output | None] = []
        self.committed = 0

    def __len__(self) -> int:
        return len(self.records)

    def add(self, records: Iterable[Output]) -> None:
        self.records += records

    def skip(self, count: int) -> None:
        """So many offsets without a record."""
        self.records += [None] * count

    def write(self, key: bytes, value: bytes | None) -> None:
        """A record of another instance."""
        self.records.append(Output("changelog", 0, key, value, 3, None, STORE))

    def messages(self, start: int, count: int) -> list[Message]:
        """The records of so many offsets, as a consumer gives them."""
        return [
            Message(topic=output.topic, partition=0, offset=0, key=output.key, value=output.value,
                    timestamp=(1, output.timestamp), headers=list(output.headers or ()))
            for output in self.records[start : start + count]
            if output is not None
        ]  # fmt: skip

    def folded(self, end: int) -> dict[bytes, bytes]:
        """What the records before `end` amount to."""
        return {key: output.value for key, output in self._last(end).items() if output.value is not None}

    def rows(self, kind: Plain) -> Rows:
        """All of it, as rows of the reference."""
        numbers = {kind.values.encoded(number): number for number in range(6)}
        last = self._last(len(self))
        return {
            key: Row(numbers[out.value], out.timestamp, tuple(out.headers or ()))
            for key, out in last.items()
            if out.value is not None
        }

    def _last(self, end: int) -> dict[bytes, Output]:
        return {output.key: output for output in self.records[:end] if output is not None and output.key is not None}
