"""What a producer's log is read for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from milestones.common.kafka.producer_log import ProducerWatch, watched
from milestones.common.kafka.transaction_offsets import ProducerIdentity

REFUSED = "b:1: Connect to ipv4#127.0.0.1:1 failed: Connection refused"


LINES: dict[str, tuple[str, str, bool]] = {
    "a connection that was up": ("FAIL", "[thrd:TxnCoordinator]: b:1: Disconnected (after 100ms in state UP)", True),
    "again": ("FAIL", "b:1: Receive failed (after 100ms in state UP, 3 identical error(s) suppressed)", True),
    "a request without an answer": ("REQTMOUT", "b:1: Timed out 1 in-flight, 0 retry-queued requests", True),
    "a connection that never was": ("FAIL", f"{REFUSED} (after 0ms in state CONNECT)", False),
    "anything else": ("TXNERR", "Fatal transaction error (after 100ms in state UP)", False),
}


@pytest.mark.parametrize(("facility", "text", "lost"), LINES.values(), ids=LINES)
def test_a_producer_is_watched_for_connections_that_break(facility: str, text: str, lost: bool) -> None:
    said: list[Any] = []
    logger = logging.Logger("a test's")
    logger.addFilter(lambda record: bool(said.append(record.args)))  # type: ignore[func-returns-value]
    watch = ProducerWatch(logger)
    watch.log(logging.ERROR, "%s [%s] %s", facility, "a", text)
    assert watch.lost is lost
    assert said == [(facility, "a", text)]


def test_records_that_are_taken_for_written_are_noted() -> None:
    watch = ProducerWatch(logging.Logger("a test's"))
    watch.log(logging.DEBUG, "%s [%s] %s", "ADDPARTS", "a", "out [0] registered with transaction")
    assert not watch.assumed
    watch.log(logging.DEBUG, "%s [%s] %s", "IMPLICITACK", "a", "b:1: out [0] 2 message(s) implicitly acked")
    assert watch.assumed


def test_the_identity_of_a_producer_is_the_last_one_that_it_has_acquired() -> None:
    watch = ProducerWatch(logging.Logger("a test's"))
    assert watch.identity is None
    for text in ("Acquiring ProducerId", "Acquired PID{Id:17,Epoch:0}", "Acquired PID{Id:17,Epoch:4}"):
        watch.log(logging.DEBUG, "%s [%s] %s", "GETPID", "a", f"[thrd:main]: {text}")
    assert watch.identity == ProducerIdentity(17, 4)


@pytest.mark.parametrize("everything", [False, True])
def test_what_the_client_says_for_debugging_is_handed_on_if_it_was_asked_for(everything: bool) -> None:
    said: list[Any] = []
    logger = logging.Logger("a test's")
    logger.addFilter(lambda record: bool(said.append(record.levelno)))  # type: ignore[func-returns-value]
    watch = ProducerWatch(logger, everything=everything)
    for level in (logging.DEBUG, logging.INFO):
        watch.log(level, "%s [%s] %s", "DRAIN", "a", "All partitions drained")
    assert said == ([logging.DEBUG] if everything else []) + [logging.INFO]


def test_what_the_user_has_asked_for_is_told_too() -> None:
    assert watched({"debug": "msg"})["debug"] == "eos,msg"
    assert watched({"linger.ms": 5}) == {"linger.ms": 5, "debug": "eos"}
    assert watched({"transactional.id": "a"})["log.connection.close"]
