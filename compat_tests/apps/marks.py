"""User code that writes back into the store of the table that it is told of.

*Guarantees*: each update is passed on as it is; its row has a mark in the store then.
*Assumes*: the table's rows don't depend on what they were before.
"""

from __future__ import annotations

from typing import Any

from milestones import Processor, ProcessorContext, Record, ValueAndTimestamp


class Marks(Processor):
    """`store`: the name of the table's store."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: Any = context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        self._store.put(record.key, ValueAndTimestamp(f"{record.value}'", record.timestamp))
        self.context.forward(record)
