"""Writes and reads group metadata in librdkafka's format, for `send_offsets_to_transaction`.

The format is undocumented. It consists of `CGMDv2:`, the generation (int32, native byte order), the group id and the
member id. Both ids end with a zero byte. Then comes the byte 1 if there is no instance id, or the byte 0, the instance
id and a zero byte.

*Guarantees*: if this confluent-kafka has another format, `verify_group_metadata_format` raises before anything is sent.
*Assumes*: names have no zero bytes (`MemberSettings` refuses them).
"""

from __future__ import annotations

import logging
import struct
from functools import cache
from typing import NamedTuple

from confluent_kafka import Consumer

from milestones.common.errors import MembershipError

PREFIX = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


class GenerationOfMember(NamedTuple):
    """The member and generation in the bytes. `instance`: the static id, or None."""

    group: str
    generation: int
    member: str
    instance: str | None


def group_metadata(group: str, generation: int, member: str, instance: str | None) -> bytes:
    """Returns the bytes for a member of a generation. Raises `ValueError` for generation -1, because Kafka wouldn't
    fence its commits."""
    if generation < 0 or not member:
        raise ValueError(f"generation {generation} of member {member!r} is none: it would commit unfenced")
    return _build(group, generation, member, instance)


def _build(group: str, generation: int, member: str, instance: str | None) -> bytes:
    tail = b"\x01" if instance is None else b"\x00" + instance.encode() + b"\0"
    return PREFIX + _GENERATION.pack(generation) + group.encode() + b"\0" + member.encode() + b"\0" + tail


def read_group_metadata(data: bytes) -> GenerationOfMember:
    """Read bytes that `group_metadata` has written."""
    at = len(PREFIX)
    (generation,) = _GENERATION.unpack_from(data, at)
    group, member, tail = data[at + _GENERATION.size :].split(b"\0", 2)
    instance = None if tail == b"\x01" else tail[1:-1].decode()
    return GenerationOfMember(group.decode(), generation, member.decode(), instance)


@cache
def verify_group_metadata_format() -> None:
    """Compare the format of `group_metadata` with the bytes that this confluent-kafka makes. No broker is asked. Raises
    `MembershipError` if they differ."""
    for instance in (None, "an-instance"):
        settings = {"group.id": "a-group", "bootstrap.servers": "", "logger": _silent()}
        consumer = Consumer(settings | ({} if instance is None else {"group.instance.id": instance}))
        try:
            real = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        if real != _build("a-group", -1, "", instance):
            raise MembershipError(
                f"this confluent-kafka writes group metadata in a format that isn't known: {real!r}; "
                "install a confluent-kafka version that milestones supports (2.16)"
            )


def _silent() -> logging.Logger:
    logger = logging.getLogger("milestones.kafka.metadata-check")
    logger.setLevel(logging.CRITICAL + 1)
    return logger
