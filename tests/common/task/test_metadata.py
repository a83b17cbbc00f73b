"""Offset metadata: Kafka Streams' bytes, and nothing that can stop a start."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common.task.metadata import (
    COMMIT_PREFIX,
    OffsetMetadata,
    OffsetMetadataError,
    topic_entry,
    written_ids,
    written_mark,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


def test_stream_time_alone_is_what_kafka_streams_writes() -> None:
    # TopicPartitionMetadata(1000, new ProcessorMetadata()).encode()
    assert OffsetMetadata(1000).encode() == base64.b64encode(b"\x02" + (1000).to_bytes(8, "big")).decode()


def test_entries_are_laid_out_as_kafka_streams_processor_metadata() -> None:
    entry = b"\x00\x00\x00\x01" + b"\x00\x00\x00\x03key" + (7).to_bytes(8, "big")
    data = b"\x02" + (5).to_bytes(8, "big") + entry
    assert OffsetMetadata(5, others={"key": 7}).encode() == base64.b64encode(data).decode()


def test_version_1_of_kafka_streams_gives_its_stream_time() -> None:
    assert OffsetMetadata.decode(base64.b64encode(b"\x01" + (9).to_bytes(8, "big")).decode()) == OffsetMetadata(9)


@given(INT64, st.integers(1, 2**63 - 1), st.text(max_size=40), st.dictionaries(st.text(max_size=9), INT64, max_size=5))
def test_what_is_written_is_read_again(time: int, commit: int, transactional_id: str, others: dict[str, int]) -> None:
    others = {name: value for name, value in others.items() if not name.startswith(COMMIT_PREFIX)}
    data = OffsetMetadata(time, commit, transactional_id, others)
    assert OffsetMetadata.decode(data.encode()) == data


def test_each_offset_says_which_topic_it_belongs_to_in_at_most_fifty_bytes() -> None:
    plain, data = OffsetMetadata(5, 3, "tx"), OffsetMetadata(5, 3, "tx", topics={topic_entry("orders"): -7})
    read = OffsetMetadata.decode(data.encode())
    assert (read.topic_id("orders"), read.topic_id("others")) == (-7, None)
    assert len(data.encode()) - len(plain.encode()) <= 50
    assert len(topic_entry("x" * 249)) == len(topic_entry(""))


def test_ids_of_other_topics_which_kafka_streams_hands_on_are_no_entries_of_processors() -> None:
    topics = {topic_entry("one"): 1, topic_entry("two"): 2}
    read = OffsetMetadata.decode(OffsetMetadata(5, 3, "tx", {"key": 7}, topics).encode())
    assert (read.others, read.topics) == ({"key": 7}, topics)


def test_an_offset_says_nothing_of_its_topic_where_another_program_has_merged_what_is_said_of_several() -> None:
    """A release that hands on all entries gives each partition those of the others: what it hands on of a topic
    that was deleted, and whose offsets were dropped with it, is of the former one."""
    merged = OffsetMetadata(5, 3, "tx", topics={topic_entry("one"): 1, topic_entry("two"): 2})
    assert OffsetMetadata.decode(merged.encode()).topic_id("one") is None
    assert OffsetMetadata(5, 3, "tx", topics={topic_entry("one"): 1}).topic_id("one") == 1


def test_each_internal_topic_that_a_task_writes_to_costs_eleven_bytes_and_is_known_by_its_id() -> None:
    marks = frozenset(written_mark(f"app-store-{number}-changelog", number) for number in range(50))
    data, plain = OffsetMetadata(5, 3, "tx", {"key": 7}, written=marks), OffsetMetadata(5, 3, "tx", {"key": 7})
    read = OffsetMetadata.decode(data.encode())
    assert read == data
    assert written_ids("app-store-7-changelog", read.written) == {written_mark("app-store-7-changelog", 7)}
    assert written_ids("app-store-50-changelog", read.written) == frozenset()
    assert len(data.encode()) - len(plain.encode()) <= 50 * 11 + 50
    other = OffsetMetadata(5, 3, "tx", {"key": 7}, written=frozenset(written_mark(f"x{n}", None) for n in range(50)))
    assert len(other.encode()) == len(data.encode()), "of one length, whatever topics are called"


@pytest.mark.parametrize("text", ["", "hello", "!!!", "AgAA", base64.b64encode(b"\x09" + bytes(8)).decode()])
def test_what_cant_be_read_says_nothing(text: str) -> None:
    assert OffsetMetadata.decode(text) == OffsetMetadata()


@given(st.binary(max_size=60))
def test_no_bytes_can_make_decoding_fail(data: bytes) -> None:
    OffsetMetadata.decode(base64.b64encode(b"\x02" + data).decode())


def processors(count: int) -> dict[str, int]:
    """Entries as Kafka Streams' windowed aggregations leave them, by their generated names."""
    return {f"KSTREAM-AGGREGATE-{index:010d}": index for index in range(count)}


LONGEST_ID = f"{'a' * 249}-{'b' * 36}-StreamThread-9999"


def test_the_entries_of_fifty_processors_fit_beside_our_own() -> None:
    data = OffsetMetadata(5, 3, LONGEST_ID, processors(50))
    data.check()
    assert OffsetMetadata.decode(data.encode()) == data


def test_what_doesnt_fit_is_an_error_that_says_so_and_nothing_is_left_out() -> None:
    data = OffsetMetadata(5, 3, "app-1", processors(100))
    with pytest.raises(OffsetMetadataError, match=r"100 entries .*KSTREAM-AGGREGATE-0000000000.* Kafka takes 4096"):
        data.check()
    assert OffsetMetadata.decode(data.encode()) == data


def test_our_own_entry_always_fits() -> None:
    data = OffsetMetadata(2**62, 2**62, LONGEST_ID)
    data.check()
    assert len(data.encode()) < 600


@given(INT64, INT64, st.dictionaries(st.text(max_size=9), INT64, max_size=5))
def test_the_length_depends_on_the_names_only(time: int, other: int, entries: dict[str, int]) -> None:
    changed = dict.fromkeys(entries, other)
    assert len(OffsetMetadata(time, 1, "id", entries).encode()) == len(OffsetMetadata(other, 9, "id", changed).encode())
