"""What a proxy does to the frames that pass it.

*Guarantees*: a fault is made and ended by the test's thread, met by the proxy's; both see it as a whole.
*Assumes*: nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase

from compat_tests.network.frames import Request


class Side(Enum):
    """Which way a frame goes."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(frozen=True)
class Frames:
    """Which frames a fault is for. `side`: None: both; `api`: None: of all; `client`: a pattern like `one-*` for the
    client id."""

    side: Side | None
    api: int | None = None
    client: str = "*"

    def include(self, side: Side, request: Request) -> bool:
        """Whether this frame, the request or its answer, is one of them."""
        kind = self.side in (None, side) and self.api in (None, request.api)
        return kind and fnmatchcase(request.client_id, self.client)


@dataclass(eq=False)
class Fault:
    """One fault of a proxy, from its making until `end`.

    `delay_s`: frames arrive so much later; `gate`: they wait for the fault's end; `loses`: the connection breaks in
    their place; `vanishes`: neither it nor anything behind it arrives, and the connection stays open; `swaps`: by side,
    the first bytes arrive as the second, which are as long. `times`: only the first so many frames are met, None: all.
    """

    frames: Frames
    times: int | None
    over: Callable[[Fault], None]
    delay_s: float = 0
    gate: asyncio.Event | None = None
    loses: bool = False
    vanishes: bool = False
    swaps: Mapping[Side, tuple[bytes, bytes]] = field(default_factory=dict)
    _hits: int = field(default=0, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)

    @property
    def hits(self) -> int:
        """How many frames it has met so far."""
        with self._changed:
            return self._hits

    def wait(self, hits: int = 1, timeout_s: float = 30) -> None:
        """Wait until it has met so many frames. `TimeoutError` when it hasn't."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= hits, timeout_s):
                raise TimeoutError(f"only {self._hits} of {hits} frames within {timeout_s:.0f} s: {self.frames}")

    def end(self) -> None:
        """Let all frames pass from now on; those held go on their way, however late. May be called twice."""
        self.over(self)

    def swapped(self, side: Side, frame: bytes) -> bytes:
        """A frame that it has met, as it arrives."""
        return frame.replace(*self.swaps[side]) if side in self.swaps else frame

    def meets(self, side: Side, request: Request) -> bool:
        """Whether it is for this frame; counts. Called by the proxy's thread."""
        if not self.frames.include(side, request):
            return False
        with self._changed:
            if self.times is not None and self._hits >= self.times:
                return False
            self._hits += 1
            self._changed.notify_all()
            return True
