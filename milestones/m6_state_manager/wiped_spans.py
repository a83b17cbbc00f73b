"""`WipedSpans`: what was deleted from databases, until its room is given back.

*Guarantees*: at most `MOST` spans per store are kept: more of them become one that has them all.
*Assumes*: called from any thread; its lock is held for moments.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from milestones.common.state.engine import Span
    from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

MOST: Final = 100


class WipedSpans:
    """*Owns*: the spans, by database and store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[tuple[SubtopologyEngine, str], set[Span]] = {}

    def add(self, database: SubtopologyEngine, store: str, span: Span) -> None:
        """Note that all keys of the span are deleted."""
        with self._lock:
            spans = self._spans.setdefault((database, store), set())
            spans.add(span)
            if len(spans) > MOST:
                covering = min(first for first, _ in spans), max(beyond for _, beyond in spans)
                spans.clear()
                spans.add(covering)

    def take(self) -> tuple[SubtopologyEngine, str, Span] | None:
        """One of them, which is forgotten; None when there is none."""
        with self._lock:
            for (database, store), spans in self._spans.items():
                span = spans.pop()
                if not spans:
                    del self._spans[database, store]
                return database, store, span
        return None

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._spans.clear()

    def __len__(self) -> int:
        return sum(map(len, list(self._spans.values())))
