"""Outputs of tasks, as tests build them by hand."""

from __future__ import annotations

from milestones.common.records import Emitted, Headers, Output, emitted_of


def emitted(
    topic: str,
    value: bytes | None = b"v",
    *,
    key: bytes | None = b"k",
    partition: int = 0,
    timestamp: int = 5,
    headers: Headers | None = None,
    node: str = "sink",
) -> Emitted:
    """An output as a task hands it to its producer."""
    return emitted_of(Output(topic, partition, key, value, timestamp, headers, node))
