"""What Kafka's client would change silently, or crash of, is refused where the record can still be named."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from milestones.common.records import Output
from milestones.common.writable import first_timestamp, headers_of, timestamp_of, writable

LETTER = Output("letters", -1, b"k", b"v", 5, [("a", b"1"), ("a", None)], "sink")


class Whole:
    """Another library's integer."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize("timestamp", [0, 1, (1 << 63) - 1])
def test_a_timestamp_of_64_bits_is_taken(timestamp: int) -> None:
    assert timestamp_of(timestamp) == timestamp


def test_an_integer_of_another_library_becomes_an_int() -> None:
    assert type(timestamp_of(Whole())) is int  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timestamp", "says"), [(-1, "negative timestamp -1"), (1.5, "1.5, which isn't an int"), (1 << 63, "64 bits"),
                            (None, "None, which isn't an int")],
)  # fmt: skip
def test_any_other_timestamp_is_refused(timestamp: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        timestamp_of(timestamp)


@pytest.mark.parametrize("headers", [[], [("", b"")], [("é", None), ("é", b"\0")]])
def test_headers_that_are_written_as_they_are_pass(headers: Any) -> None:
    assert headers_of(headers) == headers


@pytest.mark.parametrize(
    ("header", "says"),
    [(("a\0b", b""), "has a NUL"), (("\ud800", b""), "UTF-8"), ((b"a", b""), "isn't a str"),
     (("a", "x"), "neither bytes"), (("a", bytearray()), "neither bytes"), (("a",), "isn't a pair"),
     (["a", b""], "isn't a pair"), ("ab", "isn't a pair")],
)  # fmt: skip
def test_any_other_header_is_refused(header: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        headers_of([("fine", b""), header])


def test_an_output_of_user_code_passes_as_it_will_be_written() -> None:
    assert writable(LETTER) == LETTER
    assert writable(LETTER._replace(timestamp=-1)).timestamp == -1
    assert writable(LETTER._replace(timestamp=0)).timestamp == 1


@pytest.mark.parametrize(
    "change",
    [{"topic": ""}, {"topic": None}, {"topic": "a\0"}, {"topic": "\ud800"}, {"key": "k"}, {"value": 5},
     {"timestamp": 0.5}, {"timestamp": -2}, {"partition": -2}, {"partition": None}, {"headers": [("a", "x")]}],
    ids=str,
)  # fmt: skip
def test_any_other_output_of_user_code_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"output|timestamp|header"):
        writable(LETTER._replace(**change))


def test_the_first_timestamp_of_0_is_told(caplog: pytest.LogCaptureFixture) -> None:
    first_timestamp.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [first_timestamp(), first_timestamp()] == [1, 1]
    assert [line.getMessage().count("timestamp 0") for line in caplog.records] == [1]


def test_a_name_of_a_header_that_is_refused_here_ends_the_process_in_the_client() -> None:
    """Why it is looked at. When this fails the client is mended, and the look can go."""
    code = "p = __import__('confluent_kafka').Producer({}); p.produce('t', headers=[('\\ud800', b'')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode < 0
