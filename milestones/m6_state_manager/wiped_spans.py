"""`WipedSpans` remembers which spans of keys were deleted from a database, until a compaction frees their disk space.

    delete a span, and write a note of it --one step--> database        a start reads the notes from the database
    compact the span --> the note is done --the state thread--> remove the note from the database

*Guarantees*: a deleted span has a note until its disk space is free, even after a crash. A store has at most `MOST`
spans. When there would be more, one span that covers all of them replaces them.
*Assumes*: any thread may call. The lock is held only for moments.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from milestones.common.state.engine import Span

NOTES: Final = "/wiped"
"""The column family of the notes. No store can have this name."""

MOST: Final = 100


class Wiped(NamedTuple):
    """A deleted span of a store, and the keys of its notes."""

    store: str
    span: Span
    keys: list[bytes]


def notes_of(spans: Mapping[str, Span]) -> dict[bytes, bytes]:
    """Make the notes of spans that are about to be deleted, to be written in the same step. Each note has a new key, so
    that removing a note never removes a later one of the same span."""
    return {
        uuid.uuid4().bytes: json.dumps([store, first.hex(), beyond.hex()]).encode()
        for store, (first, beyond) in spans.items()
    }


class WipedSpans:
    """*Owns*: the deleted spans by store, with the keys of their notes; the keys of notes that are done."""

    def __init__(self, notes: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """`notes`: those in the database."""
        self._lock = threading.Lock()
        self._spans: dict[str, dict[Span, list[bytes]]] = {}
        self._done: list[bytes] = []
        self.add(dict(notes))

    def add(self, notes: Mapping[bytes, bytes]) -> None:
        """Remember the spans of these notes, which are in the database."""
        with self._lock:
            for key, note in notes.items():
                store, first, beyond = json.loads(note)
                spans = self._spans.setdefault(store, {})
                spans.setdefault((bytes.fromhex(first), bytes.fromhex(beyond)), []).append(key)
                if len(spans) > MOST:
                    covering = min(first for first, _ in spans), max(beyond for _, beyond in spans)
                    self._spans[store] = {covering: [key for keys in spans.values() for key in keys]}

    def take(self) -> Wiped | None:
        """Take one span, to compact it; None if there is none. A span is taken once."""
        with self._lock:
            for store, spans in self._spans.items():
                span, keys = spans.popitem()
                if not spans:
                    del self._spans[store]
                return Wiped(store, span, keys)
        return None

    def given_back(self, wiped: Wiped) -> None:
        """Note that the disk space of a span that was taken is free."""
        with self._lock:
            self._done += wiped.keys

    def done(self) -> list[bytes]:
        """Return the keys of the notes that can be removed from the database."""
        with self._lock:
            return list(self._done)

    def removed(self, keys: Iterable[bytes]) -> None:
        """Forget the keys of notes that were removed from the database."""
        gone = set(keys)
        with self._lock:
            self._done = [key for key in self._done if key not in gone]

    def __len__(self) -> int:
        return sum(map(len, list(self._spans.values())))
