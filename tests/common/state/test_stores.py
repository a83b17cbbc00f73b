"""Key-value stores as user code sees them: what is kept, in which order, and what is refused."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import SerializationError, StateError
from milestones.common.records import TaskId
from milestones.common.serdes import Serde
from milestones.common.state.cells import Cells
from milestones.common.state.engines.memory_engine import MemoryEngines
from milestones.common.state.layers import StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.key_value_stores import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from milestones.common.state.stores.rows import REMEMBERED_BYTES, StoreParts
from milestones.common.typed_serdes import of

TEXT, LONG, JSON = serdes.STRING, serdes.LONG, serdes.JSON
SPEC = StoreSpec("store")


class Record:
    timestamp = 77
    headers = None


class Opened:
    """A store over an engine in memory."""

    def __init__(self, kind: Any = KeyValueStore, key: Serde[Any] = TEXT, value: Serde[Any] = TEXT) -> None:
        self.engine = MemoryEngines().open(Path())
        self.touched: list[Any] = []
        read_cache = ReadCache(ReadCaches())
        self.layers = StoreLayers(self.engine.open("store"), self.touched, read_cache)
        task, log, work = TaskId(0, 1), lambda *_: None, Record()
        parts = StoreParts(task, self.layers, read_cache, key, value, "log", log, work, SPEC, Cells([]))
        self.store = kind(parts)
        self.store.open()


def text(**entries: str) -> Any:
    o = Opened()
    o.store.put_all(entries.items())
    return o.store


# -- one key


def test_a_value_reads_the_same_whether_it_is_remembered_or_not() -> None:
    for serde, value in ((serdes.FLOAT, 0.1), (serdes.DOUBLE, 1), (LONG, True), (serdes.BYTES, bytearray(b"x"))):
        o = Opened(value=serde)
        o.store.put("other", 0 if serde is not serdes.BYTES else b"")
        o.store.get("other")
        o.store.put("k", value)
        first = o.store.get("k")
        o.layers.remembered.clear()
        again = o.store.get("k")
        assert (type(first), first) == (type(again), again)


@dataclasses.dataclass(frozen=True)
class Point:
    x: float


TENTHS: Serde[Any] = Serde(lambda value: f"{value:.1f}".encode(), lambda data: Decimal(data.decode()), immutable=True)


@pytest.mark.parametrize("kind", [KeyValueStore, TimestampedKeyValueStore])
@pytest.mark.parametrize(
    ("serde", "value"),
    [(of(Point), Point(1)), (of(tuple[float, float]), (1, 2)), (TENTHS, Decimal("0.123"))],
    ids=["a field of floats", "a tuple of floats", "a serde that rounds"],
)
def test_a_value_that_its_serde_changes_reads_the_same_before_and_after_a_restart(
    kind: Any, serde: Serde[Any], value: Any
) -> None:
    o = Opened(kind, value=serde)
    row = value if kind is KeyValueStore else ValueAndTimestamp(value, 1)
    o.store.put("other", row)
    o.store.get("other")
    o.store.put("k", row)
    first = repr(o.store.get("k"))
    o.layers.remembered.clear()
    assert first == repr(o.store.get("k"))


def test_keys_that_are_equal_in_python_but_not_in_bytes_are_different_keys() -> None:
    o = Opened(key=serdes.DOUBLE)
    o.store.put(0.0, "plus")
    o.store.put(-0.0, "minus")
    assert (o.store.get(0.0), o.store.get(-0.0)) == ("plus", "minus")


def test_large_values_arent_remembered() -> None:
    for serde, value in ((TEXT, "x" * 2 * REMEMBERED_BYTES), (JSON, ["x" * 2 * REMEMBERED_BYTES])):
        o = Opened(value=serde)
        o.store.put("k", value)
        o.store.get("k")
        assert o.layers.remembered.values == {}
        o.store.put("k", type(value)())
        assert o.store.get("k") == type(value)()


def test_a_key_that_isnt_there_is_looked_for_once() -> None:
    o = Opened()
    assert o.store.get("k") is None
    assert o.layers.remembered.values == {b"k": None}
    o.store.put("k", "v")
    assert o.store.get("k") == "v"


# -- many keys


def test_a_range_from_a_greater_to_a_smaller_key_is_empty_and_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    assert list(text(a="1").range("b", "a")) == []
    assert "serialised start is greater than its end" in caplog.text


# -- with timestamps


def timestamped(value: Serde[Any] = TEXT) -> Opened:
    return Opened(TimestampedKeyValueStore, value=value)


def test_a_timestamped_store_refuses_a_plain_value() -> None:
    for value in ("1", ("1", 5)):
        with pytest.raises(SerializationError, match=r"task 0_1 keeps timestamps: put a ValueAndTimestamp"):
            timestamped().store.put("a", value)


# -- errors


def test_a_key_cant_be_none() -> None:
    store = text()
    for call in (lambda: store.get(None), lambda: store.put(None, "v"), lambda: store.delete(None),
                 lambda: store.prefix_scan(None), lambda: timestamped().store.put_raw(None, "v", 1)):  # fmt: skip
        with pytest.raises(SerializationError, match=r"store store of task 0_1: \w+ with key None"):
            call()


def test_what_a_serde_refuses_is_named() -> None:
    store = text()
    with pytest.raises(SerializationError, match=r"store store of task 0_1: key: serde STRING can't write a int"):
        store.get(5)
    with pytest.raises(SerializationError, match=r"key: serde STRING can't write a int"):
        store.put(5, "v")
    with pytest.raises(SerializationError, match=r"value: serde STRING can't write a float"):
        store.put("k", 5.5)
    with pytest.raises(SerializationError, match=r"value: serde LONG can't write a str"):
        timestamped(LONG).store.put("k", ValueAndTimestamp("x", 1))
    assert list(store.all()) == []


def test_bytes_that_a_serde_cant_read_are_named() -> None:
    o = Opened(value=LONG)
    o.engine.apply({"store": {b"k": b"short"}}, {})
    with pytest.raises(SerializationError, match=r"serde LONG can't read 5 bytes"):
        o.store.get("k")


def test_a_store_is_shut_before_it_is_opened_and_after_it_is_closed() -> None:
    o = Opened()
    o.store.put("a", "1")
    for _ in range(2):
        o.store.close()
        for call in (lambda: o.store.get("a"), lambda: o.store.put("a", "1"), lambda: o.store.all(),
                     lambda: o.store.range("a"), lambda: o.store.approximate_num_entries()):  # fmt: skip
            with pytest.raises(StateError, match=r"store store of task 0_1 isn't open: use it from Processor.init on"):
                call()
    o.store.open()
    assert o.store.get("a") == "1"
