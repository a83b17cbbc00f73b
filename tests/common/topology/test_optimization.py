"""Topology optimisation: where it is said, what it makes of a topology, and what it must not change. Names and records
are compared with Kafka Streams' by `python -m compat_tests.java`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.java.topologies import ALL
from milestones import (
    ConfigError,
    JoinWindows,
    Processor,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    TopologyError,
    serdes,
)
from milestones.common.topology.optimization import MERGE, REUSE, SELF_JOIN, parts_of
from milestones.testing import TopologyTestDriver

TEXT, LONG = serdes.STRING, serdes.LONG
WITHIN = JoinWindows(10, grace=5)
DEFAULTS: dict[str, Any] = {"default_key_serde": TEXT, "default_value_serde": TEXT}
Program = Callable[[StreamsBuilder], Any]


def topics(topology: Topology) -> tuple[set[str], set[str]]:
    """The repartition topics and the changelogs, without the application's name."""
    subs = topology.resolve("app", default_key_serde=TEXT, default_value_serde=TEXT)
    repartitions = {topic for sub in subs for topic in sub.repartition_topics}
    changelogs = {topic for sub in subs for topic in sub.changelogs.values()}
    return {topic.removeprefix("app-") for topic in repartitions}, {topic.removeprefix("app-") for topic in changelogs}


def table(builder: StreamsBuilder) -> StreamsBuilder:
    builder.table("in", "rows", key=TEXT, value=TEXT).to_stream().to("out")
    return builder


def two_groups(builder: StreamsBuilder) -> StreamsBuilder:
    rekeyed = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda _, value: value)
    rekeyed.filter(lambda _, value: value != "x").group_by_key(key=TEXT).count("counts").to_stream().to("counts")
    rekeyed.group_by_key(key=TEXT).reduce(max, "highest").to_stream().to("highest")
    return builder


def self_join(builder: StreamsBuilder) -> StreamsBuilder:
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.join(stream, lambda one, other: one + other, within=WITHIN).to("out", value=TEXT)
    return builder


# -- where it is said


def test_the_config_optimises_what_build_left_open() -> None:
    config = StreamsConfig(application_id="app", topology_optimization="all")
    for streams in (Streams(table(StreamsBuilder()), config), Streams(table(StreamsBuilder()).build(), config)):
        assert topics(streams.topology) == (set(), {"in"})
    assert topics(Streams(table(StreamsBuilder()), application_id="app").topology) == (set(), {"rows-changelog"})


def test_another_config_optimises_the_same_program_otherwise() -> None:
    streams = Streams(table(StreamsBuilder()), application_id="app", topology_optimization="all")
    other = streams.with_config(streams.config.replace(topology_optimization="none"))
    assert topics(other.topology) == (set(), {"rows-changelog"})


def test_build_optimises_at_once_and_the_config_may_say_the_same() -> None:
    built = table(StreamsBuilder()).build(topology_optimization=[REUSE])
    assert topics(built) == (set(), {"in"})
    for said in (None, REUSE):
        assert Streams(built, application_id="app", topology_optimization=said).topology is built


def test_a_config_that_says_otherwise_than_build_is_an_error_that_names_both() -> None:
    for said, wanted in (("none", "all"), ("all", "none")):
        built = table(StreamsBuilder()).build(topology_optimization=said)
        with pytest.raises(TopologyError, match=r"the config has topology_optimization=.* say it in one place"):
            Streams(built, application_id="app", topology_optimization=wanted)


def test_a_value_that_names_no_optimisation_is_an_error_that_names_all() -> None:
    for value in ("al", "all,none", "reuse.ktable.source.topics,all", 1):
        with pytest.raises(ConfigError, match=r"topology_optimization"):
            StreamsConfig(application_id="app", topology_optimization=value)
    with pytest.raises(TopologyError, match=r"some of reuse.ktable.source.topics, merge.repartition.topics, single"):
        StreamsBuilder().build(topology_optimization="merge")
    assert parts_of("merge.repartition.topics, single.store.self.join") == {MERGE, SELF_JOIN}
    assert parts_of([]) == parts_of("none") == frozenset()


def test_what_was_added_after_build_is_not_left_out_silently() -> None:
    builder = table(StreamsBuilder())
    built = builder.build()
    builder.stream("more").to("more-out")
    with pytest.raises(TopologyError, match=r"more operators since build\(\): call build\(\) last"):
        built.optimized(parts_of("all"))
    extended = table(StreamsBuilder()).build().add_sink("another", "copy", "KTABLE-SOURCE-0000000001")
    with pytest.raises(TopologyError, match=r"say build\(topology_optimization=...\), then add them"):
        extended.optimized(parts_of("all"))
    assert extended.optimized(None) is extended


def test_a_topology_of_the_processor_api_stays_as_it_was_written() -> None:
    written = Topology().add_source("in", "in").add_sink("out", "out", "in")
    assert written.optimized(parts_of("all")) is written


# -- what it makes


def test_a_table_needs_no_changelog_and_writes_nothing_for_its_store() -> None:
    with TopologyTestDriver(table(StreamsBuilder()), topology_optimization="all") as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("a", "1")
        assert list(driver.produced()) == ["out"]
        assert driver.store("rows").get("a").value == "1"


def test_groups_of_one_rekeyed_stream_share_a_repartition_topic() -> None:
    built = two_groups(StreamsBuilder()).build()
    assert topics(built)[0] == {"counts-repartition", "highest-repartition"}
    assert topics(built.optimized(frozenset({MERGE})))[0] == {"counts-repartition"}


def test_a_filter_before_two_groups_is_moved_once() -> None:
    """Kafka Streams fails to build it."""
    builder = StreamsBuilder()
    kept = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda _, value: value).filter(lambda _k, _v: True)
    kept.group_by_key().count("one").to_stream().to("one")
    kept.group_by_key().count("other").to_stream().to("other")
    assert topics(builder.build(topology_optimization=MERGE))[0] == {"one-repartition"}


def test_records_that_come_by_another_way_keep_their_own_repartition_topic() -> None:
    """Kafka Streams moves it before the merge, and counts the other stream's records by its partitions."""
    builder = StreamsBuilder()
    rekeyed = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda _, value: value)
    rekeyed.group_by_key().count("one").to_stream().to("one")
    builder.stream("other", key=TEXT, value=TEXT).merge(rekeyed).group_by_key().count("both").to_stream().to("both")
    assert topics(builder.build(topology_optimization=MERGE))[0] == {"one-repartition", "both-repartition"}


def test_merges_of_merges_are_repartitioned_once_after_the_last() -> None:
    """Kafka Streams fails to build it."""
    builder = StreamsBuilder()
    one, two, three = (builder.stream(name, key=TEXT, value=TEXT).select_key(lambda _, v: v) for name in "123")
    merged = one.merge(two).merge(three)
    merged.group_by_key(key=TEXT).count("counts").to_stream().to("counts")
    merged.group_by_key(key=TEXT).reduce(max, "highest").to_stream().to("highest")
    first, _ = builder.build(topology_optimization=MERGE).resolve("app")
    assert first.source_topics == ("1", "2", "3")
    assert first.sink_topics == ("app-counts-repartition",)


def test_a_processor_between_may_change_keys_so_it_is_not_moved() -> None:
    builder = StreamsBuilder()
    rekeyed = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda _, value: value)
    rekeyed.process(Processor).group_by_key().count("counts").to_stream().to("counts")
    assert [node.name for node in builder.build(topology_optimization=MERGE).resolve("app")[0].nodes][:3] == [
        "KSTREAM-SOURCE-0000000000", "KSTREAM-KEY-SELECT-0000000001", "KSTREAM-PROCESSOR-0000000002",
    ]  # fmt: skip


def test_a_stream_joined_with_itself_is_kept_once() -> None:
    built = self_join(StreamsBuilder()).build()
    assert len(topics(built)[1]) == 2
    assert len(topics(built.optimized(frozenset({SELF_JOIN})))[1]) == 1
    assert len(topics(built.optimized(frozenset({MERGE, REUSE})))[1]) == 2


def test_building_again_gives_the_same_names() -> None:
    builder = two_groups(StreamsBuilder())
    plain = str(builder.build().describe())
    assert str(builder.build(topology_optimization="all").describe()) != plain
    assert str(builder.build().describe()) == plain


# -- what it must not change


RECORDS = [(key, value, time) for time, (key, value) in enumerate(zip("abcabcabcaab", "xyxzyxyyzxzz", strict=True), 1)]


@pytest.mark.parametrize("program", [table, two_groups, self_join])
@pytest.mark.parametrize("cache", [0, 10_000_000])
def test_the_results_of_each_output_topic_are_the_same(program: Program, cache: int) -> None:
    def results(optimization: str) -> dict[str, list[Any]]:
        builder = StreamsBuilder()
        program(builder)
        settings: dict[str, Any] = {"topology_optimization": optimization, "statestore_cache_max_bytes": cache}
        with TopologyTestDriver(builder, default_key_serde=TEXT, default_value_serde=LONG, **settings) as driver:
            source = driver.create_input_topic("in", key=TEXT, value=TEXT)
            for key, value, time in RECORDS:
                source.pipe(key, value, timestamp=time)
            produced = driver.produced()
        return {topic: [row[1:5] for row in rows] for topic, rows in produced.items() if "-driver-" not in topic}

    assert results("all") == results("none")


@pytest.mark.parametrize("name", sorted(name for name in ALL if name.startswith("optimized_")))
def test_an_optimised_topology_can_run(name: str) -> None:
    with TopologyTestDriver(ALL[name].build(), topology_optimization="all", **DEFAULTS) as driver:
        for topic in ALL[name].inputs:
            driver.create_input_topic(topic, key=TEXT, value=TEXT).pipe("a", "b", timestamp=5)
        assert driver.produced()


def test_an_optimised_self_join_forgets_the_time_of_a_record_that_failed() -> None:
    """The record that failed would have made the next ones too late to be joined with themselves."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)

    def refuse(key: str, value: str) -> None:
        if "!" in value:
            raise RuntimeError(value)

    joined = stream.join(stream, lambda one, other: one + other, within=WITHIN)
    joined.peek(refuse).to("out", value=TEXT)
    with TopologyTestDriver(
        builder, topology_optimization="all", processing_exception_handler="log_and_continue"
    ) as driver:
        source = driver.create_input_topic("in", key=TEXT, value=TEXT)
        out = driver.create_output_topic("out", value=TEXT)
        for value, time in (("a", 1), ("!", 100_000), ("b", 2)):
            source.pipe("k", value, timestamp=time)
        assert [row.value for row in out.read_records()] == ["aa", "ba", "ab", "bb"]
