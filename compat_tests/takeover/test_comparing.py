"""The comparison of a take-over with Java alone: each fault is planted, and found."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence

import pytest

from compat_tests.harness.cluster import TopicDetails
from compat_tests.oracles.findings import kinds
from compat_tests.oracles.rows import Place, Row
from compat_tests.takeover import comparing
from compat_tests.takeover.comparing import Metadata
from compat_tests.takeover.parts import PARTS, Part, Repeats
from milestones.common.task.metadata import offset_entry, topic_entry

IN = Place("in", 0)
BORROWS = PARTS["outer-join"]
OWN = PARTS["windows"]


def rows(*values: bytes | None, key: bytes = b"k", header: bytes = b"x") -> list[Row]:
    return [Row("out", 0, at, key, value, 7 + at, (("origin", header),)) for at, value in enumerate(values)]


# -- outputs

ALONE = rows(b"1", b"2", b"3")
WRONG: dict[str, list[Row]] = {
    "one is missing": rows(b"1", b"3"),
    "one is repeated": rows(b"1", b"2", b"2", b"3"),
    "two are in another order": rows(b"2", b"1", b"3"),
    "another key too": ALONE + rows(b"1", key=b"other"),
    "none": [],
    "another time": [row._replace(timestamp=row.timestamp + 1) for row in ALONE],
    "another partition": [row._replace(partition=1) for row in ALONE],
    "another header": rows(b"1", b"2", b"3", header=b"y"),
}


@pytest.mark.parametrize("found", WRONG.values(), ids=WRONG)
def test_records_of_a_key_must_be_the_same_in_their_order(found: Sequence[Row]) -> None:
    assert kinds(comparing.same_outputs("part", OWN, ALONE, found)) == {"output"}


def test_the_order_of_two_keys_is_free() -> None:
    one, other = rows(b"1", b"2"), [row._replace(offset=row.offset + 10) for row in rows(b"1", key=b"other")]
    later = [row._replace(offset=row.offset + 20) for row in one]
    assert comparing.same_outputs("part", OWN, one + other, later + other) == []


def test_headers_may_differ_only_where_they_are_borrowed() -> None:
    assert comparing.same_outputs("part", BORROWS, ALONE, WRONG["another header"]) == []
    assert kinds(comparing.same_outputs("part", BORROWS, ALONE, WRONG["one is missing"])) == {"output"}


@pytest.mark.parametrize(
    ("repeats", "found", "right"),
    [
        ("keys", rows(b"1", b"2", b"1", b"2", b"3"), True),
        ("keys", [], False),
        ("last", rows(b"1", b"2", b"1", b"2", b"3"), True),
        ("last", rows(b"1", b"2", b"3", b"2"), False),
        ("last", [], False),
        ("at-least", rows(b"1", b"4"), True),
        ("at-least", rows(b"1", b"2"), False),
    ],
)  # fmt: skip
def test_what_was_processed_twice_must_not_be_lost(repeats: Repeats, found: Sequence[Row], right: bool) -> None:
    part = Part(OWN.build, repeats=repeats)
    assert kinds(comparing.repeated_outputs("part", part, ALONE, found)) == (set() if right else {"output"})


# -- changelogs


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (rows(b"9", b"3"), False),  # another time
        (rows(b"9", b"9", b"3"), True),
        (rows(b"1", b"2", None), False),
        (rows(b"1", b"2", b"4"), False),
        (ALONE + rows(b"1", key=b"other"), False),
        (ALONE + rows(b"1", None, key=b"other"), True),
    ],
)
def test_the_last_row_of_each_key_must_be_the_same(found: Sequence[Row], right: bool) -> None:
    assert kinds(comparing.same_changelog("rows", ALONE, found)) == (set() if right else {"changelog"})


def test_rows_that_wait_in_a_suppression_have_no_time_of_their_own() -> None:
    alone, found = ([Row("held", 0, 1, b"k", b"v", time, (("v", b"\3"),))] for time in (5, 6))
    assert comparing.same_changelog("held", alone, found) == []
    other = [row._replace(value=b"w") for row in found]
    assert kinds(comparing.same_changelog("held", alone, other)) == {"changelog"}


def joined(number: int, value: bytes | None = b"v", time: int = 7) -> Row:
    return Row("log", 0, number, b"key" + struct.pack(">qi", time, number), value, time)


@pytest.mark.parametrize(
    ("found", "right"),
    [
        ([joined(2), joined(1)], True),
        ([joined(1), joined(5)], True),
        ([joined(1), joined(2), joined(3, None)], True),
        ([joined(1)], False),
        ([joined(1), joined(2), joined(3)], False),
        ([joined(1), joined(2, b"w")], False),
    ],
)
def test_joined_records_must_all_be_there_whatever_tells_equal_ones_apart(found: Sequence[Row], right: bool) -> None:
    alone = [joined(1), joined(2)]
    assert kinds(comparing.same_log("log", alone, found)) == (set() if right else {"changelog"})


def test_of_records_that_wait_the_numbers_may_differ() -> None:
    alone = [joined(1), joined(2), joined(2, None)]
    assert comparing.same_buffer("buffer", alone, [joined(7, time=7)]) == []
    for wrong in ([], [joined(1, b"w")], [joined(1, time=8)], [joined(1), joined(2)]):
        assert kinds(comparing.same_buffer("buffer", alone, wrong)) == {"changelog"}


# -- committed offsets


def encoded(time: int, **numbers: int) -> str:
    entries = b"".join(
        struct.pack(">i", len(name)) + name.encode() + struct.pack(">q", number) for name, number in numbers.items()
    )
    count = struct.pack(">i", len(numbers)) if numbers else b""
    return base64.b64encode(struct.pack(">bq", 2, time) + count + entries).decode()


def test_metadata_are_read_as_kafka_streams_writes_them() -> None:
    assert Metadata.read(encoded(5)) == Metadata(5, {})
    assert Metadata.read(encoded(5, counts=3, other=-1)) == Metadata(5, {"counts": 3, "other": -1})
    with pytest.raises(ValueError, match="version 7"):
        Metadata.read(base64.b64encode(struct.pack(">bq", 7, 0)).decode())
    with pytest.raises(ValueError):
        Metadata.read(encoded(5) + "\0")


def test_our_own_number_is_none_of_those_that_are_compared() -> None:
    own = {f"{comparing.OURS}app-1": 9, f"{comparing.TIMES}abcdefg": 4}
    alone, found = Metadata(5, {"counts": 3}), Metadata(5, {"counts": 3, **own})
    assert comparing.same_metadata({IN: alone}, {IN: found}) == []
    for wrong in (Metadata(6, {"counts": 3}), Metadata(5, {"counts": 2}), Metadata(5, {})):
        assert kinds(comparing.same_metadata({IN: alone}, {IN: wrong})) == {"metadata"}
    assert kinds(comparing.same_metadata({IN: alone}, {})) == {"metadata"}


@pytest.mark.parametrize("after", [Metadata(4, {"counts": 3}), Metadata(5, {"counts": 2}), Metadata(5, {})])
def test_no_leg_may_put_the_metadata_back(after: Metadata) -> None:
    assert kinds(comparing.metadata_kept({IN: Metadata(5, {"counts": 3})}, {IN: after})) == {"metadata"}
    assert comparing.metadata_kept({IN: Metadata(4, {})}, {IN: Metadata(5, {"counts": 2})}) == []
    waits = f"{comparing.TIMES}abcdefg"
    assert comparing.metadata_kept({IN: Metadata(4, {waits: 9})}, {IN: Metadata(5, {waits: 2})}) == []
    for entry in (topic_entry, offset_entry):
        own, other = entry(IN.topic), entry("another")
        assert comparing.metadata_kept({IN: Metadata(4, {other: 9})}, {IN: Metadata(5, {})}) == []
        assert kinds(comparing.metadata_kept({IN: Metadata(4, {own: 9})}, {IN: Metadata(5, {})})) == {"metadata"}


# -- topics and positions

TOPIC = TopicDetails("id", 2, {"cleanup.policy": "compact"})


@pytest.mark.parametrize(
    "after",
    [
        [],
        [("a", TOPIC), ("b", TOPIC)],
        [("a", TOPIC._replace(id="another"))],
        [("a", TOPIC._replace(settings={"cleanup.policy": "compact", "retention.ms": "1"}))],
    ],
)
def test_an_internal_topic_must_stay_as_it_is(after: Sequence[tuple[str, TopicDetails]]) -> None:
    assert comparing.same_topics({"a": TOPIC}, {"a": TOPIC}) == []
    assert kinds(comparing.same_topics({"a": TOPIC}, dict(after))) == {"topics"}


def test_limits_of_an_internal_topic_may_only_be_raised() -> None:
    tight, wide = ({"retention.ms": "5"}, {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)})
    before, after = ({"a": TOPIC._replace(settings=settings)} for settings in (tight, wide))
    assert comparing.same_topics(before, after) == []
    assert kinds(comparing.same_topics(after, before)) == {"topics"}


def test_a_leg_may_not_begin_before_the_committed_offset() -> None:
    assert comparing.begins_there({IN: 5}, {IN: 5, Place("in", 1): 0}) == []
    assert kinds(comparing.begins_there({IN: 5}, {IN: 4})) == {"read-again"}
