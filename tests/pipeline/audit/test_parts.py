"""The parts of an audit that need neither Kafka nor Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from milestones import SessionWindows, StreamsBuilder, TimeWindows, UnlimitedWindows, serdes
from milestones.cli.spark.audit import audit as command
from milestones.common.config import StreamsConfig
from milestones.common.records import TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.row_headers import timed_row
from milestones.common.windowed import END_AND_START, START_AND_SEQUENCE
from milestones.instance.application import Application
from milestones.pipeline.audit.computed import computed_records
from milestones.pipeline.audit.folding import beside, difference
from milestones.pipeline.audit.page import page
from milestones.pipeline.audit.report import Audited, AuditReport, Finding
from milestones.pipeline.audit.rows import ACTUAL, Problem, batches
from milestones.pipeline.audit.texts import LONGEST, Texts, text


def test_two_sorted_stores_are_walked_side_by_side() -> None:
    one = [(b"a", b"1"), (b"b", b"2"), (b"d", b"4")]
    other = [(b"b", b"2"), (b"c", b"3"), (b"d", b"5"), (b"e", b"6")]
    assert list(beside(iter(one), iter(other))) == [
        (b"a", b"1", None), (b"b", b"2", b"2"), (b"c", None, b"3"), (b"d", b"4", b"5"), (b"e", None, b"6"),
    ]  # fmt: skip
    assert list(beside(iter([]), iter([]))) == []


def test_an_entry_is_lost_unexpected_or_wrong() -> None:
    assert difference(b"1", None) is Problem.LOST
    assert difference(None, b"1") is Problem.UNEXPECTED
    assert difference(b"1", b"2") is Problem.WRONG


def test_rows_travel_in_batches_with_their_types() -> None:
    rows = [("t", 0, offset, b"k", None, 5, None) for offset in range(50_000)]
    found = list(batches(rows, ACTUAL))
    assert [batch.num_rows for batch in found] == [20_000, 20_000, 10_000]
    assert found[0].schema == ACTUAL
    assert list(batches([], ACTUAL)) == []


def test_a_partition_to_which_nothing_was_written_has_no_records(tmp_path: Path) -> None:
    assert list(computed_records(tmp_path.as_uri(), TopicPartition("t", 3))) == []


# -- texts


def test_what_people_read_is_decoded_shortened_and_never_fails() -> None:
    assert text(serdes.LONG, "t", (7).to_bytes(8, "big")) == "7"
    assert text(serdes.LONG, "t", b"x") == "b'x'"
    assert text(None, "t", b"x") == "b'x'"
    assert text(serdes.STRING, "t", None) == "nothing"
    assert len(text(serdes.STRING, "t", b"x" * 1000)) == LONGEST


def test_examples_name_the_input_record_and_decode_by_the_sink_or_the_store() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key().count("counts")
    counts.to_stream().to("out", value=serdes.LONG)
    config = StreamsConfig(application_id="app", bootstrap_servers="localhost:1")
    texts = Texts(Application.of(builder.build(), config))
    expected = {
        "topic": "out", "partition": 1, "key": b"k", "value": (3).to_bytes(8, "big"), "time": 5, "source": "in",
        "source_partition": 0, "source_offset": 17,
    }  # fmt: skip
    found = texts.of_output(Problem.LOST, expected, None)
    assert (found.where, found.key, found.expected, found.source) == ("out-1", "'k'", "3", "in-0@17")
    actual = {**expected, "offset": 9, "value": (4).to_bytes(8, "big")}
    assert texts.of_output(Problem.WRONG, expected, actual).where == "out-1@9"
    row = {"topic": "app-counts-changelog", "partition": 1, "key": b"k", "what": "wrong"}
    entry = texts.of_entry("counts", {**row, "value": (5).to_bytes(8, "big") + (1).to_bytes(8, "big"), "other": None})
    assert (entry.expected, entry.actual) == ("1 of 5", "nothing")
    assert StoreSpec("x").kind == "key-value"


def test_an_entry_is_shown_with_its_headers() -> None:
    builder = StreamsBuilder()
    builder.table("in", "rows", key=serdes.STRING, value=serdes.STRING)
    said: Any = {"application_id": "app", "bootstrap_servers": "localhost:1", "dsl_store_format": "headers"}
    texts = Texts(Application.of(builder.build(), StreamsConfig(**said)))
    row = {"topic": "t", "partition": 1, "key": b"k", "what": "wrong", "other": timed_row(b"v", 5, None)}
    entry = texts.of_entry("rows", {**row, "value": timed_row(b"v", 5, [("h", b"x")])})
    assert (entry.expected, entry.actual) == ("'v' of 5 with [('h', b'x')]", "'v' of 5")


@pytest.mark.parametrize(
    ("windows", "tail", "shown"),
    [
        (TimeWindows(10, grace=0), START_AND_SEQUENCE.pack(20, 0), "'k' from 20 to 30"),
        (UnlimitedWindows(20), START_AND_SEQUENCE.pack(20, 0), "'k' from 20"),
        (SessionWindows(10, grace=0), END_AND_START.pack(25, 20), "'k' from 20 to 25"),
    ],
)
def test_the_key_of_a_window_is_shown_with_its_window(windows: Any, tail: bytes, shown: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    stream.group_by_key().windowed_by(windows).count("counts")
    texts = Texts(Application.of(builder.build(), StreamsConfig(application_id="app", bootstrap_servers="localhost:1")))
    row = {"topic": "t", "partition": 1, "key": b"k" + tail, "what": "lost", "value": None, "other": None}
    assert texts.of_entry("counts", row).key == shown


# -- the page

FINDING = Finding(Problem.WRONG, "out-0@5", "'<b>'", "1", "<script>", "in-0@3", 1_700_000_000_000)


def report(counts: dict[Problem, int], *doubts: str) -> AuditReport:
    timeline = [(1_700_000_000_000 + 1000 * number, number) for number in range(5)]
    topic = Audited("out", 10, 9, counts, doubts, [FINDING] if counts else [], timeline)
    stores = [Audited("counts", 3, 3, {})]
    return AuditReport("app <1>", "exactly_once_v2", [topic], stores, {"in-0": 10}, 1.5, ["a & b"])


def test_the_page_says_what_is_wrong_and_shows_records_as_text() -> None:
    found = page(report({Problem.WRONG: 2, Problem.LOST: 1_000}))
    assert "1,002 problems" in found
    assert "app &lt;1&gt;" in found
    assert "&lt;script&gt;" in found
    assert "<script>" not in found
    assert "a &amp; b" in found
    assert len(re.findall("<svg", found)) == 2


def test_the_page_says_that_nothing_is_wrong() -> None:
    found = page(report({}))
    assert "Nothing is wrong" in found
    assert len(re.findall("<svg", found)) == 1


def test_differences_with_a_doubt_are_not_wrong() -> None:
    doubtful = report({Problem.LOST: 3}, "its caches emit the last update")
    assert (doubtful.ok, doubtful.wrong, doubtful.doubtful) == (True, 0, 3)
    assert "its caches emit" in page(doubtful)


@pytest.mark.parametrize("text", ["orders", "orders-0", "orders=5", "orders-x=5", "orders-0=x", "-0=1"])
def test_a_beginning_that_cannot_be_read_is_refused(text: str) -> None:
    from click.testing import CliRunner

    result = CliRunner().invoke(command, ["app.py", "--begin", text])
    assert (result.exit_code, "TOPIC-PARTITION=OFFSET" in re.sub(r"\s+", "", result.output)) == (2, True)
