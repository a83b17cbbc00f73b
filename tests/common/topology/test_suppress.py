"""Suppress: what a user may rely on beside Kafka Streams' own results (`python -m compat_tests.java`)."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from milestones import Processor, SessionWindows, SuppressBufferFullError, TimeWindows, Windowed
from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.records import TopicPartition
from milestones.common.task.standby import StandbyTask
from milestones.common.topology import KTable, StreamsBuilder, Topology
from milestones.common.topology.handlers import LogAndContinue
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness, OpenedInMemory, message

TEXT, LONG = serdes.STRING, serdes.LONG
IN = TopicPartition("in", 0)
SIZE, GRACE = 10, 5
TUMBLING = TimeWindows(SIZE, grace=GRACE)


def text(key: Windowed[str], value: Any) -> str:
    if key.key == "bad":
        raise ValueError("a bad key")
    return f"{key.key}@{key.start}-{key.end}"


def counts(builder: StreamsBuilder, windows: Any = TUMBLING) -> KTable:
    return builder.stream("in", key=TEXT, value=TEXT).group_by_key().windowed_by(windows).count("counts")


def results(windows: Any = TUMBLING, **options: Any) -> Topology:
    """Results of windows. The key "bad" fails behind the buffer."""
    builder = StreamsBuilder()
    suppressed = counts(builder, windows).suppress(until="window_closes", name="held", **options)
    suppressed.to_stream(text).map_values(str).to("out", key=TEXT, value=TEXT)
    return builder.build()


def last_values(**options: Any) -> Topology:
    """The last value of each 10 ms. The value "fail" fails before the buffer, "late" behind it."""
    builder = StreamsBuilder()
    table = builder.stream("in", key=TEXT, value=TEXT).map_values(failing("fail")).to_table()
    suppressed = table.suppress(**{"after": 10, "name": "held", **options})
    suppressed.to_stream().map_values(failing("late")).to("out", key=TEXT, value=TEXT)
    return builder.build()


def failing(value: str) -> Any:
    def fail(given: str) -> str:
        if given == value:
            raise RuntimeError(given)
        return given

    return fail


def records(seed: int, count: int = 60) -> list[tuple[str, str, int]]:
    """In time, out of time, late."""
    chance, now, made = random.Random(seed), 100, []
    for number in range(count):
        now += chance.choice([0, 1, 1, 3, 12, 30])
        made.append((chance.choice("abc"), f"v{number}", now - chance.choice([0, 0, 0, 2, 9, 40])))
    return made


def given(harness: Harness) -> list[tuple[Any, ...]]:
    return [output for output in harness.outputs() if output[0] == "out"]


PROGRAMS = {
    "windows": results,
    "sessions": lambda: results(SessionWindows(SIZE, grace=GRACE)),
    "time": last_values,
    "time, two records": lambda: last_values(max_records=2),
    "time, in memory": lambda: last_values(in_memory=True),
}


# -- failing records, commits, roll-backs, other processes


@pytest.mark.parametrize("transactional", ["app", ""])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("seed", range(3))
def test_a_roll_back_at_any_record_changes_no_result(program: str, seed: int, transactional: str) -> None:
    made = records(seed)
    whole = Harness(PROGRAMS[program]()).start()
    whole.pipe(*made)
    expected = given(whole)
    assert expected
    again = Harness(PROGRAMS[program](), transactional_id=transactional).start()
    assert again.pipe_in_parts(made, random.Random(seed), given, commit_fails=0.1) == expected


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("seed", range(3))
def test_another_process_continues_with_what_is_kept_back(program: str, seed: int) -> None:
    """By the changelogs alone; the operators' times begin anew, as in Kafka Streams."""
    made = records(seed, 80)
    made.sort(key=lambda record: record[2])  # of times that begin anew late records could tell
    whole = Harness(PROGRAMS[program]()).start()
    whole.pipe(*made)
    expected = given(whole)
    first = Harness(PROGRAMS[program]()).start()
    first.pipe(*made[:40])
    found = given(first)
    metadata = first.commit().metadata
    second = Harness(PROGRAMS[program]())
    second.task.open()
    restore(second.task, first)
    second.task.start({IN: 40}, metadata)
    second.ends["in"] = 40
    second.pipe(*made[40:])
    assert found + given(second) == expected


def restore(task: Any, of: Harness) -> None:
    for store, topic in of.task.subtopology.changelogs.items():
        written = [output for output in of.sent if output.topic == topic]
        batch = [
            message(at, output.key, output.value, output.timestamp or 1, topic, output.headers)
            for at, output in enumerate(written)
        ]
        task.restore(store, batch, len(batch))


def test_a_standby_has_what_is_kept_back_and_becomes_the_task() -> None:
    made = sorted(records(5, 80), key=lambda record: record[2])
    whole = Harness(results()).start()
    whole.pipe(*made)
    expected = given(whole)
    first = Harness(results()).start()
    first.pipe(*made[:40])
    found = given(first)
    metadata = first.commit().metadata
    second = Harness(results())
    state = OpenedInMemory(second.task.id, second.task.subtopology.stores)
    standby = StandbyTask(second.task.id, second.task.subtopology, lambda: state)
    standby.open()
    restore(standby, first)
    second.state = standby.recycle()  # type: ignore[assignment]
    second.task.open()
    second.task.start({IN: 40}, metadata)
    second.ends["in"] = 40
    second.pipe(*made[40:])
    assert found + given(second) == expected


def test_each_window_has_one_result_whatever_fails_and_is_rolled_back() -> None:
    made = records(9, 120)
    harness = Harness(results(), transactional_id="app", processing_handler=LogAndContinue()).start()
    chance, found, at = random.Random(9), list[Any](), 0
    while at < len(made):
        harness.pipe(*made[at : at + 5])
        if chance.random() < 0.3:
            harness.roll_back(at)
            continue
        found += given(harness)
        harness.commit()
        at += 5
    emitted = Counter(output[1] for output in found)
    assert len(emitted) > 10
    assert set(emitted.values()) == {1}


def test_a_record_that_fails_behind_the_buffer_leaves_all_as_it_was() -> None:
    """The record that was to send the update is skipped; the update waits, in its place, for the next one."""
    harness = Harness(last_values(), processing_handler=LogAndContinue()).start()
    harness.pipe(("a", "late", 1), ("b", "x", 5), ("c", "y", 20), ("a", "z", 9))
    assert given(harness) == []
    assert harness.task.dropped_records == 1, "c was to send a"
    harness.pipe(("d", "x", 15))
    assert given(harness) == [("out", b"a", b"z", 9), ("out", b"b", b"x", 5)]
    harness.commit()
    assert harness.engine("held-store").keys() == {b"d"}


def test_a_record_that_fails_before_the_buffer_moves_no_time() -> None:
    harness = Harness(last_values(), processing_handler=LogAndContinue()).start()
    harness.pipe(("a", "x", 1), ("b", "fail", 1_000), ("b", "y", 10))
    assert given(harness) == []
    harness.pipe(("b", "z", 11))
    assert given(harness) == [("out", b"a", b"x", 1)]


# -- a full buffer


@pytest.mark.parametrize("bound", [{"max_records": 2}, {"max_bytes": 90}])
def test_a_full_buffer_that_may_not_emit_early_stops_and_loses_nothing(bound: dict[str, int]) -> None:
    topology = last_values(when_full="stop", **bound)
    harness = Harness(topology, processing_handler=LogAndContinue()).start()
    harness.pipe(("a", "x", 1), ("b", "x", 2))
    with pytest.raises(SuppressBufferFullError, match=r"held keeps back 3 updates of .*Nothing is lost.*'emit'"):
        harness.pipe(("c", "x", 3))
    assert harness.task.dropped_records == 0, "no handler may skip the record"
    assert harness.task.input.position(IN) == 2
    harness.commit()
    assert harness.engine("held-store").keys() == {b"a", b"b"}
    with pytest.raises(SuppressBufferFullError):
        harness.run()


def test_a_full_buffer_of_windows_doesn_t_advise_to_emit_early() -> None:
    harness = Harness(results(max_records=1)).start()
    with pytest.raises(SuppressBufferFullError, match=r"held keeps back 2 updates of 1, .* of any number") as caught:
        harness.pipe(("a", "x", 1), ("b", "x", 2))
    assert "emit" not in str(caught.value)


def test_a_full_buffer_sends_its_first_updates_early_where_it_may() -> None:
    harness = Harness(last_values(max_records=2)).start()
    harness.pipe(("a", "1", 5), ("b", "1", 3), ("a", "2", 6), ("c", "1", 6))
    assert given(harness) == [("out", b"b", b"1", 3)]


# -- what is sent


def test_an_update_is_sent_under_the_context_of_its_own_record() -> None:
    seen: list[Any] = []

    class Seeing(Processor):
        def process(self, record: Any) -> None:
            seen.append((record, self.context.record_metadata()))

    builder = StreamsBuilder()
    stream = builder.stream("left", key=TEXT, value=TEXT).merge(builder.stream("right", key=TEXT, value=TEXT))
    stream.to_table().suppress(after=10).to_stream().process(Seeing)
    with TopologyTestDriver(builder) as driver:
        driver.pipe("right", b"0", b"", 1)
        driver.pipe("right", b"a", b"x", 2, [("h", b"1")])
        driver.pipe("left", b"b", b"y", 12, [("h", b"2")])
    (_, _), (record, at) = seen
    assert (record.key, record.value, record.timestamp, record.headers) == ("a", "x", 2, [("h", b"1")])
    assert at == ("right", 0, 1)


def test_an_update_of_a_punctuation_is_kept_back_too() -> None:
    """Kafka Streams fails at the commit: the record has no topic."""

    class Ticking(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(10, "stream-time", lambda now: context.forward(record_at(now)))

        def process(self, record: Any) -> None:
            """The clock does all."""

    from milestones import Record

    def record_at(now: int) -> Any:
        return Record("tick", str(now), now)

    builder = StreamsBuilder()
    ticks = builder.stream("in", key=TEXT, value=TEXT).process(Ticking)
    ticks.to_table(key=TEXT, value=TEXT).suppress(after=20).to_stream().to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder) as driver:
        for time in (5, 15, 25, 35):
            driver.pipe("in", b"a", b"", time)
        out = driver.create_output_topic("out", key=TEXT, value=TEXT)
        assert [(record.value, record.timestamp) for record in out.read_records()] == [("25", 25)]


def test_a_suppressed_table_has_the_row_before_the_update_that_is_kept_back() -> None:
    builder = StreamsBuilder()
    rates = builder.table("rates", key=TEXT, value=TEXT).suppress(after=10)
    orders = builder.stream("orders", key=TEXT, value=TEXT)
    orders.left_join(rates, lambda order, rate: f"{order}@{rate}").to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder) as driver:
        out = driver.create_output_topic("out", key=TEXT, value=TEXT)
        for topic, key, value, time in [
            ("rates", b"eur", b"1", 1), ("orders", b"eur", b"A", 2), ("rates", b"x", b"-", 20),
            ("orders", b"eur", b"B", 21), ("rates", b"eur", b"2", 22), ("orders", b"eur", b"C", 23),
            ("rates", b"x", b"-", 40), ("orders", b"eur", b"D", 41),
        ]:  # fmt: skip
            driver.pipe(topic, key, value, time)
        found = [record.value for record in out.read_records()]
    assert found == ["A@None", "B@1", "C@1", "D@2"]


# -- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of until='window_closes'"),
        ({"until": "window_closes", "after": 5}, "one of until='window_closes'"),
        ({"until": "closed"}, "until of suppress must be 'window_closes', not 'closed'"),
        ({"after": -1}, "the time of suppress must be at least 0 ms"),
        ({"after": "1 s"}, "the time of suppress must be a timedelta"),
        ({"after": 1, "when_full": "shut down"}, "when_full of suppress must be 'stop' or 'emit'"),
        ({"until": "window_closes", "when_full": "emit"}, "can't emit early: a window would have several results"),
        ({"after": 1, "max_records": -1}, "max_records of suppress must be a number of at least 0, not -1"),
        ({"after": 1, "max_bytes": 1.5}, "max_bytes of suppress must be a number of at least 0"),
        ({"after": 1, "name": "no/good"}, "an operator can't be named"),
    ],
)
def test_choices_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        counts(StreamsBuilder()).suppress(**options)


def test_a_table_without_windows_has_none_that_close() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", "rows", key=TEXT, value=TEXT).filter(lambda k, v: True)
    with pytest.raises(TopologyError, match=r"no windows lead to KTABLE-FILTER-0000000002.*after=DURATION"):
        table.suppress(until="window_closes")


def test_the_longest_grace_above_the_table_counts() -> None:
    builder = StreamsBuilder()
    left = counts(builder)
    grouped = builder.stream("right", key=TEXT, value=TEXT).group_by_key()
    right = grouped.windowed_by(TimeWindows(SIZE, grace=timedelta(milliseconds=50))).count()
    table = left.join(right, lambda one, other: one + other).filter(lambda k, v: True).map_values(str)
    table.suppress(until="window_closes", name="held")
    (operator,) = (node.operator for node in nodes(builder) if node.name == "held")  # type: ignore[union-attr]
    assert operator.wait_ms == 50  # type: ignore[attr-defined]


def nodes(builder: StreamsBuilder) -> list[Any]:
    return [node for sub in builder.build().resolve("app") for node in sub.nodes]


def test_a_key_that_has_lost_its_window_is_told() -> None:
    builder = StreamsBuilder()
    table = counts(builder).to_stream(lambda key, _: key.key).to_table(key=TEXT, value=LONG)
    table.suppress(until="window_closes")
    with TopologyTestDriver(builder) as driver, pytest.raises(Exception, match="which has no window"):
        driver.pipe("in", b"a", b"x", 1)


def test_updates_are_counted_for_metrics() -> None:
    harness = Harness(last_values()).start()
    harness.pipe(("a", "x", 1), ("b", "y", 30), ("c", "zz", 30))
    assert harness.task.counters.tally("held", "suppression-emit").total == 1
    assert harness.task.held() == {"held-store": (2, 2 * (8 + 1 + 22) + 1 + 2)}
