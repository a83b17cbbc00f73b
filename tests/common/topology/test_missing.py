"""Words of Kafka Streams that aren't there say what to do instead."""

from __future__ import annotations

import copy
import re

import pytest

from milestones import Processor, Streams, StreamsBuilder, TimeWindows, Topology, serdes
from milestones.common.topology.missing import INSTEAD
from milestones.testing import TopologyTestDriver

BUILDER = StreamsBuilder()
STREAM = BUILDER.stream("lines", key=serdes.STRING, value=serdes.STRING)
TABLE = BUILDER.table("products", "products", key=serdes.STRING, value=serdes.STRING)
GROUPED = STREAM.group_by_key()


@pytest.mark.parametrize(
    ("given", "name", "instead"),
    [
        (STREAM, "windowed_by", "group_by_key"),
        (STREAM, "cogroup", "group_by_key().cogroup"),
        (STREAM, "suppress", "to_table()"),
        (TABLE, "to", "to_stream"),
        (STREAM, "foreach", "for_each"),
        (STREAM, "forEach", "its name is for_each"),
        (STREAM, "count", "group_by_key() or group_by(...), then count(...)"),
        (STREAM, "flatTransformValues", "use process_values"),
        (TABLE, "selectKey", "to_stream().select_key(...)"),
        (TABLE, "aggregate", "group_by(...), then aggregate(...)"),
        (TABLE, "process", "to_stream().process(...)"),
        (TABLE, "foreach", "for_each"),
        (GROUPED, "mapValues", "aggregated first: count, reduce and aggregate make a table"),
        (GROUPED.windowed_by(TimeWindows(5, grace=0)), "emitStrategy", "windowed_by(windows, emit='on_close')"),
        (GROUPED.windowed_by(TimeWindows(5, grace=0)), "to_stream", "aggregated first"),
        (BUILDER.build(), "addSource", "its name is add_source"),
        (BUILDER.build(), "connectProcessorAndStateStores", "its name is connect_processor_and_state_stores"),
        (STREAM, "mapValues", "its name is map_values"),
        (STREAM, "leftJoin", "its name is left_join"),
        (TABLE, "outerJoin", "its name is outer_join"),
        (STREAM, "groupByKey", "its name is group_by_key"),
        (BUILDER, "globalTable", "its name is global_table"),
    ],
)
def test_what_is_missing_says_what_to_do_instead(given: object, name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}': .*{re.escape(instead)}"):
        getattr(given, name)
    assert not hasattr(given, name)


def test_a_processors_context_says_so_too() -> None:
    asked = ("getStateStore", "store", "stateStore", "currentStreamTimeMs", "stateDir", "keySerde", "nonsense")
    told: list[str] = []

    class Asks(Processor):
        def process(self, record: object) -> None:
            for name in asked:
                with pytest.raises(AttributeError) as error:
                    getattr(self.context, name)
                told.append(str(error.value).partition("attribute ")[2])

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).process(Asks)
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in", key=serdes.STRING, value=serdes.STRING).pipe("a", "1")
    assert told == [
        "'getStateStore': its name is get_state_store",
        "'store': get a processor's stores with get_state_store('name')",
        "'stateStore': get a processor's stores with get_state_store('name')",
        "'currentStreamTimeMs': its name is current_stream_time_ms",
        "'stateDir': a processor has stores, no folder",
        "'keySerde': the default is app_configs['default_key_serde']",
        "'nonsense'",
    ]


def test_an_application_says_so_too() -> None:
    streams = Streams(BUILDER, application_id="words")
    with pytest.raises(AttributeError, match="interactive queries"):
        streams.store("counts")  # type: ignore[attr-defined]


def test_any_other_attribute_is_missing_as_ever() -> None:
    with pytest.raises(AttributeError, match=r"^'KStream' object has no attribute 'nonsense'$"):
        STREAM.nonsense  # type: ignore[attr-defined]  # noqa: B018
    assert copy.copy(STREAM).name == STREAM.name


WINDOWED = GROUPED.windowed_by(TimeWindows(5, grace=0))
OF_STREAMS = """
    filter filterNot selectKey map mapValues flatMap flatMapValues print foreach peek split merge repartition to toTable
    groupByKey groupBy join leftJoin outerJoin process processValues
    through branch transform transformValues flatTransform flatTransformValues
"""
OF_TABLES = """
    filter filterNot mapValues transformValues toStream suppress groupBy join leftJoin outerJoin queryableStoreName
    to foreach
"""
OF_TOPOLOGIES = """
    addSource addProcessor addSink addStateStore addReadOnlyStateStore addGlobalStore describe
    connectProcessorAndStateStores
"""
OF_CLIENTS = """
    state start close cleanUp setStateListener setUncaughtExceptionHandler setGlobalStateRestoreListener
    setStandbyUpdateListener metrics addStreamThread removeStreamThread pause resume isPaused
    store query queryMetadataForKey streamsMetadataForStore metadataForAllStreamsClients metadataForLocalThreads
    allLocalStorePartitionLags clientInstanceIds
"""
METHODS: list[tuple[object, str]] = [
    (STREAM, OF_STREAMS),
    (TABLE, OF_TABLES),
    (BUILDER.global_table("everywhere"), "queryableStoreName"),
    (GROUPED, "count reduce aggregate windowedBy cogroup"),
    (TABLE.group_by(lambda key, value: (key, value)), "count reduce aggregate"),
    (WINDOWED, "count reduce aggregate emitStrategy"),
    (GROUPED.cogroup(lambda key, value, aggregate: aggregate), "cogroup aggregate windowedBy"),
    (STREAM.split(), "branch defaultBranch noDefaultBranch"),
    (BUILDER, "stream table globalTable addStateStore addGlobalStore build"),
    (Topology(), OF_TOPOLOGIES),
    (Streams(BUILDER, application_id="words"), OF_CLIENTS),
]


@pytest.mark.parametrize(("given", "methods"), METHODS, ids=[type(given).__name__ for given, _ in METHODS])
def test_every_method_of_kafka_streams_is_there_or_says_what_to_do(given: object, methods: str) -> None:
    for name in methods.split():
        try:
            getattr(given, re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower())
        except AttributeError as error:
            assert f"no attribute '{error.name}': " in str(error)  # noqa: PT017
        if name.lower() != name:
            with pytest.raises(AttributeError, match=f"no attribute '{name}': "):
                getattr(given, name)


def test_nothing_is_called_missing_that_is_there() -> None:
    elsewhere = {"to", "for_each", "peek", "windowed_by", "suppress", "cogroup", "transform_values", "metrics"}
    there = {name for name in INSTEAD for given in (STREAM, TABLE, GROUPED, BUILDER, Streams) if hasattr(given, name)}
    assert there <= elsewhere
