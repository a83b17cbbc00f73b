"""`LongCalls` finds calls of the user's functions that have been running for long, by thread.

*Guarantees*: calls aren't measured one by one. Instead, the stacks of all threads are read about once a second, without
stopping a thread. A call's time counts from the first look that found the call, so that it is too short by up to a
look's interval.
*Assumes*: one thread calls `look`. Any thread may read `found`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType

from milestones.common.thread_stacks import frames, in_user_code, said

LONG_MS = 1_000


@dataclass(frozen=True)
class LongCall:
    """A running call of a user's function. `function`: the name, file and line at which it is now. `seconds`: the least
    time that it has taken so far.
    """

    thread: str
    function: str
    seconds: int


@dataclass(frozen=True)
class _Found:
    frame: FrameType
    """The frame of the call, which is kept for one look. Another call of the same function has another frame."""
    since_ms: int


class LongCalls:
    """*Owns*: the calls that the last look has found. `found`: the calls that have lasted for `LONG_MS` or longer,
    replaced as a whole.
    """

    def __init__(self) -> None:
        self._seen: dict[int, _Found] = {}
        self.found: tuple[LongCall, ...] = ()

    def look(self, idents: Iterable[int], now_ms: int) -> None:
        """Look where these threads are."""
        known, seen = frames(), dict[int, _Found]()
        for ident in idents:
            frame, before = in_user_code(known.get(ident)), self._seen.get(ident)
            if frame is not None:
                seen[ident] = before if before is not None and before.frame is frame else _Found(frame, now_ms)
        self._seen = seen
        long = {ident: one for ident, one in seen.items() if now_ms - one.since_ms >= LONG_MS}
        names = {thread.ident: thread.name for thread in threading.enumerate()} if long else {}
        self.found = tuple(
            LongCall(names.get(ident, str(ident)), said(one.frame), (now_ms - one.since_ms) // 1000)
            for ident, one in long.items()
        )

    @property
    def longest_seconds(self) -> int:
        return max((call.seconds for call in self.found), default=0)
