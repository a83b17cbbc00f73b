"""Faults planted in what transaction coordinators write down. The bytes are those of a Kafka 4.3."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pytest

from compat_tests.oracles.findings import Findings, kinds
from compat_tests.oracles.rows import Row
from compat_tests.oracles.transactions import (
    Transaction,
    expired,
    none_left_open,
    none_older,
    none_timed_out,
    transactions,
)

BEGAN = "000001a20007f9270100080000000000000000"
LOG = [
    bytes.fromhex("00010000000000000000" + rest)
    for rest in (
        "000000000bb80000000001a20007f90effffffffffffffff0100080000000000000000",  # initialised
        f"000000000bb80102026103000000010000000000000001a20007f927{BEGAN}",  # begun: two partitions of one topic
        f"000000000bb80202026103000000010000000000000001a20007fa0f{BEGAN}",  # commits
        f"000000000bb80401000001a20007fa11{BEGAN}",  # has committed
        "000000000bb80102026103000000010000000000000001a20007fa32000001a20007fa320100080000000000000000",
        "000000000bb80302026103000000010000000000000001a20007fb04000001a20007fa320100080000000000000000",  # aborts
        "000000000bb80501000001a20007fb05000001a20007fa320100080000000000000000",
        "000000000bb801020261020000000000000001a20007fb1d000001a20007fb1d0100080000000000000000",
        "000100000bb803020261020000000000000001a20007fd23000001a20007fb1d020008000000000000000002020002",  # a successor
        "000100000bb80501000001a20007fd25000001a20007fb1d020008000000000000000002020002",
        "000200000bb801020261020000000000000001a20007ff20000001a20007ff200100080000000000000000",
        "000300000bb803020261020000000000000001a200080f75000001a20007ff20020008000000000000000002020002",  # timed out
        "000300000bb80501000001a200080f7a000001a20007ff20020008000000000000000002020002",
        "000400000bb801020261020000000000000001a20008300e000001a20008300e0100080000000000000000",  # open
    )
]


def key(id: str) -> bytes:
    return struct.pack(">hh", 0, len(id)) + id.encode()


def rows(values: list[bytes | None], id: str = "app-x") -> list[Row]:
    return [Row("__transaction_state", 0, at, key(id), value, 0, ()) for at, value in enumerate(values)]


ALL = transactions("app-", rows([*LOG]))


def test_a_log_is_read_as_it_was_written() -> None:
    assert [(one.open_ms, one.committed, one.fenced) for one in ALL] == [
        (232, True, False),
        (210, False, False),
        (518, False, True),
        (4181, False, True),
        (None, False, False),
    ]
    assert {(one.id, one.producer, one.timeout_ms) for one in ALL} == {("app-x", 0, 3_000)}


def test_the_older_format_says_the_same() -> None:
    topic = struct.pack(">ih1sii", 1, 1, b"a", 1, 0)
    head = struct.Struct(">hqhib").pack
    times = struct.Struct(">qq").pack
    old = [
        head(0, 7, 0, 3_000, 1) + topic + times(100, 100),
        head(0, 7, 0, 3_000, 2) + topic + times(150, 100),
        head(0, 7, 0, 3_000, 4) + struct.pack(">i", 0) + times(160, 100),
    ]
    assert transactions("app-", rows([*old])) == [Transaction("app-x", 7, 0, 3_000, 100, 150, committed=True)]


def test_a_format_that_is_not_known_is_said_to_be() -> None:
    with pytest.raises(ValueError, match="version 2"):
        transactions("app-", rows([b"\0\2" + LOG[0][2:]]))


def test_other_applications_are_passed_over() -> None:
    assert transactions("app-", rows([*LOG], "other-x")) == []


def test_transactions_that_were_ended_in_time_pass() -> None:
    assert none_left_open(ALL[:3]) == none_timed_out(ALL[:3]) == none_older(ALL[:3], 600) == []


@pytest.mark.parametrize(
    ("kind", "check"),
    [("left-open", none_left_open), ("timed-out", none_timed_out), ("too-old", partial(none_older, most_ms=600))],
)
def test_one_that_was_not_is_found(kind: str, check: Callable[[list[Transaction]], Findings]) -> None:
    found = check(ALL)
    assert kinds(found) == {kind}
    assert len(found) == 1


def test_one_that_a_successor_has_ended_has_not_timed_out() -> None:
    assert none_timed_out(ALL[2:3]) == []


def test_an_id_is_expired_until_it_is_used_again() -> None:
    assert expired("app-", rows([*LOG])) == set()
    assert expired("app-", rows([*LOG, None])) == {"app-x"}
    assert expired("app-", rows([*LOG, None, LOG[0]])) == set()
