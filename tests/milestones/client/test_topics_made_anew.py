"""A source topic that is deleted and made anew, on a real broker: all its records are processed, or the application
says what to do."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from milestones import StreamsBuilder, serdes
from milestones.common.errors import SourceTopicError
from milestones.testing import KafkaProbe
from tests.milestones.app import STAGES, WAIT_S, App

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

OLD = [f"old {number}" for number in range(5)]
KINDS = pytest.mark.parametrize("kind", ["by name", "by pattern"])


def topology(app: App, kind: str = "by name") -> StreamsBuilder:
    """in -> out; a store has all that came."""
    source: Any = app["in"] if kind == "by name" else re.compile(f"{app.id}-in.*")
    builder = StreamsBuilder()
    lines = builder.stream(source, key=serdes.STRING, value=serdes.STRING)
    lines.group_by(lambda _, line: line, key=serdes.STRING).count("counts").to_stream().to(
        app["out"], key=serdes.STRING, value=serdes.LONG
    )
    return builder


def processed(app: App) -> Counter[str]:
    return Counter((record.key or b"").decode() for record in KafkaProbe(app.kafka).read(app["out"]))


def make_anew(app: App, count: int, name: str = "in") -> list[str]:
    """Faster than any look at the topics; the records of the new one."""
    lines = [f"new {number}" for number in range(count)]
    app.probe.make_anew({app[name]: 1})
    app.write(*lines, to=name)
    return lines


def run_until_read(app: App, kind: str, **settings: Any) -> Any:
    app.create({"in": 1, "out": 1}).write(*OLD)
    streams = app.start(topology(app, kind), **settings)
    app.until(lambda: processed(app).keys() >= set(OLD), "what was there is processed")
    app.until(lambda: list(app.probe.committed(app.id).values()).count(5), "and committed")
    return streams


@STAGES
@KINDS
def test_more_records_than_were_read_before_are_all_processed_once_the_user_has_done_what_the_error_says(
    app: App, stage: str, guarantee: str, kind: str
) -> None:
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    streams = run_until_read(app, kind, **settings)
    new = make_anew(app, 8)
    assert streams.wait(WAIT_S)
    assert (type(streams.error), streams.error.exit_code) == (SourceTopicError, 2)
    assert f"source topic {app['in']} was deleted and made anew" in str(streams.error)
    assert f"milestones reset --only {app['in']} --execute" in str(streams.error)
    streams.close()

    again = app.start(topology(app, kind), **settings)
    assert again.wait(WAIT_S), "a start before that says the same"
    assert isinstance(again.error, SourceTopicError)
    assert "the committed offsets belong to the former topic" in str(again.error)
    again.close()

    app.reset("--only", app["in"])
    app.start(topology(app, kind), **settings)
    app.until(lambda: processed(app).keys() >= set(new), "all of the new topic is processed")
    assert processed(app)[OLD[0]] == 1, "state is kept, and nothing of the former topic comes again"


@STAGES
@pytest.mark.parametrize("count", [3, 5], ids=["fewer", "as many"])
def test_no_more_records_than_were_read_before_end_the_application_and_a_start_processes_them(
    app: App, stage: str, guarantee: str, count: int
) -> None:
    """The broker drops committed offsets together with their topic."""
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    streams = run_until_read(app, "by name", **settings)
    new = make_anew(app, count)
    assert streams.wait(WAIT_S)
    assert isinstance(streams.error, SourceTopicError)
    assert "made anew" in str(streams.error)
    streams.close()
    app.start(topology(app), **settings)
    app.until(lambda: processed(app).keys() >= set(new), "all of the new topic is processed")


@STAGES
def test_a_topic_that_was_made_anew_while_the_application_was_stopped_is_processed_from_its_start(
    app: App, stage: str, guarantee: str
) -> None:
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    run_until_read(app, "by name", **settings).close()
    new = make_anew(app, 8)
    app.start(topology(app), **settings)
    app.until(lambda: processed(app).keys() >= set(new), "all of the new topic is processed")


@STAGES
def test_a_topic_that_was_made_anew_under_a_stopped_application_that_begins_at_ends_is_told_and_nothing_is_skipped(
    app: App, stage: str, guarantee: str
) -> None:
    settings: dict[str, Any] = {
        "milestones": stage, "processing_guarantee": guarantee, "auto_offset_reset": "latest",
    }  # fmt: skip
    app.create({"in": 1, "out": 1})
    streams = app.start(topology(app), **settings)
    app.until(lambda: app.probe.committed(app.id), "where it begins is committed")
    app.write(*OLD)
    app.until(lambda: processed(app).keys() >= set(OLD), "what has come since is processed")
    streams.close()
    new = make_anew(app, 3)
    for _ in range(2):
        with pytest.raises(SourceTopicError, match=f"milestones reset --only {app['in']} --execute") as refused:
            app.start(topology(app), **settings)
        assert refused.value.exit_code == 2
    app.reset("--only", app["in"])
    app.start(topology(app), **settings).close()
    app.start(topology(app), **settings)
    app.until(lambda: processed(app).keys() >= set(new), "all of the new topic is processed")


def test_a_start_that_skips_records_says_how_many(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.create({"in": 1, "out": 1}).write(*OLD)
    app.start(topology(app), auto_offset_reset="latest")
    app.until(lambda: app.probe.committed(app.id), "where it begins is committed")
    assert f"{app['in']}-0 begins at offset 5: nothing is committed of it" in caplog.text
    assert "the 5 offsets before skipped" in caplog.text


@pytest.mark.parametrize("stage", ["baseline", "m6"])
@pytest.mark.parametrize("disk", ["kept", "empty"])
def test_tables_of_topics_that_were_made_anew_while_the_application_was_stopped_have_the_new_rows_alone(
    app: App, stage: str, disk: str
) -> None:
    """A table whose changelog is its input, and a global one."""

    def tables() -> StreamsBuilder:
        builder = StreamsBuilder()
        rows = builder.table(app["in"], "rows", key=serdes.STRING, value=serdes.STRING)
        everywhere = builder.global_table(app["global"], "everywhere", key=serdes.STRING, value=serdes.STRING)
        asked = builder.stream(app["ask"], key=serdes.STRING, value=serdes.STRING)
        both = asked.left_join(rows, lambda _, row: str(row)).left_join(
            everywhere, lambda row, other: f"{row} {other}", on=lambda key, _: key
        )
        both.to(app["out"], key=serdes.STRING, value=serdes.STRING)
        return builder

    def answer(key: str) -> str:
        app.write("?", to="ask", key=key)
        (record,) = app.take("out", 1)
        return (record.value or b"").decode()

    settings: dict[str, Any] = {"milestones": stage, "topology_optimization": "all"}
    names = {"in": 1, "global": 1}
    app.create({**names, "ask": 1, "out": 1})
    for name in names:
        app.write("former", to=name, key="a")
    streams = app.start(tables(), **settings)
    app.until(lambda: 1 in app.probe.committed(app.id).values(), "the row is processed")
    assert answer("a") == "former former"
    streams.close()
    for name in names:
        make_anew(app, 0, name)
        for value in ("first", "second", "last"):
            app.write(value, to=name, key="b")
    app.start(tables(), "one" if disk == "kept" else "another", **settings)
    app.until(lambda: 3 in app.probe.committed(app.id).values(), "the new rows are processed")
    assert (answer("a"), answer("b")) == ("None None", "last last")
