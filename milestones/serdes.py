"""Built-in serdes, such as `serdes.STRING`. They write the same bytes as Kafka's own
`org.apache.kafka.common.serialization`.

`serdes.of` and `serdes.json` return the serde of a type.

    from milestones import serdes
"""

from __future__ import annotations

from milestones.common.public import publish
from milestones.common.serdes import (
    BOOLEAN,
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
from milestones.common.typed_serdes import SerdeLike, json, of

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DOUBLE",
    "FLOAT",
    "INT",
    "INTEGER",
    "JSON",
    "LONG",
    "SHORT",
    "STRING",
    "UUID",
    "VOID",
    "SerdeLike",
    "json",
    "list_serde",
    "of",
]  # fmt: skip

publish(__name__)
