"""Operators of Kafka Streams that this version doesn't have, each with advice on what to do instead.

*Guarantees*: an unknown attribute raises `AttributeError`, as usual, and its message gives the advice. Type checkers
still report such attributes.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

_QUERIES = "interactive queries aren't there yet; write what is asked for to a topic: table.to_stream().to('topic')"

INSTEAD: Mapping[str, str] = {
    "windowed_by": "only grouped streams have windows: group_by_key().windowed_by(...)",
    "suppress": "only tables have updates to suppress: aggregate, or make a table with to_table(), then suppress(...)",
    "cogroup": "streams are grouped first: group_by_key().cogroup(...)",
    "store": _QUERIES,
    "query": _QUERIES,
    "query_metadata_for_key": _QUERIES,
    "streams_metadata_for_store": _QUERIES,
    "metadata_for_all_streams_clients": _QUERIES,
    "all_local_store_partition_lags": "see status().lags",
    "all_metadata": _QUERIES,
    "all_metadata_for_store": _QUERIES,
    "metadata_for_local_threads": "see status()",
    "client_instance_ids": "clients send their metrics by librdkafka: see the setting enable_metrics_push",
    "emit_strategy": "it is chosen with the windows: windowed_by(windows, emit='on_close')",
    "metrics": "the runtime's metrics are Streams.metrics(); a processor has none of its own",
    "key_serde": "the default is app_configs['default_key_serde']",
    "value_serde": "the default is app_configs['default_value_serde']",
    "state_dir": "a processor has stores, no folder",
    "app_configs_with_prefix": "app_configs has all settings, by key",
    "foreach": "its name is for_each",
    "through": "it is gone from Kafka Streams: use repartition, or to and builder.stream",
    "branch": "it is gone from Kafka Streams: use split().branch(...)",
    "transform": "it is gone from Kafka Streams: use process",
    "flat_transform": "it is gone from Kafka Streams: use process",
    "transform_values": "of streams it is gone from Kafka Streams: use process_values",
    "flat_transform_values": "it is gone from Kafka Streams: use process_values",
    "to": "a table is written by way of its stream: table.to_stream().to('topic')",
    "for_each": "a table is read by way of its stream: table.to_stream().for_each(...)",
    "peek": "a table is read by way of its stream: table.to_stream().peek(...)",
}
"""The advice for each name of Kafka Streams, in snake case."""

_STREAM = frozenset({
    "filter", "filter_not", "map", "map_values", "flat_map", "flat_map_values", "select_key", "peek", "for_each",
    "print", "process", "process_values", "split", "merge", "repartition", "to", "to_table", "group_by_key",
})  # fmt: skip
_AGGREGATES = frozenset({"count", "reduce", "aggregate"})
_OF_TABLES = _STREAM | {"to_stream", "join", "left_join", "suppress"}
_GROUPED = "grouped records are aggregated first: count, reduce and aggregate make a table, and to_stream() its stream"

OF_CLASS: Mapping[str, Mapping[frozenset[str], str]] = {
    "KStream": {_AGGREGATES: "records are grouped first: group_by_key() or group_by(...), then {name}(...)"},
    "KTable": {
        _AGGREGATES: "rows are grouped first: group_by(...), then {name}(...)",
        _STREAM: "streams have it: to_stream().{name}(...)",
    },
    "GlobalKTable": {_STREAM: "a stream is joined with it: stream.join(table, joiner, on=...)"},
    "KGroupedStream": {_OF_TABLES: _GROUPED},
    "KGroupedTable": {_OF_TABLES: _GROUPED},
    "WindowedKStream": {_OF_TABLES: _GROUPED},
    "CogroupedKStream": {_OF_TABLES: _GROUPED},
    "WindowedCogroupedKStream": {_OF_TABLES: _GROUPED},
}
"""Advice about methods that a class doesn't have but another class has, by class."""


_STORES = "get a processor's stores with get_state_store('name')"

OF_CONTEXT: Mapping[str, str] = dict.fromkeys(("store", "stores", "state_store", "get_store"), _STORES)
"""Advice about attributes of a processor's context. This advice is tried before all other advice."""


def why_missing(kind: type, name: str) -> str:
    """Return the error text for an unknown attribute of a class."""
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    said = f"{kind.__name__!r} object has no attribute {name!r}"
    if snake != name and hasattr(kind, snake):
        return f"{said}: its name is {snake}"
    if kind.__name__.endswith("Context") and snake in OF_CONTEXT:
        return f"{said}: {OF_CONTEXT[snake]}"
    for methods, advice in OF_CLASS.get(kind.__name__, {}).items():
        if snake in methods and snake not in INSTEAD:
            return f"{said}: {advice.format(name=snake)}"
    return f"{said}: {INSTEAD[snake]}" if snake in INSTEAD else said


class Explained:
    """Base class of the DSL's classes. The error for an unknown attribute says what to do instead."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(why_missing(type(self), name), name=name, obj=self)
