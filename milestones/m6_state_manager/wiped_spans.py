"""`WipedSpans`: what was deleted from a database, until its room is given back.

    a wipe or an expiration, and a note of it --one step--> database        a start: the notes are read again
    compacted --> the note is done --the state thread--> it is removed from the database

*Guarantees*: a span whose room isn't given back has a note, after a crash, too. At most `MOST` spans per store are
kept: more of them become one that has them all.
*Assumes*: called from any thread; its lock is held for moments.
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
"""The column family of the notes; no store has such a name."""

MOST: Final = 100


class Wiped(NamedTuple):
    """A span of a store, and the keys of its notes."""

    store: str
    span: Span
    keys: list[bytes]


def notes_of(spans: Mapping[str, Span]) -> dict[bytes, bytes]:
    """The notes of what is about to be deleted, to be written in the same step. Each has a key of its own, so that one
    that is done is never another one."""
    return {
        uuid.uuid4().bytes: json.dumps([store, first.hex(), beyond.hex()]).encode()
        for store, (first, beyond) in spans.items()
    }


class WipedSpans:
    """*Owns*: the spans by store, with the keys of their notes; the notes that are done."""

    def __init__(self, notes: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """`notes`: those in the database."""
        self._lock = threading.Lock()
        self._spans: dict[str, dict[Span, list[bytes]]] = {}
        self._done: list[bytes] = []
        self.add(dict(notes))

    def add(self, notes: Mapping[bytes, bytes]) -> None:
        """Have the room given back of what these notes, which are written, say."""
        with self._lock:
            for key, note in notes.items():
                store, first, beyond = json.loads(note)
                spans = self._spans.setdefault(store, {})
                spans.setdefault((bytes.fromhex(first), bytes.fromhex(beyond)), []).append(key)
                if len(spans) > MOST:
                    covering = min(first for first, _ in spans), max(beyond for _, beyond in spans)
                    self._spans[store] = {covering: [key for keys in spans.values() for key in keys]}

    def take(self) -> Wiped | None:
        """One of them, which is taken once; None when there is none."""
        with self._lock:
            for store, spans in self._spans.items():
                span, keys = spans.popitem()
                if not spans:
                    del self._spans[store]
                return Wiped(store, span, keys)
        return None

    def given_back(self, wiped: Wiped) -> None:
        """Note that the room of one that was taken is given back."""
        with self._lock:
            self._done += wiped.keys

    def done(self) -> list[bytes]:
        """The keys of the notes that can be removed."""
        with self._lock:
            return list(self._done)

    def removed(self, keys: Iterable[bytes]) -> None:
        """Forget notes that were done, and are removed from the database."""
        gone = set(keys)
        with self._lock:
            self._done = [key for key in self._done if key not in gone]

    def __len__(self) -> int:
        return sum(map(len, list(self._spans.values())))
