"""A running application on a real broker: outputs that are refused, and its metrics."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest

from milestones import Streams, StreamsBuilder, StreamsState, serdes
from milestones.cli.main import invoke
from milestones.common.errors import ConfigError, ProductionError
from milestones.common.metrics import summed
from milestones.testing import KafkaRecord
from tests.milestones.app import WAIT_S, App

pytestmark = pytest.mark.kafka

TOO_LARGE = 1_100_000
"""Bytes: more than a client sends by default (producer_message_max_bytes)."""
LATE = 4_000_000_000_000
"""ms; a day in 2096"""
PUNCTUAL = {"message.timestamp.after.max.ms": "3600000"}
BOTH = pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
SKIP: Any = {"production_exception_handler": "log_and_continue"}


@pytest.fixture
def topics(app: App) -> App:
    """in, which takes any time, out and letters."""
    return app.create({"in": 2}, **{"message.timestamp.after.max.ms": str(2**62)}).create({"letters": 1})


def topology(app: App) -> StreamsBuilder:
    """in -> a value of as many bytes as the record says -> out."""
    builder = StreamsBuilder()
    lines = builder.stream(app["in"], key=serdes.STRING, value=serdes.STRING)
    lines.map_values(lambda size: "x" * int(size)).to(app["out"], key=serdes.STRING, value=serdes.STRING)
    return builder


def skipping(app: App, **settings: Any) -> Streams:
    """A started instance that skips what is refused, with a dead letter."""
    return app.start(topology(app), errors_dead_letter_queue_topic_name=app["letters"], **SKIP, **settings)


def sizes(records: list[KafkaRecord]) -> list[int]:
    return [len(record.value or b"") for record in records]


@BOTH
def test_a_record_too_large_for_the_client_is_skipped_alone_with_a_dead_letter(topics: App, guarantee: str) -> None:
    topics.create({"out": 1}).write("1", str(TOO_LARGE), "2")
    streams = skipping(topics, processing_guarantee=guarantee)
    assert sizes(topics.take("out", 2)) == [1, 2]
    (letter,) = topics.take("letters", 1)
    assert streams.state is StreamsState.RUNNING
    assert (letter.key, letter.value) == (b"key", None)  # as large as the record, it would be refused as well
    assert b"Message size too large" in (dict(letter.headers)["__streams.errors.message"] or b"")


@BOTH
def test_a_record_too_large_for_the_client_ends_the_application_by_default(topics: App, guarantee: str) -> None:
    topics.create({"out": 1}).write(str(TOO_LARGE))
    streams = topics.start(topology(topics), processing_guarantee=guarantee)
    assert streams.wait(WAIT_S)
    assert streams.state is StreamsState.ERROR
    assert isinstance(streams.error, ProductionError)
    assert "set production_exception_handler" in str(streams.error)


@pytest.mark.parametrize("small", [{}, {"producer_message_max_bytes": 1300}])
def test_a_record_too_large_for_the_broker_is_skipped_alone_at_least_once(topics: App, small: dict[str, int]) -> None:
    topics.create({"out": 1}, **{"max.message.bytes": "1500"}).write("1", "5000", "2")
    streams = topics.start(topology(topics), **SKIP, processing_guarantee="at_least_once", **small)
    assert sizes(topics.take("out", 2)) == [1, 2]
    assert streams.state is StreamsState.RUNNING


def test_a_batch_too_large_for_the_broker_ends_the_application_with_what_to_do(topics: App) -> None:
    guarantee = "exactly_once_v2"
    topics.create({"out": 1}, **{"max.message.bytes": "1500"}).write("1", "5000", "2")
    with topics.running(topology(topics), **SKIP, processing_guarantee=guarantee) as streams:
        assert streams.wait(WAIT_S)
    assert isinstance(streams.error, ProductionError)
    assert topics["out"] in str(streams.error)
    assert "set producer_message_max_bytes to 200 less" in str(streams.error)
    streams = topics.start(topology(topics), **SKIP, processing_guarantee=guarantee, producer_message_max_bytes=1300)
    assert sizes(topics.take("out", 2)) == [1, 2]
    assert streams.state is StreamsState.RUNNING


@pytest.mark.parametrize(
    ("guarantee", "stage"), [("at_least_once", "baseline"), ("exactly_once_v2", "fencing_tolerance")]
)
def test_an_output_that_the_broker_refuses_is_skipped_with_a_dead_letter_where_its_transaction_outlives_that(
    topics: App, guarantee: str, stage: str
) -> None:
    topics.create({"out": 1}, **PUNCTUAL).write("7", timestamp=LATE)
    streams = skipping(topics, processing_guarantee=guarantee, milestones=stage)
    (letter,) = topics.take("letters", 1)
    topics.write("2")
    assert sizes(topics.take("out", 1)) == [2]
    assert streams.state is StreamsState.RUNNING
    topics.until(lambda: summed(streams.metrics(), "stream-task-metrics", "dropped-records-total"), "one is dropped")
    assert summed(streams.metrics(), "stream-task-metrics", "dropped-records-total") == 1
    assert (letter.key, letter.value) == (b"key", b"x" * 7)
    assert 0 < letter.timestamp < LATE


@pytest.mark.parametrize("stage", ["baseline", "m2", "fencing_tolerance"])
def test_an_output_that_the_broker_refuses_takes_no_other_of_its_batch_with_it(topics: App, stage: str) -> None:
    topics.create({"out": 1}, **PUNCTUAL)
    topics.write("1", "2")
    topics.write("7", timestamp=LATE)
    topics.write("3", "4")
    streams = skipping(topics, processing_guarantee="at_least_once", milestones=stage, producer_linger_ms=50)
    (letter,) = topics.take("letters", 1)
    assert sizes(topics.take("out", 4)) == [1, 2, 3, 4]
    topics.write("5")
    assert sizes(topics.take("out", 1)) == [5]
    assert streams.state is StreamsState.RUNNING
    assert letter.value == b"x" * 7


def failing(app: App) -> StreamsBuilder:
    """in -> out, but for values that begin with x: the error's text has all of them."""

    def checked(value: str) -> str:
        if value.startswith("x"):
            raise ValueError(f"bad value: {value}")
        return value

    builder = StreamsBuilder()
    lines = builder.stream(app["in"], key=serdes.STRING, value=serdes.STRING)
    lines.map_values(checked).to(app["out"], key=serdes.STRING, value=serdes.STRING)
    return builder


def skipping_failures(app: App, **settings: Any) -> Streams:
    letters = {"errors_dead_letter_queue_topic_name": app["letters"]}
    return app.start(failing(app), processing_exception_handler="log_and_continue", **letters, **settings)


@BOTH
@pytest.mark.parametrize("size", [400_000, 999_000])
def test_a_record_is_a_dead_letter_as_a_whole_however_long_the_text_of_its_error_is(
    topics: App, guarantee: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    topics.create({"out": 1}).write("good", "x" * size, "after")
    streams = skipping_failures(topics, processing_guarantee=guarantee)
    assert sorted(sizes(topics.take("out", 2))) == [4, 5]
    (letter,) = topics.take("letters", 1)
    assert streams.state is StreamsState.RUNNING
    assert (letter.key, len(letter.value or b"")) == (b"key", size)
    assert dict(letter.headers)["__streams.errors.exception"] == b"ValueError"
    assert len(caplog.text) < 60_000


@pytest.mark.parametrize("stage", ["baseline", "m6"])
def test_what_becomes_of_a_dead_letter_that_is_larger_than_its_topic_takes_is_for_the_production_handler(
    topics: App, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics.create({"out": 1}).write("good", "x" * 5_000, "after")
    small: Any = {"producer_message_max_bytes": 2_000, "milestones": stage}
    with topics.running(failing(topics), processing_exception_handler="log_and_continue", **small,
                        errors_dead_letter_queue_topic_name=topics["letters"]):  # fmt: skip
        topics.until(lambda: "a dead letter has key, value and headers of its record" in caplog.text, "it is told")
    streams = skipping_failures(topics, **SKIP, **small)
    assert sorted(sizes(topics.take("out", 2))) == [4, 5]
    assert streams.state is StreamsState.RUNNING


@BOTH
def test_an_application_shows_right_totals_in_code_and_to_prometheus(topics: App, guarantee: str) -> None:
    topics.create({"out": 1}).write(*["10"] * 500, str(TOO_LARGE))
    settings = {"processing_guarantee": guarantee, "metrics_port": 0, "metrics_recording_level": "DEBUG"}
    with topics.running(topology(topics), **SKIP, **settings) as streams:
        assert len(topics.take("out", 500)) == 500

        def total(group: str, name: str) -> float:
            return summed(streams.metrics(), group, name)

        topics.until(lambda: total("stream-task-metrics", "process-total") >= 501, "all are counted")
        topics.until(lambda: not total("consumer-fetch-manager-metrics", "records-lag"), "no lag is left")
        topics.until(lambda: total("stream-thread-metrics", "commit-total"), "a commit is counted")
        assert total("stream-task-metrics", "process-total") == 501
        assert total("stream-thread-metrics", "process-total") == 501
        assert total("stream-task-metrics", "dropped-records-total") == 1
        assert total("stream-processor-node-metrics", "process-total") == 3 * 501
        assert total("stream-thread-metrics", "blocked-time-ns-total") > 0
        assert total("stream-thread-metrics", "failed-stream-threads") == 0
        assert total("consumer-coordinator-metrics", "assigned-partitions") == 2
        (client,) = streams.metrics()["stream-metrics"]
        assert (client["metrics"]["state"], client["metrics"]["alive-stream-threads"]) == ("RUNNING", 1)
        assert streams.metrics_address is not None
        host, port = streams.metrics_address
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert 'kafka_stream_state_info{' in text
        assert 'value="RUNNING"' in text
        lines = [line for line in text.splitlines() if line.startswith("kafka_stream_task_process_total{")]
        assert sum(float(line.rsplit(" ", 1)[1]) for line in lines) == 501
    assert set(streams.metrics()) == {"stream-metrics"}
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10)


@pytest.mark.parametrize("stage", ["baseline", "m3"])
def test_the_lag_of_topics_written_in_transactions_gets_back_to_0_once_all_is_processed(app: App, stage: str) -> None:
    """The markers of transactions are nobody's records."""
    app.create({"in": 2})
    for word in "abc":
        for partition in range(2):
            app.probe.write(app["in"], word, key=word, partition=partition, transactional_id=app.id)
    builder = StreamsBuilder()
    words = builder.stream(app["in"], key=serdes.STRING, value=serdes.STRING)
    words.group_by(lambda _, word: word, key=serdes.STRING).count("counts")
    streams = app.start(builder, milestones=stage, processing_guarantee="exactly_once_v2")

    def lags() -> dict[tuple[str, str], float]:
        entries = streams.metrics().get("consumer-fetch-manager-metrics", ())
        return {(e["tags"]["topic"], e["tags"]["partition"]): e["metrics"]["records-lag"] for e in entries}

    def processed() -> bool:
        """Six inputs, each of them twice: before and after the repartition topic."""
        return summed(streams.metrics(), "stream-task-metrics", "process-total") >= 12 and not any(lags().values())

    app.until(processed, "all is processed, no lag is left")
    assert {topic for topic, _ in lags()} == {app["in"], f"{app.id}-counts-repartition"}


def test_a_metrics_port_that_is_taken_is_an_error_at_start_that_leaves_nothing_behind(topics: App) -> None:
    first = topics.create({"out": 1}).start(topology(topics), metrics_port=0)
    assert first.metrics_address is not None
    port = first.metrics_address[1]
    second = topics.streams(topology(topics), "second", metrics_port=port)
    with pytest.raises(ConfigError, match=rf"metrics_port={port}: can't listen on 127.0.0.1.*choose another"):
        second.start()
    second.close()
    topics.streams(topology(topics), "second").close()


def test_a_state_directory_from_before_a_reset_does_not_falsify_counts_however_long_the_new_changelog_is(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.create({"in": 1, "out": 1})

    def counted(keys: str, directory: str) -> dict[str, int]:
        """The latest count of each key once these are counted as well."""
        with app.running(app.counting(), directory, statestore_cache_max_bytes=0):
            for key in keys:
                app.write("x", key=key)
            found = app.take("out", len(keys))
        return {(record.key or b"").decode(): int.from_bytes(record.value or b"") for record in found}

    assert counted("a" + "b" * 10, "before") == {"a": 1, "b": 10}
    state = str(app.path / "after")
    reset = ["reset", "-a", app.id, "-b", app.kafka, "-s", f"state_dir={state}", "--to", "latest", "--execute"]
    assert invoke(reset) == 0
    assert counted("aaa" + "b" * 30, "after") == {"a": 3, "b": 30}
    assert counted("ab", "before") == {"a": 4, "b": 31}
    assert "was deleted and made anew" in caplog.text
