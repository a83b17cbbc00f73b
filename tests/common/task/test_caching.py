"""Caches in front of stores (`statestore_cache_max_bytes` above 0): the last update per key and commit is emitted."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milestones.common import serdes
from milestones.common.errors import ProcessingError, StateCorruptError
from milestones.common.records import RecordMetadata, StoreId, TopicPartition, output_of
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.task.task import TaskState
from milestones.common.topology import Processor, StreamsBuilder
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import Harness, a_store, named, processing

IN = TopicPartition("in", 0)
LARGE = 10_000_000
LOG, OUT = "app-store-changelog", "out"


def last_value(cache: int = LARGE, after: Any = None, **settings: Any) -> Any:
    """A task with a reduction to the last value, "store"; "drop" deletes."""
    builder = StreamsBuilder()
    table = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key().reduce(
        lambda old, new: None if new == "drop" else new, store="store"
    )
    stream = table.to_stream()
    (after(stream) if after else stream).to("out")
    return Harness(builder.build(), cache_max_bytes=cache, **settings).start()


def written(commit: Any) -> list[tuple[str, Any, Any]]:
    return [(one.topic, one.key, one.value) for one in map(output_of, commit.all_outputs())]


def of_commit(h: Any) -> list[tuple[str, Any, Any]]:
    """What the next commit writes."""
    before = len(h.sent)
    h.commit()
    return [(output.topic, output.key, output.value) for output in h.sent[before:]]


def test_without_a_cache_every_update_is_logged_and_emitted() -> None:
    h = last_value(cache=0)
    h.pipe(("a", "1", 1), ("a", "2", 2))
    assert h.outputs() == [(LOG, b"a", b"1", 1), (OUT, b"a", b"1", 1), (LOG, b"a", b"2", 2), (OUT, b"a", b"2", 2)]


def test_with_one_the_last_update_per_key_is_logged_and_emitted_with_the_commit() -> None:
    h = last_value()
    h.pipe(("a", "1", 1), ("b", "1", 2), ("a", "2", 3))
    assert h.outputs() == []
    assert h.task.store("store").get("a").value == "2"
    assert of_commit(h) == [(OUT, b"b", b"1"), (OUT, b"a", b"2"), (LOG, b"a", b"2"), (LOG, b"b", b"1")]
    assert h.sent[1].timestamp == h.sent[2].timestamp == 3
    assert sorted(h.engine("store")) == [b"a", b"b"]
    assert of_commit(h) == []


def test_a_key_that_came_and_went_between_two_commits_isnt_emitted() -> None:
    h = last_value()
    h.pipe(("a", "1", 1), ("a", "drop", 2))
    assert of_commit(h) == [(LOG, b"a", None)]
    h.pipe(("a", "1", 3))
    h.commit()
    h.pipe(("a", "drop", 4))
    assert of_commit(h) == [(OUT, b"a", None), (LOG, b"a", None)]


def test_the_old_value_is_the_one_downstream_has_seen() -> None:
    builder = StreamsBuilder()
    pairs = builder.table("in", "store", key=serdes.STRING, value=serdes.STRING)
    pairs.group_by(lambda key, value: (value, value), key=serdes.STRING).count()
    topology = builder.build()
    (sub, _) = topology.resolve("app")
    topology.resolve = lambda _: (sub,)  # type: ignore[method-assign]
    h = Harness(topology, cache_max_bytes=LARGE).start()
    h.pipe(("k", "a", 1), ("k", "b", 2))
    h.commit()
    h.pipe(("k", "c", 3), ("k", "d", 4))
    changes = [(o.key, o.value[-1]) for o in named(h.commit().outputs) if "repartition" in o.topic]
    assert changes == [(b"b", 0), (b"d", 1)]


def test_updates_are_emitted_early_when_the_cache_is_full() -> None:
    h = last_value(cache=2_000)
    h.pipe(*((f"{index}", "x" * 100, index) for index in range(18)))
    emitted = [key for topic, key, _, _ in h.outputs() if topic == OUT]
    assert emitted == [f"{index}".encode() for index in range(len(emitted))]
    assert 10 <= len(emitted) < 18


def test_a_failed_record_emits_nothing_at_the_flush() -> None:
    def put_and_fail(context: Any, record: Any) -> None:
        context.get_state_store("store").put(record.key, record.value)
        if record.value == "fail":
            raise RuntimeError("user code")

    topology = processing(put_and_fail, [a_store(cached=True)])
    h = Harness(topology, cache_max_bytes=LARGE, processing_handler=LogAndContinue()).start()
    h.pipe(("a", "1", 1), ("a", "fail", 2), ("b", "fail", 3), ("c", "2", 4))
    assert of_commit(h) == [(LOG, b"a", b"1"), (LOG, b"c", b"2")]
    assert h.engine("store") == {b"a": b"1", b"c": b"2"}


def test_an_emitted_update_knows_the_record_it_came_from() -> None:
    seen: list[Any] = []

    class Looking(Processor):
        def process(self, record: Any) -> None:
            seen.append((self.context.record_metadata(), record.timestamp, record.headers))
            self.context.forward(record)

    h = last_value(after=lambda stream: stream.process(Looking))
    h.pipe(("a", "1", 1), ("b", "1", 2), headers=[("h", b"1")])
    h.commit()
    assert seen == [(RecordMetadata("in", 0, 0), 1, [("h", b"1")]), (RecordMetadata("in", 0, 1), 2, [("h", b"1")])]


def failing(broken: list[bool]) -> Any:
    def fail(key: Any, value: Any) -> None:
        if broken[0] and key == "a":
            raise RuntimeError("downstream")

    return lambda stream: stream.peek(fail)


def test_a_flush_that_fails_stops_the_commit_and_can_be_repeated() -> None:
    broken = [True]
    h = last_value(after=failing(broken))
    h.pipe(("a", "1", 1), ("b", "1", 2))
    with pytest.raises(ProcessingError, match=r"downstream"):
        h.task.freeze()
    broken[0] = False
    assert [key for topic, key, _ in of_commit(h) if topic == OUT] == [b"a", b"b"]


def test_damage_that_a_flush_meets_is_known_as_the_tasks() -> None:
    def damaged(_: Any) -> Any:
        raise StateCorruptError("a block's checksum is wrong", [StoreId(h.task.id, "store")])

    h = last_value(after=lambda stream: stream.map_values(damaged))
    h.pipe(("a", "1", 1))
    with pytest.raises(StateCorruptError) as raised:
        h.task.freeze()
    assert (raised.value.damaged, h.task.state) == ({(h.task.id, "store")}, TaskState.READY)


def test_a_skipped_update_is_logged_all_the_same() -> None:
    h = last_value(after=failing([True]), processing_handler=LogAndContinue("dead"))
    h.pipe(("a", "1", 1), ("b", "1", 2))
    assert [topic for topic, _, _ in of_commit(h)] == ["dead", OUT, LOG, LOG]
    assert len(h.engine("store")) == 2


def test_a_boundary_whose_updates_wait_in_a_cache_is_not_given_out() -> None:
    h = last_value()
    h.pipe(("a", "1", 1))
    assert h.task.freeze_if_flushed() is None
    assert h.task.commit_needed()
    h.task.flush()
    assert written(h.task.freeze_if_flushed()) == [(OUT, b"a", b"1"), (LOG, b"a", b"1")]


def test_one_cached_store_may_feed_another() -> None:
    h = last_value(after=lambda stream: stream.group_by_key().count("counts").to_stream())
    h.pipe(("a", "1", 1), ("a", "2", 1))
    outputs = [(topic, key) for topic, key, _ in of_commit(h)]
    assert outputs == [(OUT, b"a"), (LOG, b"a"), ("app-counts-changelog", b"a")]


class Writing(Processor):
    """Below a table: writes what `write` makes of each of its rows (key, value) into a table's store."""

    def __init__(self, write: Any, store: str) -> None:
        self._write, self._name = write, store

    def init(self, context: Any) -> None:
        super().init(context)
        self._store = context.get_state_store(self._name)

    def process(self, record: Any) -> None:
        self.context.forward(record)
        if record.value is not None:
            key, value = self._write(record.key, record.value)
            self._store.put(key, ValueAndTimestamp(value, record.timestamp))


def writing(write: Any, *stores: str) -> Any:
    """Into the first of these stores."""
    return lambda stream: stream.process(partial(Writing, write, stores[0]), *stores)


def capped(key: str, value: str) -> tuple[str, str]:
    """Also where it is that already."""
    return key, min(value, "5")


def handed_on(key: str, value: str) -> tuple[str, str]:
    """To the row of the next key."""
    return {"a": "b", "b": "c", "c": "a"}[key], value


def folded(h: Any) -> dict[bytes, Any]:
    """What a restoration would give."""
    rows = {output.key: output.value for output in h.sent if output.topic == LOG}
    return {key: value for key, value in rows.items() if value is not None}


@given(records=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12")), max_size=9), commit=st.integers(0, 9))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_flush_ends_whatever_rows_of_its_own_store_are_written_below_it(
    records: list[tuple[str, str]], commit: int
) -> None:
    h = last_value(after=writing(handed_on, "store"))
    for number, (key, value) in enumerate(records):
        h.pipe((key, value, number))
        if number == commit:
            h.commit()
    h.commit()
    assert {key: row[8:] for key, row in h.engine("store").items()} == folded(h)
    assert [o.topic for o in h.sent].count(OUT) <= len(records)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("new_keys", [False, True])
def test_a_flush_ends_when_stores_are_written_below_each_others_flushes(new_keys: bool) -> None:
    builder = StreamsBuilder()
    lines = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    tables = {"store": lines.to_table("store"), "other": lines.filter(lambda *_: False).to_table("other")}
    for (own, table), other in zip(tables.items(), ("other", "store"), strict=True):
        write = writing(lambda key, value: (key + "x" if new_keys else key, value), other, own)
        write(table.to_stream()).to(f"out-{own}")
    h = Harness(builder.build(), cache_max_bytes=LARGE).start()
    h.pipe(("a", "1", 1), ("b", "2", 2))
    h.commit()
    sent = [(output.topic, output.key) for output in h.sent if output.topic.startswith("out")]
    assert sent[:2] == [("out-store", b"a"), ("out-store", b"b")]
    assert sorted(sent[2:]) == [("out-other", b"ax" if new_keys else b"a"), ("out-other", b"bx" if new_keys else b"b")]
    for store in ("store", "other"):
        logged = {o.key: o.value for o in h.sent if o.topic == f"app-{store}-changelog"}
        assert {key: row[8:] for key, row in h.engine(store).items()} == logged


RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "6", "7", "drop"]), st.sampled_from(["", "commit"])),
    max_size=25,
)


@given(records=RECORDS, cache=st.sampled_from([0, 400, 1_000, LARGE]))
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_cached_and_written_back_the_changelog_ends_as_the_store(
    records: list[tuple[str, str, str]], cache: int
) -> None:
    h, rows = last_value(cache=cache, after=writing(capped, "store")), dict[bytes, bytes]()
    for number, (key, value, then) in enumerate(records):
        h.pipe((key, value, number))
        if value != "drop" or key.encode() not in rows:  # a reduction begins with whatever comes first
            rows[key.encode()] = min(value, "5").encode()
        else:
            del rows[key.encode()]
        if then:
            h.outputs()
            h.commit()
            engine = {key: row[8:] for key, row in h.engine("store").items()}
            assert engine == folded(h) == rows


def test_a_store_with_caching_switched_off_emits_every_update() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    stream.group_by_key().count("store", caching=False).to_stream().to("out")
    h = Harness(builder.build(), cache_max_bytes=LARGE).start()
    h.pipe(("a", "1", 1), ("a", "2", 2))
    assert [topic for topic, *_ in h.outputs()].count(OUT) == 2
