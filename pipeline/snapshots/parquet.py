"""Writes a store's content as Parquet, for other tools.

    <folder>/partition=<p>/store.parquet

| column | what |
|---|---|
| `key`, `value` | as the serdes read them, where that is a type of Parquet's (`TYPES`); JSON as its text; else bytes |
| `start`, `end` | of stores of windows and sessions, and where keys are windowed, as behind `suppress`; null: no end |
| `timestamp` | of stores that keep one |

*Guarantees*: the type of a column depends only on the store's spec, so that it is the same for all partitions. A file
at the URL is always complete, even if several attempts write it at the same time: each attempt writes a local file and
uploads it in one step.
*Assumes*: the store's entries come in the order of their keys. The rows are in the same order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milestones.common.errors import MilestonesError, SerializationError
from milestones.common.records import TopicPartition
from milestones.common.serdes import BYTES, Serde
from milestones.common.state.snapshots.objects import open_store
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import kind_of, layout_of
from milestones.common.typed_serdes import JsonSerde
from milestones.common.windowed import FOREVER, SessionWindowedSerde, Windowed, WindowedSerde

ROWS = 50_000
"""The number of rows in a row group."""

TYPES: Mapping[str, pa.DataType] = {
    "STRING": pa.string(),
    "SHORT": pa.int16(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "UUID": pa.string(),
    "JSON": pa.string(),
    "BOOLEAN": pa.bool_(),
}
"""The column type for each built-in serde, keyed by the serde's name. Values of other serdes are stored as bytes."""

_AS_TEXT = ("UUID", "JSON")
_TIME = pa.timestamp("ms", tz="UTC")
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def schema(spec: StoreSpec) -> pa.Schema:
    fields = [pa.field("key", _type(_key_serde(spec))), pa.field("value", _type(spec.value_serde))]
    if _windowed(spec) is not None:
        fields += [pa.field("start", _TIME), pa.field("end", _TIME)]
    if kind_of(spec).timed:
        fields.append(pa.field("timestamp", _TIME))
    if kind_of(spec).headers is not None:
        fields.append(pa.field("headers", _HEADERS))
    return pa.schema(fields)


def _type(serde: Serde[Any] | None) -> pa.DataType:
    return TYPES.get(_name(serde), pa.binary())


def _name(serde: Serde[Any] | None) -> str:
    """Return the name of a built-in serde, or an empty text for a user's serde, which may have the name of a built-in
    one.
    """
    if isinstance(serde, JsonSerde):
        return "JSON"
    return str(serde.name) if type(serde) is Serde else ""


def _key_serde(spec: StoreSpec) -> Serde[Any] | None:
    """Return the serde of keys without their windows."""
    serde = spec.key_serde
    return serde.inner if isinstance(serde, WindowedSerde | SessionWindowedSerde) else serde


def _windowed(spec: StoreSpec) -> Callable[[bytes], Windowed[bytes]] | None:
    """Return a function that splits a changelog key into the bytes of the key and the window. Keys have windows if the
    store or its serde has windows.
    """
    windowed, serde = kind_of(spec).windowed, spec.key_serde
    if windowed is not None:
        return partial(windowed, spec)
    if isinstance(serde, WindowedSerde):
        return WindowedSerde(BYTES, serde.size_ms).deserializer("")
    return SessionWindowedSerde(BYTES).deserializer("") if isinstance(serde, SessionWindowedSerde) else None


def _reader(serde: Serde[Any] | None, topic: str) -> Callable[[bytes], Any]:
    name = _name(serde)
    if serde is None or name not in TYPES:
        return bytes
    return bytes.decode if name in _AS_TEXT else serde.deserializer(topic)


def _told(read: Callable[[bytes], Any], what: str, spec: StoreSpec) -> Callable[[bytes, bytes], Any]:
    """Deserialise bytes of a row; an error names the store and the row's key."""

    def read_of(key: bytes, data: bytes) -> Any:
        try:
            return read(data)
        except (ValueError, struct.error, MilestonesError) as error:
            raise SerializationError(
                f"store {spec.name}: the {what} of key {key!r:.100} can't be read by its serde: {error}. It was "
                "written with another one, or by another program: leave --parquet out, or mend the row"
            ) from error

    return read_of


def _rows(
    spec: StoreSpec, entries: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[tuple[bytes, int, int], bytes]]:
    """Yield the key, with its window if it has one, and the local value of each row. Of a versioned store, only the
    latest values are returned.
    """
    windowed, layout = _windowed(spec), layout_of(spec)
    for local, value in entries:
        if layout.logs(local):
            key = local if layout.key_of is None else layout.key_of(local)
            yield (key, 0, 0) if windowed is None else windowed(key), value


def write_parquet(
    spec: StoreSpec,
    changelog: TopicPartition,
    entries: Iterator[tuple[bytes, bytes]],
    folder: str,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write one partition of a store below the URL `folder`. Another attempt at the same partition writes the same
    entries. `options`: the options of the object store. Raises a `SerializationError` for a row that can't be read.
    """
    columns = schema(spec)
    timestamped, windowed, rows = "timestamp" in columns.names, "start" in columns.names, _rows(spec, entries)
    key = _told(_reader(_key_serde(spec), changelog.topic), "key", spec)
    value = _told(_reader(spec.value_serde, changelog.topic), "value", spec)
    parted, headers = kind_of(spec).value, kind_of(spec).headers
    with TemporaryDirectory(prefix="milestones-parquet-") as place:
        file = Path(place, "store.parquet")
        with pq.ParquetWriter(file, columns) as writer:
            while chunk := list(islice(rows, ROWS)):
                parts = [parted(local) for _, local in chunk]
                keys = [k for (k, *_), _ in chunk]
                values = [None if v is None else value(k, v) for k, (v, _) in zip(keys, parts, strict=True)]
                data = [[key(k, k) for k in keys], values]
                if windowed:
                    data.append([start for (_, start, _), _ in chunk])
                    data.append([None if end == FOREVER else end for (_, _, end), _ in chunk])
                if timestamped:
                    data.append([time for _, time in parts])
                if headers is not None:
                    data.append([[{"name": name, "value": v} for name, v in headers(local)] for _, local in chunk])
                arrays = [pa.array(rows, field.type) for rows, field in zip(data, columns, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=columns))
        open_store(folder, options).write(f"partition={changelog.partition}/{file.name}", file)
