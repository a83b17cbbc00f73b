"""How long the loops of a process let their groups wait: `watch_looks` has the process log it, `longest_look` reads it.

*Guarantees*: the time that calls of Kafka's clients took is told apart; that of a client which came between two looks
counts as the loop's own.
*Assumes*: the lines of the log begin with the time, s since the epoch.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

from benchmarks.moves.timeline import worst
from milestones.parts import Clients
from milestones.stream_thread.loop import StreamLoop

SAID_EVERY_S = 1.0
SAID_LATE_S = 1.5
"""A loop says once a second, at its next turn, what it has seen."""
LOOKED = re.compile(
    r"^(\d+\.\d+) .*: looks at the group at most (\d+\.\d+) s apart, (\d+\.\d+) s of it outside Kafka's calls$",
    re.MULTILINE,
)
log = logging.getLogger("benchmarks.looks")


def longest_look(told: str, start: float, end: float) -> float:
    """The longest time between two looks outside Kafka's calls, in s, in what the log told between two times; 0 when it
    told nothing."""
    return worst(float(own) for at, _, own in LOOKED.findall(told) if start <= float(at) <= end)


class Looks:
    """The looks of one loop at its group: one at the beginning of each turn. Belongs to the loop's thread."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._last, self._kafka_ns = time.perf_counter(), self._waited_ns()
        self._said = self._last
        self._gap = self._own = 0.0

    def look(self) -> None:
        """Note the time since the last one, and how much of it wasn't in calls of Kafka's clients."""
        now, kafka_ns = time.perf_counter(), self._waited_ns()
        gap = now - self._last
        self._gap = max(self._gap, gap)
        self._own = max(self._own, gap - max(0, kafka_ns - self._kafka_ns) / 1e9)
        self._last, self._kafka_ns = now, kafka_ns
        if now - self._said >= SAID_EVERY_S:
            log.info(
                "looks at the group at most %.4f s apart, %.4f s of it outside Kafka's calls", self._gap, self._own
            )
            self._said, self._gap, self._own = now, 0.0, 0.0

    def _waited_ns(self) -> int:
        clients = self._clients
        return clients.consumer.blocked_ns + clients.producer.blocked_ns + clients.member.blocked_ns


def watch_looks() -> None:
    """From now on the log has the longest time between two looks at the group of each loop."""
    init, run_once = StreamLoop.__init__, StreamLoop.run_once
    looks: dict[StreamLoop, Looks] = {}

    def made(loop: StreamLoop, context: Any, parts: Any, clients: Clients, on_state: Any) -> None:
        init(loop, context, parts, clients, on_state)
        looks[loop] = Looks(clients)

    def turn(loop: StreamLoop, now_ms: int) -> bool:
        looks[loop].look()
        return run_once(loop, now_ms)

    StreamLoop.__init__ = made  # type: ignore[assignment, method-assign]
    StreamLoop.run_once = turn  # type: ignore[assignment, method-assign]
