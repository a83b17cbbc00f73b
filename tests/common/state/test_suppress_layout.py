"""The bytes of a suppress buffer's rows: those that Kafka Streams writes, and those that its versions before wrote."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from confluent_kafka import Message

from milestones.common.errors import StateFormatError
from milestones.common.records import Headers, RecordMetadata, TopicPartition
from milestones.common.state.stores.suppress_layout import (
    VERSION_3,
    Buffered,
    Context,
    SuppressLayout,
    decoded,
    encoded,
    new_value,
    prior_of,
    size_of,
)
from tests.common.task.harness import message

CHANGELOG = TopicPartition("app-held-store-changelog", 3)
CONTEXT = Context(7, [("h", b"x"), ("n", None)], RecordMetadata("in", 3, 41))
CONTEXT_BYTES = (
    b"\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x29\0\0\0\x02in\0\0\0\x03"
    b"\0\0\0\x02\0\0\0\x01h\0\0\0\x01x\0\0\0\x01n\xff\xff\xff\xff"
)
ROW = Buffered(CONTEXT, b"p", b"old", b"new", 99)
TIME = b"\0\0\0\0\0\0\0\x63"


def record(
    value: bytes | None, version: int | None, key: bytes | None = b"k", offset: int = 12, headers: Headers | None = None
) -> Message:
    given = [*(headers or ()), *([] if version is None else [("v", bytes((version,)))])]
    return message(offset, key, value, 55, CHANGELOG.topic, given or None, CHANGELOG.partition)


def part(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def restored(*records: Message) -> dict[bytes, Any]:
    found = SuppressLayout().restored(records)
    return {key: None if data is None else decoded(data) for key, data in found.items()}


def test_a_row_has_context_prior_old_new_and_time() -> None:
    data = CONTEXT_BYTES + part(b"p") + part(b"old") + part(b"new") + TIME
    assert encoded(ROW) == data
    assert decoded(data) == ROW
    assert restored(record(data, 3)) == {b"k": ROW}
    assert VERSION_3 == [("v", b"\x03")]
    assert new_value(data) == (b"new", 7)


@pytest.mark.parametrize(
    ("prior", "old", "written"),
    [
        (b"same", b"same", part(b"same") + b"\xff\xff\xff\xfe"),
        (b"same", bytes(bytearray(b"same")), part(b"same") + b"\xff\xff\xff\xfe"),
        (None, None, part(None) + part(None)),
        (None, b"o", part(None) + part(b"o")),
        (b"p", None, part(b"p") + part(None)),
        (b"", b"", part(b"") + b"\xff\xff\xff\xfe"),
    ],
)
def test_an_old_value_that_is_the_prior_one_is_written_once(prior: Any, old: Any, written: bytes) -> None:
    row = ROW._replace(prior=prior, old=old, new=None)
    assert encoded(row) == CONTEXT_BYTES + written + part(None) + TIME
    assert decoded(encoded(row)) == row


def test_a_row_of_a_punctuation_has_no_origin() -> None:
    row = ROW._replace(context=Context(7, None, None))
    assert decoded(encoded(row)) == row


@pytest.mark.parametrize("seed", range(20))
def test_any_row_is_read_as_it_was_written(seed: int) -> None:
    chance = random.Random(seed)

    def some() -> bytes | None:
        return chance.choice([None, b"", b"\0", chance.randbytes(chance.randrange(40))])

    for _ in range(50):
        headers = [(chance.choice(["a", "é", "\U0001f600"]), some()) for _ in range(chance.randrange(4))]
        origin = RecordMetadata(chance.choice(["t", "a.b-c"]), chance.randrange(9), chance.randrange(1 << 40))
        context = Context(chance.randrange(1 << 50), headers or None, chance.choice([origin, None]))
        row = Buffered(context, some(), some(), some(), chance.randrange(1 << 60))
        assert decoded(encoded(row)) == row
        assert prior_of(encoded(row)) == row.prior


def test_sizes_are_kafka_streams() -> None:
    """Buffer time, key, timestamp, offset, partition; characters of names as UTF-16 counts them."""
    assert size_of(b"key", ROW) == 8 + 3 + (8 + 8 + 2 + 4 + (1 + 1) + 1) + 1 + 3 + 3
    assert size_of(b"", ROW._replace(prior=b"old")) == 8 + (8 + 8 + 2 + 4 + 2 + 1) + 3 + 3
    smile = Context(7, [("\U0001f600é", b"")], None)
    assert size_of(b"", Buffered(smile, None, None, None, 0)) == 8 + 8 + 8 + 4 + 3


# -- versions before


def test_version_2_has_the_values_in_one_part_and_the_prior_one_behind_it() -> None:
    data = CONTEXT_BYTES + part(part(b"old") + part(b"new")) + part(b"p") + TIME
    assert restored(record(data, 2)) == {b"k": ROW}


def test_version_3_under_the_header_of_version_2_is_read_too() -> None:
    """Kafka Streams 2.4 and 2.5.0 wrote it."""
    assert restored(record(encoded(ROW), 2)) == {b"k": ROW}
    odd = ROW._replace(prior=part(b"o") + part(b"n"))  # the prior value looks like two values
    assert restored(record(encoded(odd), 2)) == {b"k": odd}


def test_version_1_has_no_prior_value_so_that_the_first_old_value_is_it() -> None:
    def of(old: bytes | None, new: bytes | None) -> bytes:
        return TIME + CONTEXT_BYTES + part(part(old) + part(new))

    layout = SuppressLayout()
    (first,) = layout.restored([record(of(b"p", b"q"), 1)]).values()
    assert first == encoded(ROW._replace(old=b"p", new=b"q"))
    (second,) = layout.restored([record(of(b"old", b"new"), 1)]).values()
    assert second == encoded(ROW)
    layout.restored([record(None, None)])
    (third,) = layout.restored([record(of(b"old", b"new"), 1)]).values()
    assert third == encoded(ROW._replace(prior=b"old")), "the key was not kept back any more"


def test_version_0_has_no_context_but_that_of_the_changelog_s_record() -> None:
    data = TIME + part(b"old") + part(b"new")
    context = Context(55, [("h", b"x")], RecordMetadata(CHANGELOG.topic, 3, 12))
    expected = Buffered(context, b"old", b"old", b"new", 99)
    assert restored(record(data, None, headers=[("h", b"x")])) == {b"k": expected}


def test_a_deletion_removes_and_a_record_without_a_key_is_passed_over() -> None:
    layout = SuppressLayout()
    found = layout.restored([record(encoded(ROW), 3), record(encoded(ROW), 3, key=None), record(None, None)])
    assert found == {b"k": None}


def test_a_version_that_nobody_knows_is_an_error_that_says_so() -> None:
    with pytest.raises(StateFormatError, match=r"app-held-store-changelog-3@12 has version b'\\x04'.*knows 0 to 3"):
        restored(record(encoded(ROW), 4))


@pytest.mark.parametrize("version", [None, 1, 2, 3])
def test_a_record_of_something_else_is_an_error_that_says_where_it_is(version: int | None) -> None:
    for data in (b"", b"\0" * 5, encoded(ROW)[:-1], encoded(ROW) + b"\0", b"\x7f" * 60):
        with pytest.raises(StateFormatError, match="app-held-store-changelog-3@12 is no row of a suppress buffer"):
            restored(record(data, version))
