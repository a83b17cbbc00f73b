"""The local bytes of values with headers: what is written is read again, and Kafka Streams' bytes are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common.records import Headers
from milestones.common.state.changelog import TIMESTAMP, Log, PlainLayout, TimestampedLayout
from milestones.common.state.stores.row_headers import (
    HeadersLayout,
    TimedHeadersLayout,
    behind,
    headed,
    headers_in,
    timed_headers,
    timed_row,
    without_headers,
)
from milestones.common.varint import read_varint, varint
from tests.common.task.harness import message

NAMES = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=80)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=300)), max_size=4)
TIMES = st.integers(1, (1 << 63) - 1)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=3))
def test_a_varint_is_read_as_it_was_written(number: int, before: bytes) -> None:
    data = before + varint(number)
    assert read_varint(data + b"more", len(before)) == (number, len(data))


def test_a_varint_has_kafka_s_bytes_and_none_that_is_cut_off_is_read() -> None:
    assert [varint(number) for number in (0, -1, 1, 63, 64, -65)] == [
        b"\x00", b"\x01", b"\x02", b"\x7e", b"\x80\x01", b"\x81\x01"
    ]  # fmt: skip
    with pytest.raises(ValueError, match="cut off"):
        read_varint(b"\x80\x80")


@given(HEADERS, st.binary(max_size=20), TIMES)
def test_what_is_written_is_read(headers: Headers, value: bytes, timestamp: int) -> None:
    row = timed_row(value, timestamp, headers)
    assert (timed_headers(row), without_headers(row)) == (headers, TIMESTAMP.pack(timestamp) + value)
    session = headed(headers) + value
    assert (headers_in(session), session[behind(session) :]) == (headers, value)


def test_a_row_without_headers_has_the_bytes_of_a_store_without_them() -> None:
    (plain,) = TimestampedLayout().restored([message(0, b"k", b"v", 5)]).values()
    assert timed_row(b"v", 5, None) == timed_row(b"v", 5, []) == plain


def test_headers_have_kafka_streams_bytes() -> None:
    # The size, two headers, a name of one byte, a value of two, a name of one byte, no value.
    assert headed([("a", b"xy"), ("b", None)]) == b"\x12\x04\x02a\x04xy\x02b\x01"
    assert headed([]) == headed(None) == b"\x00"


def logging_to(logged: list[tuple[Any, ...]]) -> Log:
    return lambda *fields: logged.append(fields)


@given(HEADERS, st.binary(max_size=20) | st.none())
def test_a_changelog_record_restores_the_row_that_is_logged_as_it(headers: Headers, value: bytes | None) -> None:
    for layout in (TimedHeadersLayout(), HeadersLayout()):
        logged: list[tuple[Any, ...]] = []
        ((key, local),) = layout.restored([message(0, b"k", value, 5, headers=headers)]).items()
        layout.log_stored(logging_to(logged), key, local, 5)
        ((key, restored, timestamp, *rest),) = logged
        assert (key, restored, timestamp) == (b"k", value, 5)
        assert ([] if value is None else headers) == (rest[0] if rest and rest[0] else [])


def test_records_without_a_key_are_passed_over() -> None:
    for layout in (TimedHeadersLayout(), HeadersLayout(), PlainLayout()):
        assert layout.restored([message(0, None, b"v", 5, headers=[("h", b"")])]) == {}
