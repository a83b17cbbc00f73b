"""Kafka Streams' operators that this version doesn't have, each with what to do instead.

*Guarantees*: an unknown attribute is an `AttributeError`, as ever; its message helps.
*Assumes*: nothing. Type checkers see no attribute that isn't there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

_QUERIES = "interactive queries aren't there yet; write what is asked for to a topic: table.to_stream().to('topic')"

INSTEAD: Mapping[str, str] = {
    "windowed_by": "windows are of grouped streams: group_by_key().windowed_by(...)",
    "suppress": "updates are of tables: aggregate, or make a table with to_table(), then suppress(...)",
    "cogroup": "streams are grouped first: group_by_key().cogroup(...)",
    "store": _QUERIES,
    "query": _QUERIES,
    "query_metadata_for_key": _QUERIES,
    "streams_metadata_for_store": _QUERIES,
    "metadata_for_all_streams_clients": _QUERIES,
    "all_local_store_partition_lags": "see status().lags",
    "foreach": "its name is for_each",
    "through": "it is gone from Kafka Streams: use repartition, or to and builder.stream",
    "branch": "it is gone from Kafka Streams: use split().branch(...)",
    "transform": "it is gone from Kafka Streams: use process",
    "flat_transform": "it is gone from Kafka Streams: use process",
    "transform_values": "it is gone from Kafka Streams: use process_values",
    "flat_transform_values": "it is gone from Kafka Streams: use process_values",
    "to": "a table is written by way of its stream: table.to_stream().to('topic')",
    "for_each": "a table is read by way of its stream: table.to_stream().for_each(...)",
    "peek": "a table is read by way of its stream: table.to_stream().peek(...)",
    "clean_up": "delete the application's folder in state_dir, or use `milestones reset`",
}
"""The advice by Kafka Streams' name in snake case."""


def why_missing(kind: type, name: str) -> str:
    """The message about an unknown attribute of a class."""
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    said = f"{kind.__name__!r} object has no attribute {name!r}"
    if snake != name and hasattr(kind, snake):
        return f"{said}: its name is {snake}"
    return f"{said}: {INSTEAD[snake]}" if snake in INSTEAD else said


class Explained:
    """Base of the classes of the DSL: the error of an unknown attribute says what to do instead."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(why_missing(type(self), name), name=name, obj=self)
