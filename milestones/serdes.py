"""Built-in serdes, as `serdes.STRING`: the bytes of Kafka's own `org.apache.kafka.common.serialization`.

    from milestones import serdes
"""

from __future__ import annotations

from milestones.common.public import publish
from milestones.common.serdes import (
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    INTEGER,
    JSON,
    LONG,
    SHORT,
    STRING,
    UUID,
    VOID,
    list_serde,
)

__all__ = [
    "BYTES", "DOUBLE", "FLOAT", "INT", "INTEGER", "JSON", "LONG", "SHORT", "STRING", "UUID", "VOID", "list_serde",
]  # fmt: skip

publish(__name__)
