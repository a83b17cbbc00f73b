"""Records from files, with the interface of the records of Kafka's client."""

from __future__ import annotations

from typing import Any

from milestones.common.records import Headers, TopicPartition


class StoredRecord:
    """An `InputRecord` (`common/task/buffers.py`)."""

    __slots__ = ("_headers", "_key", "_offset", "_partition", "_time", "_value")

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        time: int,
        headers: Headers | None,
    ) -> None:
        self._partition, self._offset = partition, offset
        self._key, self._value, self._time, self._headers = key, value, time, headers

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value

    def headers(self) -> Any:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time

    def topic(self) -> Any:
        return self._partition.topic

    def partition(self) -> Any:
        return self._partition.partition

    def offset(self) -> Any:
        return self._offset

    def error(self) -> None:
        return None

    def __len__(self) -> int:
        return len(self._value or b"")
