"""Looks at stream threads from beside, and says in the log when one waits for another thread.

*Guarantees*: what is reported is no longer than the wait was. Waits for Kafka, in its client or by one of `FOR_KAFKA`,
don't count.
*Assumes*: who waits for a thread does so in `threading` (conditions, events, futures, joins) or at a `with`.
"""

from __future__ import annotations

import linecache
import logging
import re
import threading
import time
from collections.abc import Iterator
from types import FrameType

from milestones.common.kafka.blocking_call import CallThread
from milestones.common.kafka.changelog_ends import ChangelogEnds
from milestones.common.kafka.membership import GroupMember
from milestones.common.thread_stacks import frames

log = logging.getLogger("compat_tests")

WAITED = "stream thread waited for "
"""What the log says, followed by milliseconds."""
LONGEST_MS = 100
LOOK_S = 0.01
FOR_KAFKA = frozenset(
    wait.__qualname__ for wait in (CallThread.returned, GroupMember.commit_returned, ChangelogEnds.told)
)
"""Calls to Kafka that another thread makes, the client's or ours: who waits there waits for Kafka."""
STREAM_THREAD = re.compile(r"-(?:StreamThread-\d+|PollingThread)$")


class Watch(threading.Thread):
    """*Owns*: since when each stream thread has been waiting."""

    def __init__(self) -> None:
        super().__init__(name="watch", daemon=True)
        self._since: dict[int, tuple[object, float]] = {}
        self._reported: set[int] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Once; `now` in s. A wait is reported when it has become too long, once."""
        now_at = frames()
        for thread in threading.enumerate():
            frame = now_at.get(thread.ident or 0)
            if frame is None or not STREAM_THREAD.search(thread.name):
                continue
            self._look_at(thread.ident or 0, frame, now)

    def _look_at(self, thread: int, frame: FrameType, now: float) -> None:
        place = (id(frame), frame.f_lasti) if waits(frame) else None
        known, since = self._since.get(thread, (None, now))
        if place is None or place != known:
            self._since[thread] = place, now
            self._reported.discard(thread)
        elif (now - since) * 1000 > LONGEST_MS and thread not in self._reported:
            self._reported.add(thread)
            log.warning("%s%d ms and on: %s", WAITED, (now - since) * 1000, " < ".join(callers(frame)))

    def end(self) -> None:
        self._over.set()
        self.join()


def waits(frame: FrameType) -> bool:
    """Whether a thread that stands in this innermost frame may wait for another one."""
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno or 0)  # None in the midst of what the compiler added
    if code.co_filename != threading.__file__ and not line.lstrip().startswith("with "):
        return False
    return not any(caller.f_code.co_qualname in FOR_KAFKA for caller in outwards(frame))


def callers(frame: FrameType) -> list[str]:
    """From the innermost to the outermost."""
    return [f"{caller.f_code.co_qualname}:{caller.f_lineno}" for caller in outwards(frame)]


def outwards(frame: FrameType) -> Iterator[FrameType]:
    """This frame and its callers."""
    at: FrameType | None = frame
    while at is not None:
        yield at
        at = at.f_back
