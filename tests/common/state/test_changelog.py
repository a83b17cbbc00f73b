"""Changelog bytes: Kafka Streams', and back into the store's."""

from __future__ import annotations

from confluent_kafka import Message

from milestones.common.records import Emitted
from milestones.common.state.changelog import PlainLayout, TimestampedLayout, changelog, not_logged
from tests.outputs import emitted


def record(key: bytes | None, value: bytes | None, timestamp: int) -> Message:
    return Message(topic="log", key=key, value=value, timestamp=(1, timestamp))


def test_a_write_is_logged_to_the_stores_partition_with_its_time_and_without_headers() -> None:
    outputs: list[Emitted] = []
    changelog("app-store-changelog", 3, "store", outputs.append)(b"k", b"v", 7)
    assert outputs == [emitted("app-store-changelog", partition=3, timestamp=7, node="store")]


def test_a_store_without_changelog_logs_nothing() -> None:
    not_logged(b"k", b"v", 7)


def test_a_timestamped_stores_values_get_the_records_time_in_front() -> None:
    batch = [record(b"a", b"1", 5), record(b"b", b"", 6)]
    assert TimestampedLayout().restored(batch) == {b"a": bytes(7) + b"\x051", b"b": bytes(7) + b"\x06"}


def test_records_without_a_key_arent_a_stores() -> None:
    for layout in (PlainLayout(), TimestampedLayout()):
        assert layout.restored([record(None, b"1", 1)]) == {}
