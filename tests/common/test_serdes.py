"""Serdes: Kafka's bytes (topology/reference/Bytes.java wrote the expected ones), and clear errors."""

from __future__ import annotations

import json
import math
import pickle
import re
import uuid
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common import serdes
from milestones.common.errors import SerializationError
from milestones.common.records import StaleChange, is_latest
from milestones.common.serdes import Serde, list_serde
from milestones.common.topology.change import ChangeSerde

A_UUID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
CHANGES = ChangeSerde(serdes.STRING)
VALUES: dict[str, tuple[Serde[Any], Any]] = {
    "STRING": (serdes.STRING, "Grüße 😀"),
    "BYTES": (serdes.BYTES, b"\x00\x01\xff"),
    "SHORT": (serdes.SHORT, -2),
    "INTEGER": (serdes.INTEGER, -123456789),
    "LONG": (serdes.LONG, 1234567890123456789),
    "FLOAT": (serdes.FLOAT, -1.5),
    "DOUBLE": (serdes.DOUBLE, 0.1),
    "UUID": (serdes.UUID, A_UUID),
    "LIST(LONG)": (list_serde(serdes.LONG), [1, None, -3, None]),
    "LIST(STRING)": (list_serde(serdes.STRING), ["a", None, "", "bc"]),
    "LIST(UUID)": (list_serde(serdes.UUID), [A_UUID]),
    "LIST(LIST(SHORT))": (list_serde(list_serde(serdes.SHORT)), [[7], []]),
    "LIST(BYTES)": (list_serde(serdes.BYTES), []),
    "CHANGE(new)": (CHANGES, ("new", None)),
    "CHANGE(old)": (CHANGES, (None, "old")),
    "CHANGE(both)": (CHANGES, ("new", "old")),
    "CHANGE(long)": (CHANGES, ("x" * 300, "old")),
}
LINES = (Path(__file__).parent / "topology/expected/bytes.tsv").read_text().splitlines()
EXPECTED = {what: bytes.fromhex(data) for what, data in (line.split("\t") for line in LINES)}


@pytest.mark.parametrize("what", EXPECTED)
def test_values_are_written_and_read_as_kafka_s_own_bytes(what: str) -> None:
    serde, value = VALUES[what]
    assert serde.serialize("topic", value) == EXPECTED[what]
    assert serde.deserialize("topic", EXPECTED[what]) == value


@pytest.mark.parametrize("serde", [*(serde for serde, _ in VALUES.values()), serdes.JSON, serdes.VOID])
def test_none_is_kafka_s_null_for_every_serde(serde: Serde[Any]) -> None:
    assert serde.serialize("topic", None) is None
    assert serde.deserialize("topic", None) is None


@pytest.mark.parametrize("what", [*VALUES, "JSON"])
def test_bytes_that_are_kept_take_the_memory_of_their_length(what: str) -> None:
    """Outputs, and rows that wait for a commit, are kept by the hundred thousand."""
    serde, value = VALUES.get(what, (serdes.JSON, {"count": 1, "sum": 2}))
    before = psutil.Process().memory_info().rss
    kept = [serde.serialize("topic", value) for _ in range(20_000)]
    length = len(kept[0] or b"")
    assert psutil.Process().memory_info().rss - before < 20_000 * (length + 500)


def test_json_is_compact_utf_8() -> None:
    value = {"a": [1, 2.5, None, True], "ü": "😀"}
    data = serdes.JSON.serialize("topic", value)
    assert data == '{"a":[1,2.5,null,true],"ü":"😀"}'.encode()
    assert serdes.JSON.deserialize("topic", data) == value


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.STRING, 5),
        (serdes.STRING, b"raw"),
        (serdes.BYTES, "text"),
        (serdes.BYTES, 5),
        (serdes.LONG, "5"),
        (serdes.LONG, 1.5),
        (serdes.LONG, 2**63),
        (serdes.INT, 2**31),
        (serdes.SHORT, 2**15),
        (serdes.FLOAT, 1e300),
        (serdes.UUID, str(A_UUID)),
        (serdes.JSON, object()),
        (serdes.VOID, 0),
        (list_serde(serdes.LONG), ["a"]),
        (list_serde(serdes.LONG), 5),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(serde: Serde[Any], value: Any) -> None:
    with pytest.raises(SerializationError, match=re.escape(f"serde {serde.name} can't write")) as info:
        serde.serialize("orders", value)
    assert "orders" in str(info.value)
    assert type(value).__name__ in str(info.value)


@dataclass(frozen=True)
class Quote:
    price: float


class Limit(Enum):
    NONE = math.inf


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (math.nan, "nan"),
        ({"rates": [1.0, -math.inf]}, "-inf (at rates[1])"),
        ({"a": {"b": (None, math.nan)}}, "nan (at a.b[1])"),
        ([Quote(math.inf)], "inf (at [0].price)"),
        ({"limit": Limit.NONE}, "inf (at limit)"),
    ],
)
def test_json_names_a_number_that_it_cannot_write(value: Any, named: str) -> None:
    """It would be null, that is: absent, or another type, when it is read."""
    with pytest.raises(SerializationError, match=re.escape(f"JSON has no {named}: ")):
        serdes.JSON.serialize("orders", value)


def test_json_writes_what_is_absent_and_the_word_null() -> None:
    value = {"a": None, "b": [None, 1.5], "c": "null", "null": Quote(2.0)}
    assert serdes.JSON.serialize("orders", value) == b'{"a":null,"b":[null,1.5],"c":"null","null":{"price":2.0}}'


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (serdes.STRING, b"\xff"),
        (serdes.LONG, b""),
        (serdes.LONG, b"1234567"),
        (serdes.SHORT, b"123"),
        (serdes.DOUBLE, b"1234"),
        (serdes.UUID, b"not a uuid"),
        (serdes.JSON, b"{"),
        (serdes.VOID, b""),
        (list_serde(serdes.LONG), b""),
        (list_serde(serdes.LONG), b"\x02\0\0\0\0"),
        (list_serde(serdes.LONG), bytes.fromhex("00 00000000 00000002 0000000000000001")),
        (list_serde(serdes.LONG), bytes.fromhex("00 7fffffff")),
        (list_serde(serdes.STRING), bytes.fromhex("00 00000000 00000000")),
        (list_serde(serdes.STRING), bytes.fromhex("01 00000001 00000005 61")),
        (list_serde(serdes.STRING), bytes.fromhex("01 00000001 fffffffe")),
        (list_serde(serdes.STRING), bytes.fromhex("01 ffffffff")),
        (CHANGES, b""),
        (CHANGES, b"x\x06"),
        (CHANGES, b"x\x02\x04"),
        (CHANGES, b"\x80\x80\x02"),
    ],
)
def test_bytes_of_another_format_are_refused_by_name(serde: Serde[Any], data: bytes) -> None:
    with pytest.raises(SerializationError, match="can't read"):
        serde.deserialize("orders", data)


def test_an_update_without_any_value_is_refused() -> None:
    with pytest.raises(SerializationError, match="a new or an old value"):
        CHANGES.serialize("topic", (None, None))


@pytest.mark.parametrize(
    ("data", "change", "latest"),
    [
        (b"old\x01\x03", (None, "old"), True),
        (b"new\x00\x04", ("new", None), False),
        (b"\x06newold\x01\x05", ("new", "old"), True),
        (b"\x06newold\x00\x05", ("new", "old"), False),
        (b"new\x01", ("new", None), True),
    ],
)
def test_an_update_says_whether_it_is_the_latest_of_its_key(data: bytes, change: object, latest: bool) -> None:
    read = CHANGES.deserialize("topic", data)
    assert read == change
    assert is_latest(read) is latest


def test_an_update_that_is_not_the_latest_is_written_like_any_other() -> None:
    assert CHANGES.serialize("topic", StaleChange(("new", None))) == CHANGES.serialize("topic", ("new", None))


def test_hot_paths_get_plain_functions() -> None:
    assert serdes.STRING.serializer("topic") is str.encode
    assert serdes.STRING.deserializer("topic") is bytes.decode
    assert serdes.LONG.serializer("topic")(5) == b"\0\0\0\0\0\0\0\x05"


def test_bytes_like_values_become_bytes_of_their_own() -> None:
    mine = bytearray(b"abc")
    data = serdes.BYTES.serialize("topic", mine)  # type: ignore[arg-type]
    mine[0] = 0
    assert data == b"abc"


def test_a_serde_is_made_of_two_functions() -> None:
    celsius = Serde(lambda value: f"{value}C".encode(), lambda data: float(data[:-1]), name="CELSIUS")
    assert celsius.deserialize("topic", celsius.serialize("topic", 21.5)) == 21.5
    assert not celsius.immutable
    with pytest.raises(TypeError, match="must be a function"):
        Serde("no function", bytes.decode)  # type: ignore[arg-type]


def test_a_serde_may_depend_on_the_topic() -> None:
    class Tagged(Serde[str]):
        def serializer(self, topic: str) -> Any:
            return lambda value: f"{topic}:{value}".encode()

    tagged = Tagged(str.encode, bytes.decode)
    assert tagged.serialize("t", "x") == b"t:x"


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_any_list_of_fixed_size_entries_comes_back(values: list[int | None]) -> None:
    serde = list_serde(serdes.LONG)
    assert serde.deserialize("topic", serde.serialize("topic", values)) == values


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"))))
def test_any_list_of_variable_size_entries_comes_back(values: list[str | None]) -> None:
    serde = list_serde(serdes.STRING)
    assert serde.deserialize("topic", serde.serialize("topic", values)) == values


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_any_update_comes_back(new: str, old: str) -> None:
    assert CHANGES.deserialize("topic", CHANGES.serialize("topic", (new, old))) == (new, old)


@pytest.mark.parametrize("name", [name for name in serdes.__all__ if name.isupper()])
def test_a_built_in_serde_is_the_same_one_after_a_pickle(name: str) -> None:
    serde = getattr(serdes, name)
    assert pickle.loads(pickle.dumps(serde)) is serde


def test_a_serde_made_of_named_functions_survives_a_pickle() -> None:
    made = serdes.Serde(str.encode, bytes.decode, name="MINE", immutable=True)
    again = pickle.loads(pickle.dumps(made))
    assert (again.name, again.immutable, again.serialize("t", "x")) == ("MINE", True, b"x")


NANS = [math.nan, -math.nan, math.inf - math.inf, math.copysign(math.nan, -1)]


@pytest.mark.parametrize("number", NANS, ids=lambda number: str(math.copysign(1, number)))
def test_every_nan_is_written_as_javas(number: float) -> None:
    assert serdes.DOUBLE.serialize("t", number) == bytes.fromhex("7ff8000000000000")
    assert serdes.FLOAT.serialize("t", number) == bytes.fromhex("7fc00000")
    assert list_serde(serdes.DOUBLE).serialize("t", [number]) == bytes.fromhex("0000000000000000017ff8000000000000")


UUIDS = [
    ("1-1-1-1-1", "00000001-0001-0001-0001-000000000001"),
    ("00000000-0000-0000-0000-000000000005", "00000000-0000-0000-0000-000000000005"),
    ("ABCDEF01-2345-6789-abcd-ef0123456789", "abcdef01-2345-6789-abcd-ef0123456789"),
    ("+1-1-1-1-1", "00000001-0001-0001-0001-000000000001"),
    ("123456789-1-1-1-1", "23456789-0001-0001-0001-000000000001"),
    ("7fffffffffffffff-1-1-1-1", "ffffffff-0001-0001-0001-000000000001"),
    ("1-12345-1-1-1", "00000001-2345-0001-0001-000000000001"),
    ("00000000-00000000-0000-0000-00000005", "00000000-0000-0000-0000-000000000005"),
    *[(text, None) for text in [
        "00000000000000000000000000000005", "{00000000-0000-0000-0000-000000000005}",
        "urn:uuid:00000000-0000-0000-0000-000000000005", "-1-1-1-1-1", "1--1-1-1", "1-1-1-1", "1-1-1-1-1-1", "",
        "8000000000000000-1-1-1-1", " 1-1-1-1-1", "1_0-1-1-1-1", "0x1-1-1-1-1", "g-1-1-1-1",
        "00000000-0000-0000-0000-0000000000005", "1-1-1-1-", "00000000-0000-0000-0000+000000000005", "1-1-1-1-1\n",
    ]],
]  # fmt: skip
"""What `UUID.fromString` of Java 17 gives, None for what it refuses."""


@pytest.mark.parametrize(("text", "expected"), UUIDS)
def test_a_uuid_is_read_as_java_reads_it(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(SerializationError, match="UUID"):
            serdes.UUID.deserialize("t", text.encode())
    else:
        assert str(serdes.UUID.deserialize("t", text.encode())) == expected


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 100 * 10**18, 2**200, -(10**40)])
def test_json_reads_and_writes_whole_numbers_of_any_size(number: int) -> None:
    assert serdes.JSON.deserialize("t", b"%d" % number) == number
    for value in (number, {"wei": number, "list": [{"inner": number}], "text": "x"}):
        assert serdes.JSON.deserialize("t", serdes.JSON.serialize("t", value)) == value


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner), max_leaves=10,
))  # fmt: skip
def test_json_gives_back_any_value_as_pythons_own_json_does(value: Any) -> None:
    data = serdes.JSON.serialize("t", value)
    read = serdes.JSON.deserialize("t", data)
    assert read == value
    assert data is None or repr(read) == repr(json.loads(data))


@pytest.mark.parametrize("data", [b"1e400", b'{"a":-1e400}', b"NaN", b"[Infinity]", b"01", b'"\\ud800"', b"{} x", b""])
def test_json_refuses_what_it_could_not_keep(data: bytes) -> None:
    with pytest.raises(SerializationError, match="JSON can't read"):
        serdes.JSON.deserialize("t", data)


def test_a_whole_number_of_any_size_is_written_in_a_dataclass_and_beside_a_date() -> None:
    @dataclass
    class Transfer:
        wei: int
        at: date

    data = serdes.JSON.serialize("t", {"transfer": Transfer(2**70, date(2024, 1, 2))})
    assert data == b'{"transfer":{"wei":1180591620717411303424,"at":"2024-01-02"}}'
