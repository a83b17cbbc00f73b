"""Just enough of Kafka's protocol to tell requests apart and to match answers with them.

*Guarantees*: `read_frame` returns whole frames, length included, unchanged. What can't be parsed is None, not an error.
*Assumes*: plain text. By Kafka's protocol guide a frame is an int32 length and that many bytes. A request begins with
its api key (int16), version (int16), correlation id (int32) and client id (nullable string), an answer with the
correlation id.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">ihhih")
_ANSWER = struct.Struct(">ii")


class Api(IntEnum):
    """The requests that faults are made for; any other number of Kafka's will do, too."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


@dataclass(frozen=True)
class Request:
    """The header of a request. `api`: its number, see `Api`."""

    api: int
    version: int
    correlation: int
    client_id: str


async def read_frame(stream: asyncio.StreamReader) -> bytes | None:
    """The next frame; None at the end of the stream, an orderly one or not."""
    try:
        head = await stream.readexactly(_LENGTH.size)
        return head + await stream.readexactly(max(0, _LENGTH.unpack(head)[0]))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def parse_request(frame: bytes) -> Request | None:
    """The header of a request's frame."""
    try:
        _, api, version, correlation, size = _REQUEST.unpack_from(frame)
    except struct.error:
        return None
    client_id = frame[_REQUEST.size : _REQUEST.size + max(0, size)].decode("utf-8", "replace")
    return Request(api, version, correlation, client_id)


def parse_answer(frame: bytes) -> int | None:
    """The correlation id of an answer's frame."""
    return _ANSWER.unpack_from(frame)[1] if len(frame) >= _ANSWER.size else None
