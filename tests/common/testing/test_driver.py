"""The topology test driver: what a user's tests may rely on."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from milestones import Streams
from milestones.common import serdes
from milestones.common.errors import ConfigError, ProcessingError, StateError, TopologyError
from milestones.common.records import Record
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.testing import TopologyTestDriver
from milestones.common.topology import Processor, StreamsBuilder, Topology
from milestones.common.topology.handlers import LogAndContinue
from tests.common.topology.programs import word_count as words

START = 1_000_000
TEXT, LONG = serdes.STRING, serdes.LONG


def echo(**source: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", **{"key": TEXT, "value": TEXT, **source}).to("out")
    return builder.build()


@pytest.fixture
def counting() -> Any:
    with TopologyTestDriver(words(), start_time_ms=START) as driver:
        yield (
            driver,
            driver.create_input_topic("lines", value=TEXT),
            driver.create_output_topic("word-counts", key=TEXT, value=LONG),
        )


def test_a_word_count_runs_through_its_repartition_topic(counting: Any) -> None:
    driver, lines, counts = counting
    lines.pipe(None, "to be or not to be")
    assert counts.read_key_values() == [("to", 1), ("be", 1), ("or", 1), ("not", 1), ("to", 2), ("be", 2)]
    assert sorted(driver.produced()) == [
        "topology-test-driver-counts-changelog", "topology-test-driver-counts-repartition", "word-counts",
    ]  # fmt: skip


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1])
def test_a_time_that_no_record_can_have_is_refused_with_its_topic(counting: Any, timestamp: int) -> None:
    _, words, _ = counting
    with pytest.raises(ValueError, match=f"timestamp={timestamp} is no time of a record: it has 64 bits"):
        words.pipe(None, "a", timestamp=timestamp)


@pytest.mark.parametrize("persistent", [False, True])
def test_stores_are_in_memory_or_on_disk(persistent: bool) -> None:
    with TopologyTestDriver(words(), persistent=persistent) as driver:
        driver.create_input_topic("lines", value=TEXT).pipe(None, "a b a", timestamp=9)
        store = driver.store("counts")
        assert list(store.all()) == [("a", ValueAndTimestamp(2, 9)), ("b", ValueAndTimestamp(1, 9))]
        assert store.approximate_num_entries() >= 2


def test_a_test_may_fill_a_store_and_the_topology_sees_it(counting: Any) -> None:
    driver, lines, counts = counting
    driver.store("counts").put("a", ValueAndTimestamp(41, 5))
    lines.pipe(None, "a")
    assert counts.read_key_values_to_map() == {"a": 42}
    log = driver.create_output_topic("topology-test-driver-counts-changelog", key=TEXT, value=LONG)
    assert log.read_key_values() == [("a", 41), ("a", 42)]


def test_an_unknown_store_or_input_topic_is_named_with_those_there_are(counting: Any) -> None:
    driver, _, _ = counting
    with pytest.raises(KeyError, match=r"no store 'count'; there are \['counts'\]"):
        driver.store("count")
    with pytest.raises(ValueError, match=r"no source reads topic 'line', only \['lines', 'topology"):
        driver.create_input_topic("line")


def test_records_are_read_once_in_order(counting: Any) -> None:
    _, lines, counts = counting
    assert counts.is_empty()
    lines.pipe(None, "a b")
    assert (counts.size(), len(counts)) == (2, 2)
    assert counts.read_key_value() == ("a", 1)
    assert counts.read_value() == 1
    assert counts.is_empty()
    with pytest.raises(LookupError, match=r"topic word-counts has no record left to read; topics written to: topology"):
        counts.read_record()


def test_a_record_has_its_time_and_headers() -> None:
    with TopologyTestDriver(echo()) as driver:
        topic = driver.create_input_topic("in", key=TEXT, value=TEXT)
        topic.pipe("k", "v", timestamp=5, headers=[("h", b"1"), ("h", None)])
        out = driver.create_output_topic("out", key=TEXT, value=TEXT)
        assert out.read_record() == Record("k", "v", 5, [("h", b"1"), ("h", None)])


def test_records_are_piped_with_their_times_and_headers() -> None:
    records = [Record("k", "v", 5, [("h", b"1")]), Record("l", "w", 3, [])]
    with TopologyTestDriver(echo()) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe_records(records)
        assert driver.create_output_topic("out", key=TEXT, value=TEXT).read_records() == records


def test_a_topics_time_begins_now_or_where_it_is_told_and_advances_by_itself() -> None:
    with TopologyTestDriver(echo(), start_time_ms=START) as driver:
        out = driver.create_output_topic("out", key=TEXT, value=TEXT)
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe_values(["a", "b"])
        steps = driver.create_input_topic("in", key=TEXT, value=TEXT, start_time_ms=10, advance_ms=5)
        steps.pipe_all([("k", "c"), ("k", "d")])
        steps.advance(100)
        steps.pipe("k", "e")
        assert [record.timestamp for record in out.read_records()] == [START, START, 10, 15, 120]
        for wrong in (lambda: steps.advance(-1), lambda: driver.create_input_topic("in", advance_ms=-1)):
            with pytest.raises(ValueError, match=r"time can't go back"):
                wrong()


def test_serdes_are_the_applications_else_bytes() -> None:
    with TopologyTestDriver(echo(), {"default_key_serde": TEXT}) as driver:
        driver.create_input_topic("in").pipe("k", b"v")
        assert driver.create_output_topic("out").read_key_value() == ("k", b"v")


def test_a_map_has_the_last_value_of_each_key_and_no_absent_key() -> None:
    with TopologyTestDriver(echo()) as driver:
        topic = driver.create_input_topic("in", key=TEXT, value=TEXT)
        out = driver.create_output_topic("out", key=TEXT, value=TEXT)
        topic.pipe_all([("a", "1"), ("a", "2"), ("b", None)])
        assert out.read_key_values_to_map() == {"a": "2", "b": None}
        topic.pipe(None, "1")
        with pytest.raises(ValueError, match=r"topic out has a record without a key"):
            out.read_key_values_to_map()


def punctuating(kind: str, calls: list[int]) -> Topology:
    class Punctuating(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(timedelta(seconds=10), kind, self.punctuate)

        def punctuate(self, now: int) -> None:
            calls.append(now)
            self.context.forward(Record("now", str(now), now))

        def process(self, record: Record) -> None: ...

    builder = StreamsBuilder()
    again = builder.stream("in", key=TEXT, value=TEXT).process(Punctuating).repartition(key=TEXT, value=TEXT)
    again.to("out")
    return builder.build()


def test_wall_clock_punctuations_come_with_the_virtual_time_and_so_does_what_follows() -> None:
    calls: list[int] = []
    with TopologyTestDriver(punctuating("wall-clock-time", calls), start_time_ms=START) as driver:
        driver.advance_wall_clock(9_999)
        assert calls == []
        driver.advance_wall_clock(1)
        driver.advance_wall_clock(timedelta(seconds=35))
        assert calls == [START + 10_000, START + 45_000]
        out = driver.create_output_topic("out", key=TEXT, value=TEXT)
        assert out.read_values() == [str(now) for now in calls]


def test_stream_time_punctuations_come_with_the_records() -> None:
    calls: list[int] = []
    with TopologyTestDriver(punctuating("stream-time", calls)) as driver:
        topic = driver.create_input_topic("in", key=TEXT, value=TEXT)
        for timestamp in (3, 9_999, 10_000, 12_000, 39_000):
            topic.pipe("k", "v", timestamp=timestamp)
        driver.advance_wall_clock(10**9)
        assert calls == [3, 10_000, 39_000]


def test_an_error_of_the_topology_comes_out_of_pipe() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=TEXT).map_values(int).to("out", value=LONG)
    topology = builder.build()
    with TopologyTestDriver(topology) as driver:
        topic = driver.create_input_topic("in", value=TEXT)
        with pytest.raises(ProcessingError, match=r"node KSTREAM-MAPVALUES-0000000001, record in-0@0: ValueError"):
            topic.pipe(None, "x")
    settings = {"processing_exception_handler": "log_and_continue", "errors_dead_letter_queue_topic_name": "dead"}
    with TopologyTestDriver(topology, settings) as driver:
        driver.create_input_topic("in", value=TEXT).pipe_values(["x", "5"])
        assert driver.create_output_topic("out", value=LONG).read_values() == [5]
        assert driver.create_output_topic("dead", value=TEXT).read_values() == ["x"]


def test_max_task_idle_ms_makes_a_task_wait_for_the_other_partition_in_virtual_time() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"], value=TEXT).to("out")
    with TopologyTestDriver(builder.build(), {"max_task_idle_ms": 100}) as driver:
        a, b = (driver.create_input_topic(name, value=TEXT) for name in "ab")
        out = driver.create_output_topic("out", value=TEXT)
        a.pipe(None, "late", timestamp=9)
        assert out.is_empty()
        b.pipe(None, "early", timestamp=1)
        assert out.read_values() == ["early"]
        driver.advance_wall_clock(100)
        assert out.read_values() == ["late"]


def test_a_cached_store_emits_with_the_commit_of_each_record() -> None:
    with TopologyTestDriver(words(), {"statestore_cache_max_bytes": 1_000_000}) as driver:
        driver.create_input_topic("lines", value=TEXT).pipe(None, "a a")
        assert driver.create_output_topic("word-counts", key=TEXT, value=LONG).read_values() == [1, 2]


def test_an_aggregator_may_change_its_aggregate_in_place() -> None:
    def append(key: Any, value: Any, all_: list[Any]) -> list[Any]:
        all_.append(value)
        return all_

    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    grouped.aggregate(list, append, value=serdes.JSON).to_stream().to("out", value=serdes.JSON)
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe_all([("a", "1"), ("b", "2"), ("a", "3")])
        out = driver.create_output_topic("out", key=TEXT, value=serdes.JSON)
        assert out.read_key_values() == [("a", ["1"]), ("b", ["2"]), ("a", ["1", "3"])]


def test_a_pattern_reads_the_topics_that_exist() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*"), value=TEXT).to("out")
    with TopologyTestDriver(builder.build(), topics=["in-1", "in-2", "other"]) as driver:
        driver.create_input_topic("in-1", value=TEXT).pipe(None, "a")
        driver.create_input_topic("in-2", value=TEXT).pipe(None, "b")
        assert driver.create_output_topic("out", value=TEXT).read_values() == ["a", "b"]
        with pytest.raises(ValueError, match=r"no source reads topic 'other'"):
            driver.create_input_topic("other")


def test_what_a_topology_writes_to_its_own_source_loops_back() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", value=LONG)
    numbers.filter(lambda _, value: value > 0).map_values(lambda value: value - 1).to("numbers", value=LONG)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("numbers", value=LONG).pipe(None, 3)
        assert driver.create_output_topic("numbers", value=LONG).read_values() == [2, 1, 0]


def test_settings_are_keywords_or_a_dict_and_keywords_win() -> None:
    with TopologyTestDriver(words(), {"poll_ms": 5, "max_task_idle_ms": 5}, max_task_idle_ms=7) as driver:
        assert (driver.config.poll_ms, driver.config.max_task_idle_ms) == (5, 7)


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_task_idle_ms"):
        TopologyTestDriver(words(), {"max_task_idle_ms": "soon"})
    with pytest.raises(ConfigError, match=r"max_task_idel_ms"):
        TopologyTestDriver(words(), max_task_idel_ms=1)


def test_closing_closes_processors_once_and_shuts_the_stores() -> None:
    closed: list[str] = []

    class Closing(Processor):
        def process(self, record: Record) -> None: ...

        def close(self) -> None:
            closed.append("closed")

    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.process(Closing)
    stream.group_by_key().count("counts")
    driver = TopologyTestDriver(builder.build())
    store = driver.store("counts")
    driver.close()
    driver.close()
    assert closed == ["closed"]
    with pytest.raises((StateError, Exception), match=r"isn't open|is closed"):
        store.get("a")


def test_a_topology_that_cant_be_compiled_leaves_nothing_open() -> None:
    class Greedy(Processor):
        def init(self, context: Any) -> None:
            context.get_state_store("nobodys")

        def process(self, record: Record) -> None: ...

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Greedy)
    with pytest.raises((TopologyError, ProcessingError), match=r"no access to the store nobodys"):
        TopologyTestDriver(builder.build(), persistent=True)


def test_a_builder_or_an_application_with_its_settings_may_be_tested_as_it_is() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    streams = Streams(builder, application_id="mine", default_key_serde="string", default_value_serde="string")
    with TopologyTestDriver(builder, default_key_serde=TEXT, default_value_serde=TEXT) as driver:
        driver.create_input_topic("in").pipe("a", "b")
        assert driver.create_output_topic("out").read_key_values() == [("a", "b")]
    with TopologyTestDriver(streams, max_task_idle_ms=5) as driver:
        driver.create_input_topic("in").pipe("a", "b")
        assert driver.create_output_topic("out").read_key_values() == [("a", "b")]
        assert (driver.config.application_id, driver.config.max_task_idle_ms) == ("mine", 5)
    with TopologyTestDriver(streams.topology, streams.config, poll_ms=5) as driver:
        assert (driver.config.application_id, driver.config.poll_ms) == ("mine", 5)


def test_what_cannot_be_tested_is_refused_with_what_can() -> None:
    with pytest.raises(TopologyError, match="a StreamsBuilder or a Streams"):
        TopologyTestDriver("words")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="call it"):
        TopologyTestDriver(words)  # type: ignore[arg-type]


def test_what_a_processor_forwards_when_it_begins_goes_all_the_way() -> None:
    class Greeting(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.forward(Record("hello", "world", START))

        def process(self, record: Record) -> None:
            self.context.forward(record)

    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).process(Greeting).group_by_key(key=TEXT, value=TEXT)
    grouped.count("counts").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        assert driver.create_output_topic("out", key=TEXT, value=LONG).read_key_values() == [("hello", 1)]


def test_the_dead_letter_of_a_record_that_is_skipped_is_there_at_once_whatever_else_its_task_reads() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=LONG).merge(builder.stream("more", key=TEXT, value=LONG)).to("out")
    with TopologyTestDriver(builder, deserialization_exception_handler=LogAndContinue("dead")) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("a", "no number")
        assert driver.create_output_topic("dead").read_value() == b"no number"
