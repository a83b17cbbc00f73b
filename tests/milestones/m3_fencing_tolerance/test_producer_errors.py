"""The table of the client's errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.kafka.failures import ErrorClass, classify
from milestones.m3_fencing_tolerance.producer_errors import CALLS, TABLE, ProducerReaction, flag_of, reaction_to
from tests.milestones.fakes import kafka_error

PAGE = Path(__file__).parents[3] / "docs" / "fencing.md"
CODES = sorted(
    {value for name, value in vars(KafkaError).items() if name.strip("_").isupper() and isinstance(value, int)}
)
MARKS = {
    "fatal": {"fatal": True}, "abort": {"abort": True}, "retriable": {"retriable": True}, "none": {},
}  # fmt: skip


def of(code: int, flag: str) -> ProducerReaction:
    return reaction_to(kafka_error(code, **MARKS[flag]))


def test_every_code_with_every_mark_has_a_reaction() -> None:
    assert len(CODES) > 150
    assert {of(code, flag) for code in CODES for flag in MARKS} == set(ProducerReaction)


@pytest.mark.parametrize("flag", MARKS)
def test_a_fenced_producer_is_rebuilt_however_it_is_marked(flag: str) -> None:
    assert of(KafkaError._FENCED, flag) is ProducerReaction.REBUILD


@pytest.mark.parametrize(
    ("code", "flag", "expected"),
    [
        (KafkaError.ILLEGAL_GENERATION, "abort", ProducerReaction.ABORT),
        (KafkaError._INCONSISTENT, "abort", ProducerReaction.ABORT),
        (KafkaError._MSG_TIMED_OUT, "abort", ProducerReaction.ABORT),
        (KafkaError._TIMED_OUT, "retriable", ProducerReaction.RETRY),
        (KafkaError._TIMED_OUT, "fatal", ProducerReaction.REBUILD),
        (KafkaError._TRANSPORT, "none", ProducerReaction.RETRY),
        (KafkaError._STATE, "none", ProducerReaction.REBUILD),
        (KafkaError.INVALID_TXN_STATE, "fatal", ProducerReaction.REBUILD),
        (KafkaError.INVALID_PRODUCER_ID_MAPPING, "abort", ProducerReaction.REBUILD),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "fatal", ProducerReaction.FAIL),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "abort", ProducerReaction.FAIL),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "fatal", ProducerReaction.FAIL),
    ],
)
def test_errors_as_the_client_marks_them(code: int, flag: str, expected: ProducerReaction) -> None:
    assert of(code, flag) is expected


FINER = {
    ErrorClass.RETRIABLE: {ProducerReaction.RETRY, ProducerReaction.REBUILD, ProducerReaction.FAIL},
    ErrorClass.ABORTABLE: {ProducerReaction.ABORT, ProducerReaction.REBUILD, ProducerReaction.FAIL},
    ErrorClass.FATAL: {ProducerReaction.REBUILD, ProducerReaction.FAIL},
}


@pytest.mark.parametrize("flag", MARKS)
def test_the_table_repeats_and_aborts_only_what_other_stages_do(flag: str) -> None:
    errors = [kafka_error(code, **MARKS[flag]) for code in CODES]
    assert [error for error in errors if reaction_to(error) not in FINER[classify(error)]] == []


def test_an_exception_without_an_error_counts_as_a_dead_producer() -> None:
    assert reaction_to(KafkaException("?")) is ProducerReaction.REBUILD
    assert reaction_to(SystemError("returned NULL")) is ProducerReaction.REBUILD


def test_the_table_names_only_codes_that_the_client_has_and_calls_that_there_are() -> None:
    known = {KafkaError(code).name() for code in CODES}
    for line in TABLE:
        assert set(line.codes) <= known
        assert set(line.calls) <= set(CALLS)
    assert {call for line in TABLE for call in line.calls} == set(CALLS)


def test_marks_are_the_clients_own_but_for_brokers_that_are_away() -> None:
    assert flag_of(KafkaError(KafkaError._ALL_BROKERS_DOWN)).value == "retriable"


def test_the_page_about_fencing_shows_the_table() -> None:
    shown = [
        [cell.strip().replace("`", "") for cell in row.strip("|").split("|")]
        for row in re.findall(r"(?m)^\| .*\|$", PAGE.read_text(encoding="utf-8"))
    ]
    for line in TABLE:
        calls = "all" if line.calls == CALLS else ", ".join(line.calls)
        flags = "any" if len(line.flags) > 1 else next(iter(line.flags)).value
        codes = ", ".join(line.codes) or "all others"
        assert [calls, codes, flags, line.meaning, line.reaction.name.lower(), line.source] in shown, line
