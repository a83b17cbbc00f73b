"""The limits within which Kafka's client writes a record as it is.

| | the client, left alone | here |
|---|---|---|
| a timestamp of 0 | takes it for "now" | it becomes `FIRST_TIMESTAMP`, in stores too |
| one that is no int, is negative, too large | fails when it is sent, or writes it | an error of the record |
| a header's name with a NUL | cuts it there | an error of the record |
| a header's name that is no str | writes its `str()` | an error of the record |
| a header's name that isn't UTF-8 (a lone surrogate) | ends the process | an error of the record |
| a header's value that is a str | writes it in UTF-8 | an error of the record |

*Guarantees*: what passes is read back from Kafka as it was written; errors come where a record's handler is asked.
*Assumes*: keys and values are bytes or None, as serdes give them: these go as they are, empty ones too.
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
"""The first timestamp, ms since the epoch, that librdkafka writes as it is. 0 becomes this one in outputs and in the
rows of stores, so that a store's rows are those of its changelog; no two timestamps change their order by it."""

LAST_TIMESTAMP: Final = (1 << 63) - 1


@cache
def first_timestamp() -> int:
    """`FIRST_TIMESTAMP`, in place of a timestamp of 0. The first time the log says so."""
    log.warning(
        "a record has the timestamp 0 (1970-01-01T00:00:00Z), which librdkafka takes for none and can't write: such "
        "records, and rows of such a time, get the timestamp 1, the next millisecond"
    )
    return FIRST_TIMESTAMP


def timestamp_of(timestamp: int) -> int:
    """The timestamp as an int, if Kafka has room for it; `ValueError` says what it is otherwise."""
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
    """The headers as a list of their own; `ValueError` says what the client wouldn't write as it is."""
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
    """An output that user code has made itself (a dead letter), as it will be written. `ValueError` says what the
    client wouldn't write."""
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
