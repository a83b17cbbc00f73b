"""What all clients share: a log that stays readable, and the reason of a lost connection."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.common.kafka.clients import (
    OUTAGE_MS,
    QUIET_MS,
    CalmFilter,
    LastReason,
    client_log,
    reason_in,
)
from milestones.common.testing import StepClock

REFUSED = "[thrd:b:1/bootstrap]: b:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"


class Log:
    """A logger as a client uses it: `said` holds what comes through, with its level."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.filter = CalmFilter(self.clock)
        self.said: list[tuple[str, str]] = []

    def say(self, text: str, client: str = "a", facility: str = "FAIL", level: int = logging.ERROR) -> None:
        args: Any = (facility, client, text)
        record = logging.LogRecord("milestones.librdkafka", level, "", 0, "%s [%s] %s", args, None)
        if self.filter.filter(record):
            self.said.append((record.levelname, record.getMessage()))


def test_a_client_tells_of_an_outage_once_and_then_once_a_minute_how_much_was_left_out() -> None:
    log = Log()
    for broker in range(10):
        log.say(f"b:{broker}: Disconnected (after 100ms in state UP)")
        log.say(f"b:{broker}: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)")
    assert len(log.said) == 1
    log.clock.sleep_ms(OUTAGE_MS)
    log.say(REFUSED)
    assert log.said[1:] == [("WARNING", f"FAIL [a] {REFUSED}; 19 more like it since one was logged last")]
    log.say(REFUSED)
    log.clock.sleep_ms(OUTAGE_MS)
    log.say(REFUSED)
    assert "; 1 more like it" in log.said[2][1]


def test_each_client_tells_of_the_outage_that_it_sees() -> None:
    log = Log()
    log.say(REFUSED)
    log.say(REFUSED, client="b")
    assert len(log.said) == 2


def test_a_client_says_anything_else_once_in_ten_seconds_and_then_how_often_it_was_left_out() -> None:
    log = Log()
    log.say(REFUSED)
    for _ in range(3):
        log.say("request timed out", facility="REQTMOUT", level=logging.WARNING)
    log.say("transaction failed", facility="TXNERR")
    assert len(log.said) == 3
    log.clock.sleep_ms(QUIET_MS)
    log.say("request timed out", facility="REQTMOUT", level=logging.WARNING)
    assert log.said[3][1].endswith("request timed out; 2 more like it since one was logged last")


def test_a_refused_identity_is_heard_in_the_middle_of_an_outage() -> None:
    log = Log()
    log.say(REFUSED)
    log.say("b:1/bootstrap: SASL authentication error: wrong password (after 1ms in state AUTH_REQ)")
    assert [level for level, _ in log.said] == ["WARNING", "ERROR"]


def test_a_lost_connection_is_a_warning_and_a_refused_identity_an_error() -> None:
    log = Log()
    log.say("b:1/bootstrap: Disconnected (after 100ms in state UP)")
    log.say("b:1/bootstrap: SASL authentication error: wrong password (after 1ms in state AUTH_REQ)")
    log.say("b:1/bootstrap: SSL handshake failed: certificate verify failed (after 1ms in state SSL_HANDSHAKE)")
    log.say("transaction failed", facility="TXNERR")
    assert [level for level, _ in log.said] == ["WARNING", "ERROR", "ERROR", "ERROR"]


def test_a_producer_that_is_fenced_is_a_warning_as_the_runtime_replaces_it_or_says_what_ends_of_it() -> None:
    log = Log()
    fenced = "[thrd:main]: Fatal error: Local: This instance has been fenced by a newer instance"
    log.say(fenced, facility="FATAL", level=logging.CRITICAL)
    assert log.said == [("WARNING", f"FATAL [a] {fenced}")]


def test_debug_lines_and_records_of_others_pass_as_they_are() -> None:
    log = Log()
    for _ in range(2):
        log.say("fetched", facility="FETCH", level=logging.DEBUG)
    assert len(log.said) == 2
    assert log.filter.filter(logging.LogRecord("x", logging.ERROR, "", 0, "plain", None, None))


def test_what_was_said_long_ago_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milestones.common.kafka.clients._KEPT", 10)
    log = Log()
    for number in range(100):
        log.say(f"reason {number}", facility="ERROR")
        log.clock.sleep_ms(QUIET_MS)
    assert len(log.said) == 100
    assert len(log.filter._told) <= 10


def test_the_clients_log_is_calm() -> None:
    assert any(isinstance(one, CalmFilter) for one in client_log.filters)


def test_a_reason_is_free_of_thread_names_and_ages() -> None:
    text = "[thrd:[::1]:9092/bootstrap]: [::1]:9092/bootstrap: Connection refused (after 0ms in state CONNECT)"
    assert reason_in(text) == "[::1]:9092/bootstrap: Connection refused"


def test_the_last_reason_is_a_cause_not_its_effect() -> None:
    reason = LastReason()
    reason.note(KafkaError(KafkaError._RESOLVE, "b:1: Failed to resolve 'b:1' (after 0ms in state CONNECT)"))
    reason.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert reason.text == "b:1: Failed to resolve 'b:1'"
