"""Records as processors see them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from milestones.common.records import (
    REPORT,
    Emitted,
    FixedKeyRecord,
    Output,
    Record,
    emitted_bytes,
    emitted_of,
    output_of,
    with_report,
)
from tests.outputs import emitted

HEADERS = [("h", b"1")]


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
def test_a_record_with_something_else_is_another_one_of_its_kind(kind: Any) -> None:
    record = kind("k", "v", 5)
    changed = record.with_value("w").with_timestamp(6).with_headers(HEADERS)
    assert type(changed) is kind
    assert (changed, record) == (kind("k", "w", 6, HEADERS), kind("k", "v", 5, []))
    assert changed.headers is not HEADERS


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
def test_each_record_without_headers_has_a_list_of_its_own(kind: Any) -> None:
    kind("k", "v", 5).headers.append(("trace", b"1"))
    assert kind("k", "v", 5).headers == []


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
def test_a_list_that_a_record_is_made_of_stays_as_it_is(kind: Any) -> None:
    constant = [("app", b"x")]
    kind("k", "v", 5, constant).headers.append(("trace", b"1"))
    assert constant == [("app", b"x")]


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
@pytest.mark.parametrize("change", [
    lambda record: record.with_value("w"),
    lambda record: record.with_timestamp(6),
    lambda record: record.with_headers(record.headers),
    lambda record: record._replace(value="w"),
    lambda record: type(record)._make(record),
])  # fmt: skip
def test_a_header_that_is_added_to_a_changed_record_is_added_to_no_other(kind: Any, change: Any) -> None:
    record = kind("k", "v", 5, HEADERS)
    change(record).headers.append(("trace", b"1"))
    assert record.headers == change(record).headers == HEADERS == [("h", b"1")]


def test_a_header_that_is_added_to_a_record_with_another_key_is_added_to_no_other() -> None:
    record = Record("k", "v", 5, HEADERS)
    record.with_key("l").headers.append(("trace", b"1"))
    assert record.headers == HEADERS


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
def test_a_record_that_was_pickled_is_the_same(kind: Any) -> None:
    record = kind("k", "v", 5, HEADERS)
    assert pickle.loads(pickle.dumps(record)) == record


def test_only_a_record_whose_key_isn_t_fixed_can_get_another_key() -> None:
    assert Record("k", "v", 5).with_key("l") == Record("l", "v", 5)
    assert not hasattr(FixedKeyRecord, "with_key")


@pytest.mark.parametrize("period", range(1, 12))
@pytest.mark.parametrize("records", [10, 100, 999, 4_096, 30_000])
def test_the_memory_of_outputs_is_counted_about_right_where_each_record_has_a_large_one_among_small_ones(
    period: int, records: int
) -> None:
    """Also where those of a sample would all be small ones, or large ones, at regular distances."""
    outputs = [emitted("topic", bytes(0 if number % period else 10_000)) for number in range(period * records)]
    assert 0.5 < emitted_bytes(outputs) / emitted_bytes_of_all(outputs) < 2


def emitted_bytes_of_all(outputs: list[Emitted]) -> int:
    return sum(emitted_bytes([output]) for output in outputs)


def test_the_memory_of_an_output_is_that_of_its_key_and_its_value_and_some_more() -> None:
    def bytes_of(key: bytes | None, value: bytes | None) -> int:
        return emitted_bytes([emitted("topic" * 10, value, key=key, node="node" * 10)])

    assert bytes_of(b"k" * 30, b"v" * 500) == bytes_of(None, None) + 530


def test_an_output_has_the_same_fields_with_names_and_as_a_tuple() -> None:
    output = Output("topic", 3, b"key", b"value", 5, [("h", b"1")], "node")
    assert output_of(emitted_of(output)) == output
    (reporting,) = with_report([emitted_of(output)], print)
    assert reporting[REPORT] is print
    assert output_of(reporting) == output
