"""The join of a stream with a versioned table, whose records wait for the rows of their time (KIP-923).

*Guarantees*: Kafka Streams' semantics. A record waits until the highest time of the stream in this task is later by the
grace. Then it is joined with the row that was valid at its own time, under its own context: timestamp, headers, topic,
partition, offset. Records that have waited are joined in the order of their times. A record that comes later than the
grace allows is joined at once. So is a record without a key of a left join, as it has no row.
*Assumes*: the table is versioned, and its history as long as the grace; the store is a `JoinBuffer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from milestones.common.state.stores.join_buffer import JoinBuffer
from milestones.common.state.stores.suppress_layout import Context
from milestones.common.topology.operators.table_joins import StreamTableJoin
from milestones.common.topology.program import OperatorContext, Process


@dataclass(frozen=True)
class WaitingJoin:
    """Joins each record once it has waited for `grace_ms`. `buffer`: the store of the records that wait."""

    join: StreamTableJoin
    buffer: str
    grace_ms: int

    def bind(self, context: OperatorContext) -> Process:
        join, record, grace_ms = self.join.bind(context), context.record, self.grace_ms
        buffer: JoinBuffer = context.store(self.buffer)
        too_late, put, due, remove = buffer.too_late, buffer.put, buffer.due, buffer.remove

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None or too_late(timestamp, grace_ms):
                join(key, value, timestamp)
                return
            put(key, value, Context(timestamp, record.headers or None, record.metadata))
            for place, key_then, value_then, of in due(grace_ms):
                former = record.stand_in(of.timestamp, of.headers, of.origin)
                try:
                    join(key_then, value_then, of.timestamp)
                finally:
                    record.resume(former)
                remove(place)

        return process
