"""The common base of Kafka clients: one log, one owner thread each, the reason why brokers can't be reached.

*Guarantees*: the log has one warning of a client's outage, then one per `OUTAGE_MS` with the number of lines left out;
librdkafka connects again by itself. Each other line of a client is logged at most once in `QUIET_MS`.
*Assumes*: clients are made with `logger=client_log`, and polled now and then: librdkafka logs while it is polled.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident, local
from time import perf_counter_ns
from typing import Final

from confluent_kafka import KafkaError

from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import OwnershipError
from milestones.common.kafka.failures import error_of

GIVEN_UP_S = 3_600.0
"""The time-out of questions to a coordinator by an admin client, longer than any caller waits for the answer: one that
librdkafka gives up ends the process (`abort`) once the coordinator answers again."""

QUIET_MS = 10_000
"""The time for which the log leaves out repeated lines of a client."""

OUTAGE_MS = 60_000
"""The time for which the log leaves out further lost connections of a client, of all brokers and for all reasons: in an
outage each attempt to reach each broker fails with a line of its own."""

_KEPT = 1_000
_THREAD = re.compile(r"^\[thrd:.*?\]: ")
_STATE = re.compile(r" \(after \d+ms in state .*\)$")
_SECURITY = re.compile(r"\b(SSL|SASL|TLS|certificate|authenticat)", re.IGNORECASE)


def reason_in(text: str) -> str:
    """librdkafka's text about a connection, without its thread's name and the age of the connection."""
    return _STATE.sub("", _THREAD.sub("", text))


def text_of(exception: BaseException) -> str:
    """The text of an exception of confluent-kafka, without its code."""
    error = error_of(exception)
    return str(exception) if error is None else reason_in(error.str())


class CalmFilter(logging.Filter):
    """Keeps a broker that is down from flooding the log. Takes records as confluent-kafka makes them: facility, client,
    text; others, and those below a warning, pass unchanged."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._told: dict[tuple[str, str], tuple[int, int]] = {}  # until when it is left out, how often it was so far

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or not isinstance(record.args, tuple) or len(record.args) != 3:
            return True
        facility, client, text = map(str, record.args)
        reason = reason_in(text)
        lost = facility == "FAIL" and not _SECURITY.search(reason)
        left_out = self._left_out((client, facility), OUTAGE_MS) if lost else self._left_out((client, reason), QUIET_MS)
        if left_out is None:
            return False
        if lost or facility == "FATAL":
            # A call raises the error, too: the runtime replaces the client, or says what it ends of, as an ERROR.
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        if left_out:
            record.args = (facility, client, f"{text}; {left_out} more like it since one was logged last")
        return True

    def _left_out(self, said: tuple[str, str], quiet_ms: int) -> int | None:
        """The number of times that a line was left out since its last logging; None when it is left out now, too."""
        now = self._clock.monotonic_ms()
        with self._lock:
            if len(self._told) >= _KEPT:
                self._told = {key: seen for key, seen in self._told.items() if now < seen[0]}
            until_ms, left_out = self._told.get(said, (now, 0))
            if now < until_ms:
                self._told[said] = until_ms, left_out + 1
                return None
            self._told[said] = now + quiet_ms, 0
            return left_out


client_log: Final = logging.getLogger("milestones.librdkafka")
client_log.addFilter(CalmFilter())


class LastReason:
    """Why a client can't reach its brokers, in librdkafka's words; None while nothing is known. `note` is the client's
    `error_cb`, which is called while the client is polled."""

    def __init__(self) -> None:
        self.text: str | None = None

    def note(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # which names no cause
            self.text = reason_in(error.str())


class _Deputy(local):
    """`acts_as`: the thread that the calling one stands in for."""

    acts_as: int | None = None


_deputy: Final = _Deputy()


@contextmanager
def standing_in_for(thread: int) -> Iterator[None]:
    """Inside the block the calling thread may use the clients of the thread with this ident, which rests meanwhile."""
    _deputy.acts_as = thread
    try:
        yield
    finally:
        _deputy.acts_as = None


class Owned:
    """A client that only the thread that made it may use, or one that stands in for it (`standing_in_for`).
    `blocked_ns`: the time that its calls have waited for Kafka."""

    def __init__(self) -> None:
        self._owner = _deputy.acts_as or get_ident()
        self.blocked_ns: int = 0

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = perf_counter_ns()
        try:
            yield
        finally:
            self.blocked_ns += perf_counter_ns() - began

    def _check_owner(self) -> None:
        if (_deputy.acts_as or get_ident()) != self._owner:
            raise OwnershipError(
                f"{type(self).__name__} belongs to thread {self._owner}, thread {get_ident()} touched it: this is a bug"
            )
