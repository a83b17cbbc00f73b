"""Offset metadata: Kafka Streams' bytes, and nothing that can stop a start."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common.task.metadata import COMMIT_PREFIX, MAX_BYTES, OffsetMetadata

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


@pytest.mark.parametrize("text", ["", "hello", "!!!", "AgAA", base64.b64encode(b"\x09" + bytes(8)).decode()])
def test_what_cant_be_read_says_nothing(text: str) -> None:
    assert OffsetMetadata.decode(text) == OffsetMetadata()


@given(st.binary(max_size=60))
def test_no_bytes_can_make_decoding_fail(data: bytes) -> None:
    OffsetMetadata.decode(base64.b64encode(b"\x02" + data).decode())


def test_it_stays_under_its_limit_by_leaving_out_foreign_entries_first() -> None:
    data = OffsetMetadata(5, 3, "app-1", {f"processor-{index}": index for index in range(100)})
    assert len(data.encode()) <= MAX_BYTES
    assert OffsetMetadata.decode(data.encode()) == OffsetMetadata(5, 3, "app-1")
    assert OffsetMetadata.decode(OffsetMetadata(5, 3, "x" * 2000).encode()) == OffsetMetadata(5)
