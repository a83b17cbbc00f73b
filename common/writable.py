"""Checks that Kafka's client will write a record unchanged.

| the record has | without the check the client would | the runtime |
|---|---|---|
| a timestamp of 0 | write the present time | writes `FIRST_TIMESTAMP`, also into stores |
| a timestamp that is no int, negative or too large | fail later, or write the timestamp | raises an error |
| a header's name with a NUL | write the name up to the NUL | raises an error |
| a header's name that is no str | write the `str()` of the name | raises an error |
| a header's name that isn't UTF-8 (a lone surrogate) | crash the process | raises an error |
| a header's value that is a str | write the value in UTF-8 | raises an error |

*Guarantees*: a record that passes the checks is read from Kafka as it was written. Errors are raised while the record
is processed, so that the user's exception handler is asked about them.
*Assumes*: keys and values are bytes or None, as serdes make them. The client writes these unchanged, even empty ones.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from operator import index
from typing import Final

from milestones.common.records import UNKNOWN_TIMESTAMP, Headers, Output

log: Final = logging.getLogger(__name__)

FIRST_TIMESTAMP: Final = 1
"""The first timestamp, in ms since the epoch, that librdkafka writes unchanged. A timestamp of 0 becomes this one in
outputs and in the rows of stores, so that a store has the same rows as its changelog. The order of timestamps stays the
same."""

LAST_TIMESTAMP: Final = (1 << 63) - 1


@cache
def first_timestamp() -> int:
    """Return `FIRST_TIMESTAMP`, for a record whose timestamp is 0. The first call logs a warning."""
    log.warning(
        "a record has the timestamp 0 (1970-01-01T00:00:00Z), which librdkafka can't write, because 0 means no "
        "timestamp to it: such records and rows get the timestamp 1, the next millisecond"
    )
    return FIRST_TIMESTAMP


def timestamp_of(timestamp: int) -> int:
    """Return the timestamp as an int. Raises `ValueError` if it is no int, negative, or larger than 64 bits."""
    try:
        exact = index(timestamp)
    except TypeError:
        raise ValueError(f"the timestamp {timestamp!r}, which isn't an int (ms since the epoch)") from None
    if exact < 0:
        raise ValueError(f"the negative timestamp {exact}")
    if exact > LAST_TIMESTAMP:
        raise ValueError(f"the timestamp {exact}, which doesn't fit into 64 bits")
    return exact


def headers_of(headers: Sequence[object]) -> Headers:
    """Return a copy of the headers as a list. Raises `ValueError` if the client wouldn't write one of them
    unchanged."""
    for header in headers:
        if not isinstance(header, tuple) or len(header) != 2:
            raise ValueError(f"a header that isn't a pair (name, value): {header!r}")
        name, value = header
        if not isinstance(name, str):
            raise ValueError(f"a header whose name isn't a str: {name!r}")
        if "\0" in name:
            raise ValueError(f"a header whose name has a NUL, where Kafka's client would cut it: {name!r}")
        if not _is_utf8(name):
            raise ValueError(f"a header whose name can't be written in UTF-8: {name!r}")
        if value is not None and not isinstance(value, bytes):
            raise ValueError(f"the header {name!r}, whose value is neither bytes nor None: {value!r}")
    return list(headers)  # type: ignore[arg-type]  # just checked


def writable(output: Output) -> Output:
    """Return the output as it will be written. Outputs that user code has made itself, such as dead letters, need this
    check. Raises `ValueError` if the client wouldn't write it."""
    topic: object = output.topic
    partition: object = output.partition
    if not isinstance(topic, str) or not topic or "\0" in topic or not _is_utf8(topic):
        raise ValueError(f"an output with the topic {topic!r}")
    for part, data in (("key", output.key), ("value", output.value)):
        if data is not None and not isinstance(data, bytes):
            raise ValueError(f"an output for {topic} whose {part} is neither bytes nor None: {data!r:.100}")
    if not isinstance(partition, int) or not -1 <= partition < 1 << 31:
        raise ValueError(f"an output for {topic} with the partition {partition!r}")
    headers = headers_of(output.headers) if output.headers else output.headers
    timestamp = output.timestamp
    if timestamp != UNKNOWN_TIMESTAMP:
        timestamp = timestamp_of(timestamp) or first_timestamp()
    return output._replace(headers=headers, timestamp=timestamp)


def _is_utf8(text: str) -> bool:
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return False
    return True
