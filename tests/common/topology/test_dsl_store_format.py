"""`dsl_store_format="headers"`: which stores get headers, what operators and processors see of them, what changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from milestones import (
    AggregationWithHeaders,
    ConfigError,
    JoinWindows,
    Processor,
    Record,
    SerializationError,
    SessionStoreWithHeaders,
    SessionWindows,
    StoreSpec,
    StreamsBuilder,
    StreamsConfig,
    TimestampedKeyValueStoreWithHeaders,
    TimestampedWindowStoreWithHeaders,
    TimeWindows,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
    stores,
)
from milestones.common.records import Headers
from milestones.common.state.spec import StoreKind
from milestones.common.state.stores.kinds import layout_of
from milestones.common.topology.configured import Configured, configured
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import message

HEADERS: Headers = [("h", b"x")]


def made(builder: StreamsBuilder, **settings: Any) -> Configured:
    return configured(builder.build(), StreamsConfig(application_id="app", variables={}, **settings))


def kinds(builder: StreamsBuilder, **settings: Any) -> dict[str, StoreKind]:
    subs, everywhere = made(builder, dsl_store_format="headers", **settings)
    every = [*subs, *([] if everywhere is None else [everywhere])]
    return {spec.name: spec.kind for sub in every for spec in sub.stores}


def driver(builder: StreamsBuilder, **settings: Any) -> TopologyTestDriver:
    return TopologyTestDriver(builder, **{"dsl_store_format": "headers", **settings})


def logged(driver: TopologyTestDriver, store: str) -> list[tuple[bytes | None, Headers]]:
    """Value and headers of the changelog records so far."""
    return [(each.value, each.headers or []) for each in driver.produced()[f"topology-test-driver-{store}-changelog"]]


# -- which stores


def test_tables_windows_and_sessions_on_the_disk_keep_headers() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    grouped.count("counts")
    grouped.windowed_by(TimeWindows(10, grace=0)).count("windows")
    grouped.windowed_by(SessionWindows(10, grace=0)).count("sessions")
    builder.table("rows", "rows", key=str, value=str)
    builder.global_table("everywhere", "everywhere", key=str, value=str)
    assert kinds(builder) == {
        "counts": "timestamped-key-value-with-headers",
        "windows": "timestamped-window-with-headers",
        "sessions": "session-with-headers",
        "rows": "timestamped-key-value-with-headers",
        "everywhere": "timestamped-key-value-with-headers",
    }


def test_stores_in_memory_versioned_ones_those_of_joins_and_those_of_processors_dont() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left", key=str, value=str), builder.stream("right", key=str, value=str)
    left.group_by_key().count("counts", in_memory=True)
    left.left_join(right, lambda one, other: f"{one}{other}", within=JoinWindows(10, grace=0), store="joined")
    builder.table("rows", "rows", key=str, value=str, history=1_000)
    builder.add_state_store(stores.timestamped_key_value("own", str, str))
    right.process(Processor, "own")
    assert {kind for kind in kinds(builder).values() if kind.endswith("with-headers")} == set()


def test_without_it_no_store_does() -> None:
    builder = StreamsBuilder()
    builder.table("rows", "rows", key=str, value=str)
    for settings in ({}, {"dsl_store_format": "default"}):
        ((sub,), _) = made(builder, **settings)
        assert [spec.kind for spec in sub.stores] == ["timestamped-key-value"]


def test_the_format_is_one_of_two_words_in_upper_or_lower_case() -> None:
    def config(value: str) -> StreamsConfig:
        return StreamsConfig(application_id="app", variables={}, dsl_store_format=value)

    assert config("HEADERS").dsl_store_format == "headers"
    with pytest.raises(ConfigError, match="dsl_store_format='plain': must be one of default, headers"):
        config("plain")


# -- what is seen of them


def test_rows_of_operators_have_no_headers_as_in_kafka_streams() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    grouped.reduce(lambda old, new: new, "last")
    grouped.windowed_by(TimeWindows(10, grace=0)).reduce(lambda old, new: new, "windows")
    grouped.windowed_by(SessionWindows(10, grace=0)).reduce(lambda old, new: new, "sessions")
    with driver(builder) as d:
        d.create_input_topic("in", key=str, value=str).pipe("k", "v", timestamp=25, headers=HEADERS)
        last = d.store("last", TimestampedKeyValueStoreWithHeaders)
        assert last.get("k") == ValueTimestampHeaders("v", 25, [])
        windows = d.store("windows", TimestampedWindowStoreWithHeaders)
        assert windows.fetch("k", 20) == ValueTimestampHeaders("v", 25, [])
        assert [*windows.all()] == [(Windowed("k", 20, 30), ValueTimestampHeaders("v", 25, []))]
        sessions = d.store("sessions", SessionStoreWithHeaders)
        assert [*sessions.fetch("k")] == [(Windowed("k", 25, 25), AggregationWithHeaders("v", []))]


def test_an_operator_that_changes_a_processor_s_row_drops_its_headers() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).group_by_key().reduce(lambda old, new: old + new, "sums")
    with driver(builder) as d:
        sums = d.store("sums", TimestampedKeyValueStoreWithHeaders)
        sums.put("k", ValueTimestampHeaders("a", 5, HEADERS))
        d.create_input_topic("in", key=str, value=str).pipe("k", "b", timestamp=4)
        assert sums.get("k") == ValueTimestampHeaders("ab", 5, [])
        assert logged(d, "sums") == [(b"a", HEADERS), (b"ab", [])]


@pytest.mark.parametrize("cache", [0, 1 << 20])
def test_a_deletion_is_logged_with_the_headers_of_the_record_that_deletes(cache: int) -> None:
    builder = StreamsBuilder()
    builder.table("in", "rows", key=str, value=str)
    for form, headers in (("headers", HEADERS), ("default", [])):
        with driver(builder, statestore_cache_max_bytes=cache, dsl_store_format=form) as d:
            rows = d.create_input_topic("in", key=str, value=str)
            rows.pipe("k", "v", headers=HEADERS)
            rows.pipe("k", None, headers=HEADERS)
            assert logged(d, "rows") == [(b"v", []), (None, headers)]


def test_an_update_of_a_session_from_a_cache_has_the_row_s_headers_which_are_none() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    grouped.windowed_by(SessionWindows(10, grace=0)).count().to_stream(lambda key, _: key.key).to("out", key=str)
    for form, headers in (("headers", []), ("default", HEADERS)):
        with driver(builder, statestore_cache_max_bytes=1 << 20, dsl_store_format=form) as d:
            d.create_input_topic("in", key=str, value=str).pipe("k", "v", headers=HEADERS)
            (update,) = d.produced()["out"]
            assert (update.headers or []) == headers


def test_after_a_restoration_from_its_topic_a_table_s_rows_have_no_headers_as_before() -> None:
    builder = StreamsBuilder()
    builder.table("in", "rows", key=str, value=str)
    ((sub,), _) = made(builder, dsl_store_format="headers", topology_optimization="all")
    (spec,) = sub.stores
    assert spec.source_topic == "in"
    record = message(0, b"k", b"v", 5, headers=HEADERS)
    assert layout_of(spec).restored([record]) == {b"k": bytes(7) + b"\x05v"}


def test_a_store_of_a_topic_s_records_keeps_their_headers() -> None:
    class LooksUp(Processor):
        def process(self, record: Record) -> None:
            row = self.context.get_state_store("rows").get(record.key)
            self.context.forward(record.with_headers(row.headers if row else []))

    spec = stores.timestamped_key_value_with_headers("rows", str, str)
    topology = Topology().add_read_only_state_store(spec, "rows", source="rows-source", processor="keeps")
    topology.add_source("source", "in", key=str, value=str).add_processor("looks-up", LooksUp, "source")
    topology.connect_processor_and_state_stores("looks-up", "rows").add_sink("out", "out", "looks-up")
    with TopologyTestDriver(topology, default_key_serde=str, default_value_serde=str) as d:
        d.create_input_topic("rows").pipe("k", "v", headers=HEADERS)
        d.create_input_topic("in").pipe("k", "question")
        assert d.create_output_topic("out").read_record().headers == HEADERS


# -- what is refused


@contextmanager
def stores_of_each_kind() -> Iterator[tuple[Any, ...]]:
    """A store of rows, one of windows and one of sessions, as a processor sees them."""
    builder = StreamsBuilder()
    builder.add_state_store(stores.timestamped_key_value_with_headers("rows", str, str))
    builder.add_state_store(stores.timestamped_window_with_headers("windows", str, str, size=10, retention=100))
    builder.add_state_store(stores.session_with_headers("sessions", str, str, retention=100))
    builder.stream("in").process(Processor, "rows", "windows", "sessions")
    with driver(builder) as d:
        yield tuple(d.store(name) for name in ("rows", "windows", "sessions"))


def test_what_has_no_headers_or_cannot_be_written_is_refused_and_changes_nothing() -> None:
    session = Windowed("k", 1, 2)
    with stores_of_each_kind() as (rows, windows, sessions):
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: rows.put("k", ValueAndTimestamp("v", 5)), "keeps headers: put a ValueTimestampHeaders"),
            (lambda: rows.put("k", "v"), "keeps headers"),
            (lambda: rows.put("k", ValueTimestampHeaders("v", 5, [("h", "text")])), "neither bytes nor None"),
            (lambda: rows.put("k", ValueTimestampHeaders("v", -5, [])), "negative timestamp"),
            (lambda: rows.put("k", ValueTimestampHeaders(7, 5, [])), "value"),
            (lambda: rows.put(None, None), "a key can't be None"),
            (lambda: windows.put("k", ValueAndTimestamp("v", 5), 10), "keeps headers"),
            (lambda: sessions.put(session, "v"), "keeps headers: put an AggregationWithHeaders"),
            (lambda: sessions.put(session, AggregationWithHeaders("v", [b"h"])), "a header that isn't a pair"),
        ]
        for call, words in calls:
            with pytest.raises(SerializationError, match=words):
                call()
        assert [*rows.all(), *windows.all(), *sessions.fetch_range(None, None)] == []


def test_a_row_without_a_value_deletes() -> None:
    session = Windowed("k", 1, 2)
    with stores_of_each_kind() as (rows, windows, sessions):
        for value in ("v", None):
            rows.put("k", ValueTimestampHeaders(value, 5, HEADERS))
            windows.put("k", ValueTimestampHeaders(value, 5, HEADERS), 10)
            sessions.put(session, AggregationWithHeaders(value, HEADERS))
        assert (rows.get("k"), windows.fetch("k", 10), sessions.fetch_session(*session)) == (None, None, None)


def test_what_a_user_changes_is_the_user_s_own() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(StoreSpec("rows", "timestamped-key-value-with-headers", key_serde=str, value_serde=list))
    builder.stream("in").process(Processor, "rows")
    with driver(builder) as d:
        rows = d.store("rows")
        given = ValueTimestampHeaders(["v"], 5, [*HEADERS])
        rows.put("k", given)
        for row in (given, rows.get("k"), next(rows.all())[1]):
            row.value.append("more")
            row.headers.clear()
        assert rows.get("k") == ValueTimestampHeaders(["v"], 5, HEADERS)
        assert logged(d, "rows") == [(b'["v"]', HEADERS)]


def test_a_deletion_is_logged_at_its_record_s_time_and_sent_at_that_of_the_later_row() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=int).group_by_key()
    sums = grouped.aggregate(lambda: 0, lambda _, value, total: total + value or None, "sums", value=int)
    sums.to_stream().to("out")
    with driver(builder) as d:
        d.pipe("in", b"a", (1).to_bytes(8, "big"), 9)
        d.pipe("in", b"a", (-1).to_bytes(8, "big", signed=True), 5)
        last = {topic: records[-1] for topic, records in d.produced().items()}
    found = {topic: (record.value, record.timestamp) for topic, record in last.items()}
    assert found == {"topology-test-driver-sums-changelog": (None, 5), "out": (None, 9)}
