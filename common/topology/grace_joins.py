"""The join of a stream with a versioned table, whose records wait for the rows of their time (KIP-923).

*Guarantees*: Kafka Streams' semantics. A record waits until the highest timestamp of the stream in this task is at
least `grace` later than the record's own. Then it is joined with the row that was valid at the record's time. During
the join the context is the record's own: timestamp, headers, topic, partition, offset. Waiting records are joined in
the order of their timestamps. A record that comes later than the grace allows is joined immediately. A record without a
key or a value is joined immediately, too, as no row can come for it.
*Assumes*: the table is versioned, and its history is at least as long as the grace. The store is a `JoinBuffer`.
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
    """Joins each record after it has waited for `grace_ms`. `buffer`: the name of the store of the waiting records."""

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
