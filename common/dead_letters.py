"""The headers of a dead letter (KIP-1034). `smaller` removes headers from a dead letter that is too large for Kafka.

| header | content |
|---|---|
| `__streams.errors.exception` | the class of the error |
| `__streams.errors.message` | the text of the error, shortened |
| `__streams.errors.stacktrace` | the traceback of the error, shortened |
| `__streams.errors.topic`, `.partition`, `.offset` | the topic, partition and offset of the record |

*Guarantees*: key, value and the record's own headers are never shortened or left out.
*Assumes*: nothing.
"""

from __future__ import annotations

from typing import Final

from milestones.common.records import Headers

HEADER_EXCEPTION: Final = "__streams.errors.exception"
HEADER_MESSAGE: Final = "__streams.errors.message"
HEADER_STACKTRACE: Final = "__streams.errors.stacktrace"
HEADER_TOPIC: Final = "__streams.errors.topic"
HEADER_PARTITION: Final = "__streams.errors.partition"
HEADER_OFFSET: Final = "__streams.errors.offset"

SAID: Final = (HEADER_STACKTRACE, HEADER_MESSAGE)
"""The headers that describe the error, in the order in which they are left out if a dead letter is too large."""


def is_dead_letter(headers: Headers | None) -> bool:
    """True if these are the headers of a dead letter that a built-in handler wrote."""
    return bool(headers) and any(name == HEADER_EXCEPTION for name, _ in headers or ())


def smaller(headers: Headers | None) -> Headers | None:
    """Returns the headers of a dead letter without the next header in `SAID`. Returns None if none of these headers is
    left, or if this is no dead letter."""
    if headers is None or not is_dead_letter(headers):
        return None
    names = {name for name, _ in headers}
    left_out = next((name for name in SAID if name in names), None)
    return None if left_out is None else [header for header in headers if header[0] != left_out]
