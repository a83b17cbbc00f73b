"""A store's content as Parquet files: without Kafka and Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from milestones.common import serdes
from milestones.common.errors import SerializationError
from milestones.common.records import RecordMetadata, TopicPartition
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.state.stores.kinds import layout_of
from milestones.common.state.stores.suppress_layout import Buffered, Context, encoded
from milestones.common.typed_serdes import of
from milestones.common.windowed import END_AND_START, START_AND_SEQUENCE, SessionWindowedSerde, WindowedSerde
from milestones.pipeline.snapshots.parquet import write_parquet
from tests.common.task.harness import message

SPEC = StoreSpec("counts", key_serde=serdes.STRING, value_serde=serdes.STRING)
CHANGELOG = TopicPartition("app-counts-changelog", 0)
ENTRIES = [(b"a", b"1"), (b"b", b"2")]


class KilledError(Exception):
    """An attempt that doesn't come to its end."""


def content(folder: Path) -> list[dict[str, str]]:
    """What a reader finds, who passes hidden files over."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [row for path in files for row in pq.read_table(path, columns=["key", "value"]).to_pylist()]


WHOLE = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]


def test_an_attempt_that_dies_beside_one_that_is_done_leaves_its_file_whole(tmp_path: Path) -> None:
    def killed() -> Iterator[tuple[bytes, bytes]]:
        yield ENTRIES[0]
        write_parquet(SPEC, CHANGELOG, iter(ENTRIES), tmp_path.as_uri())
        raise KilledError

    with pytest.raises(KilledError):
        write_parquet(SPEC, CHANGELOG, killed(), tmp_path.as_uri())
    assert content(tmp_path) == WHOLE


def test_a_second_attempt_that_is_done_later_changes_nothing_and_meanwhile_hides_nothing(tmp_path: Path) -> None:
    write_parquet(SPEC, CHANGELOG, iter(ENTRIES), tmp_path.as_uri())

    def second() -> Iterator[tuple[bytes, bytes]]:
        assert content(tmp_path) == WHOLE
        yield from ENTRIES
        assert content(tmp_path) == WHOLE

    write_parquet(SPEC, CHANGELOG, second(), tmp_path.as_uri())
    assert content(tmp_path) == WHOLE


def test_what_is_half_done_is_not_there(tmp_path: Path) -> None:
    def killed() -> Iterator[tuple[bytes, bytes]]:
        yield ENTRIES[0]
        raise KilledError

    with pytest.raises(KilledError):
        write_parquet(SPEC, CHANGELOG, killed(), tmp_path.as_uri())
    assert list(tmp_path.rglob("*.parquet")) == []


def test_rows_of_windows_have_their_keys_and_their_windows_once(tmp_path: Path) -> None:
    spec = StoreSpec(
        "counts", "timestamped-window", key_serde=serdes.STRING, value_serde=serdes.LONG, retention_ms=100_000,
        window_ms=10, closing=True,
    )  # fmt: skip
    record = message(0, b"k" + START_AND_SEQUENCE.pack(70_000, 0), (7).to_bytes(8, "big"), 70_005)
    entries = layout_of(spec).restored([record])
    write_parquet(spec, CHANGELOG, iter(sorted(entries.items())), tmp_path.as_uri())
    (row,) = pq.read_table(tmp_path / "partition=0" / "store.parquet").to_pylist()
    times = {name: int(row.pop(name).timestamp() * 1000) for name in ("start", "end", "timestamp")}
    assert (row.pop("key"), row.pop("value")) == ("k", 7)
    assert times == {"start": 70_000, "end": 70_010, "timestamp": 70_005}


def test_updates_that_are_kept_back_have_the_values_that_will_be_sent(tmp_path: Path) -> None:
    spec = StoreSpec("held", "suppress", key_serde=serdes.STRING, value_serde=serdes.LONG)
    context = Context(70_005, [("h", b"x")], RecordMetadata("in", 0, 4))
    rows = [
        (b"a", encoded(Buffered(context, None, None, (7).to_bytes(8, "big"), 70_000))),
        (b"b", encoded(Buffered(context, None, (1).to_bytes(8, "big"), None, 70_000))),
    ]
    write_parquet(spec, CHANGELOG, iter(rows), tmp_path.as_uri())
    found = pq.read_table(tmp_path / "partition=0" / "store.parquet").to_pylist()
    times = {int(row.pop("timestamp").timestamp() * 1000) for row in found}
    assert (found, times) == ([{"key": "a", "value": 7}, {"key": "b", "value": None}], {70_005})


@pytest.mark.parametrize("kind", ["timestamped-key-value-with-headers", "session-with-headers"])
def test_rows_with_headers_have_them_in_a_column(tmp_path: Path, kind: StoreKind) -> None:
    session = kind.startswith("session")
    spec = StoreSpec("rows", kind, key_serde=serdes.STRING, value_serde=serdes.LONG, retention_ms=9 if session else 0)
    key = b"k" + END_AND_START.pack(70_005, 70_000) if session else b"k"
    headers = [("h", b"x"), ("none", None)]
    entries = layout_of(spec).restored([message(0, key, (7).to_bytes(8, "big"), 70_005, headers=headers)])
    write_parquet(spec, CHANGELOG, iter(sorted(entries.items())), tmp_path.as_uri())
    (row,) = pq.read_table(tmp_path / "partition=0" / "store.parquet").to_pylist()
    assert (row["key"], row["value"]) == ("k", 7)
    assert row["headers"] == [{"name": "h", "value": b"x"}, {"name": "none", "value": None}]
    assert ("timestamp" in row) is not session


def test_a_versioned_store_has_the_latest_value_of_each_key(tmp_path: Path) -> None:
    spec = StoreSpec(
        "prices", "versioned", key_serde=serdes.STRING, value_serde=serdes.LONG, retention_ms=100_000
    )
    records = [message(at, b"k", at.to_bytes(8, "big"), 70_000 + at) for at in (1, 3, 2)]
    entries = layout_of(spec).restored(records)
    assert len(entries) > 3, "older versions, too"
    write_parquet(spec, CHANGELOG, iter(sorted(entries.items())), tmp_path.as_uri())
    (row,) = pq.read_table(tmp_path / "partition=0" / "store.parquet").to_pylist()
    assert int(row.pop("timestamp").timestamp() * 1000) == 70_003
    assert row == {"key": "k", "value": 3}


def test_an_lru_store_has_its_entries_and_not_their_order(tmp_path: Path) -> None:
    spec = StoreSpec("latest", "lru", key_serde=serdes.STRING, value_serde=serdes.LONG, max_entries=5)
    entries = layout_of(spec).restored([message(at, b"k", at.to_bytes(8, "big"), 5) for at in (1, 2)])
    write_parquet(spec, CHANGELOG, iter(sorted(entries.items())), tmp_path.as_uri())
    assert pq.read_table(tmp_path / "partition=0" / "store.parquet").to_pylist() == [{"key": "k", "value": 2}]


def test_records_that_wait_for_a_join_have_their_keys_and_times(tmp_path: Path) -> None:
    spec = StoreSpec("joining-Buffer", "join-buffer", key_serde=serdes.STRING, value_serde=serdes.LONG)
    row = Buffered(Context(70_005, None, RecordMetadata("in", 0, 4)), None, None, (7).to_bytes(8, "big"), 0)
    place = b"\x00" + (70_005).to_bytes(8, "big") + b"k" + (1).to_bytes(4, "big")
    write_parquet(spec, CHANGELOG, iter([(place, encoded(row))]), tmp_path.as_uri())
    (found,) = pq.read_table(tmp_path / "partition=0" / "store.parquet").to_pylist()
    assert (found["key"], found["value"]) == ("k", 7)
    assert int(found["timestamp"].timestamp() * 1000) == int(found["start"].timestamp() * 1000) == 70_005


@dataclass
class Order:
    cents: int


@pytest.mark.parametrize(
    ("type_", "data", "found"),
    [
        (bool, b"\x01", True),
        (Order, b'{"cents":5}', '{"cents":5}'),
        (dict[str, int], b'{"a":5}', '{"a":5}'),
        (dict, b'{"a":5}', '{"a":5}'),
    ],
)
def test_values_of_python_types_can_be_read_by_anybody(
    tmp_path: Path, type_: Any, data: bytes, found: object
) -> None:
    spec = replace(SPEC, value_serde=of(type_))
    write_parquet(spec, CHANGELOG, iter([(b"a", data)]), tmp_path.as_uri())
    assert pq.read_table(tmp_path / "partition=0" / "store.parquet").to_pylist() == [{"key": "a", "value": found}]


@pytest.mark.parametrize(
    ("serde", "tail"),
    [
        (WindowedSerde(serdes.STRING, 10), (70_000).to_bytes(8, "big")),
        (SessionWindowedSerde(serdes.STRING), END_AND_START.pack(70_010, 70_000)),
    ],
)
def test_windowed_keys_of_a_suppression_have_their_windows_beside_them(
    tmp_path: Path, serde: Any, tail: bytes
) -> None:
    spec = StoreSpec("held", "suppress", key_serde=serde, value_serde=serdes.LONG)
    row = Buffered(Context(70_005, None, RecordMetadata("in", 0, 4)), None, None, (7).to_bytes(8, "big"), 0)
    write_parquet(spec, CHANGELOG, iter([(b"k" + tail, encoded(row))]), tmp_path.as_uri())
    (found,) = pq.read_table(tmp_path / "partition=0" / "store.parquet").to_pylist()
    times = {name: int(found[name].timestamp() * 1000) for name in ("start", "end")}
    assert (found["key"], found["value"], times) == ("k", 7, {"start": 70_000, "end": 70_010})


@pytest.mark.parametrize(("key", "value", "what"), [(b"k", b"\xff", "value"), (b"\xff", b"v", "key")])
def test_a_row_that_is_no_text_is_told_with_its_store_and_key(
    tmp_path: Path, key: bytes, value: bytes, what: str
) -> None:
    with pytest.raises(SerializationError, match=rf"store counts: the {what} of key {re.escape(repr(key))} can't"):
        write_parquet(SPEC, CHANGELOG, iter([(key, value)]), tmp_path.as_uri())
