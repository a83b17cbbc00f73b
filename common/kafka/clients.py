"""What all Kafka clients share: their log, the check of their owner thread, the reason why no broker can be reached.

*Guarantees*: when a client loses its connections, the log gets one warning, then one per `OUTAGE_MS` with the number of
lines left out. librdkafka reconnects by itself. Any other line of a client is logged at most once in `QUIET_MS`.
*Assumes*: clients are made with `logger=client_log`. They are polled now and then, because librdkafka writes its log
only during a poll.
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
"""The time-out of an admin client's questions to a coordinator. It is longer than any caller waits: if librdkafka gives
up such a question, the process crashes (`abort`) when the coordinator answers later."""

QUIET_MS = 10_000
"""For this time after a line of a client was logged, the log leaves out the same line of that client."""

OUTAGE_MS = 60_000
"""For this time after a lost connection of a client was logged, the log leaves out all further ones of that client. In
an outage each attempt to reach each broker writes a line of its own."""

_KEPT = 1_000
_THREAD = re.compile(r"^\[thrd:.*?\]: ")
_STATE = re.compile(r" \(after \d+ms in state .*\)$")
_SECURITY = re.compile(r"\b(SSL|SASL|TLS|certificate|authenticat)", re.IGNORECASE)


def reason_in(text: str) -> str:
    """Returns librdkafka's text about a connection, without the thread's name and the connection's age."""
    return _STATE.sub("", _THREAD.sub("", text))


def text_of(exception: BaseException) -> str:
    """Returns the text of an exception of confluent-kafka, without the error code."""
    error = error_of(exception)
    return str(exception) if error is None else reason_in(error.str())


class CalmFilter(logging.Filter):
    """Limits the number of log lines while a broker is down. The filter looks at log records of confluent-kafka, whose
    arguments are facility, client and text. Other log records, and those below WARNING, pass unchanged."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._told: dict[tuple[str, str], tuple[int, int]] = {}  # end of the time it is left out, times left out so far

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
            # A call of the client raises this error, too. Then the runtime replaces the client, or ends with an ERROR.
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        if left_out:
            record.args = (facility, client, f"{text}; {left_out} more like it since one was logged last")
        return True

    def _left_out(self, said: tuple[str, str], quiet_ms: int) -> int | None:
        """Returns how often the line was left out since it was last logged. Returns None if it must be left out now."""
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
    """Keeps the reason why a client can't reach its brokers. `text` is librdkafka's text, or None while no reason is
    known. `note` serves as the client's `error_cb`, which librdkafka calls during a poll."""

    def __init__(self) -> None:
        self.text: str | None = None

    def note(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # this code names no cause
            self.text = reason_in(error.str())


class _Deputy(local):
    """`acts_as`: the ident of the thread whose clients the calling thread may use; None for its own clients only."""

    acts_as: int | None = None


_deputy: Final = _Deputy()


@contextmanager
def standing_in_for(thread: int) -> Iterator[None]:
    """Let the calling thread use the clients of the thread with this ident, inside the block. The other thread must not
    use them meanwhile."""
    _deputy.acts_as = thread
    try:
        yield
    finally:
        _deputy.acts_as = None


class Owned:
    """Base class of clients with one owner: the thread that made the client. Another thread may use the client only
    inside `standing_in_for`. `blocked_ns`: the total time for which calls of the client have waited for Kafka."""

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
                f"{type(self).__name__} belongs to thread {self._owner}, thread {get_ident()} used it: this is a bug"
            )
