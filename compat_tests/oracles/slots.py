"""What `apps/slots.py` must do, in plain Python: a key's values in a few slots, and all of them after each record.

*Guarantees*: pure.
*Assumes*: a payload is a value and its record's timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from compat_tests.oracles.flows import Entry

SLOTS = 5
ALL = 16
"""One value in so many has the whole store read."""

State = tuple[dict[bytes, Entry], bytes]
"""The slots, and the last value."""


def slot_of(value: bytes) -> int:
    return crc32(value) % SLOTS


def reads_all(value: bytes) -> bool:
    return crc32(value) % ALL == 0


def step(state: State | None, payload: tuple[bytes, int]) -> State:
    """A value takes its slot; one that is in it leaves it."""
    value, timestamp = payload
    slots, slot = dict(state[0]) if state else {}, b"%d" % slot_of(value)
    before = slots.pop(slot, None)
    if before is None or before.value != value:
        slots[slot] = Entry(timestamp, value)
    return slots, value


def encode(state: State) -> bytes:
    """What each scan must give: the key's range, forward and backward; its prefix; the slots 1 to 3, forward and
    backward; now and then the whole store's share."""
    slots, value = state
    whole = [b"%b=%b" % (slot, slots[slot].value) for slot in sorted(slots)]
    inner = [text for text in whole if b"1" <= text[:1] <= b"3"]
    scans = [whole, whole[::-1], whole, inner, inner[::-1], *([whole] if reads_all(value) else [])]
    return b"|".join(map(b",".join, scans))


def rows(key: bytes, state: State, _: int) -> Iterator[tuple[bytes, Entry]]:
    """What the store holds of a key."""
    for slot, entry in state[0].items():
        yield b"%b|%b" % (key, slot), entry
