"""The Processor API: whole records, stores, punctuation, named children."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.records import Record, RecordMetadata, TaskId
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import FixedKeyProcessor, FixedKeyRecord, Processor, StreamsBuilder, Topology

TEXT = serdes.STRING


def with_processor(supplier: Any, *sinks: str) -> Topology:
    topology = Topology().add_source("source", "in", key=TEXT, value=TEXT).add_processor("work", supplier, "source")
    for sink in sinks:
        topology.add_sink(sink, f"{sink}-topic", "work", key=TEXT, value=TEXT)
    return topology


def test_a_processor_sees_the_whole_record_and_where_it_came_from(run: Any) -> None:
    seen: list[Any] = []

    class Seeing(Processor):
        def process(self, record: Record) -> None:
            context = self.context
            seen.append((record, context.record_metadata(), context.task_id, context.application_id))
            seen.append((context.current_stream_time_ms(), context.current_system_time_ms(), context.app_configs["x"]))

    run(with_processor(Seeing), {"x": 5}).pipe("in", "k", "v", 9, [("h", b"1")])
    assert seen == [
        (Record("k", "v", 9, [("h", b"1")]), RecordMetadata("in", 0, 5), TaskId(0, 0), "app"),
        (77, 1234, 5),
    ]


def test_forward_goes_to_all_children_or_to_the_named_one(run: Any) -> None:
    class Choosing(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_key("all"))
            self.context.forward(record.with_value("named").with_timestamp(3), "second")

    task = run(with_processor(Choosing, "first", "second")).feed("in", ("k", "v", 9))
    assert [(out.topic, out.key, out.value, out.timestamp) for out in task.outputs] == [
        ("first-topic", b"all", b"v", 9),
        ("second-topic", b"all", b"v", 9),
        ("second-topic", b"k", b"named", 3),
    ]


def test_forward_to_a_child_that_isn_t_there_names_those_that_are(run: Any) -> None:
    class Wrong(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record, "third")

    with pytest.raises(TopologyError, match=r"work has no child third: its children are \['first'\]"):
        run(with_processor(Wrong, "first")).pipe("in", "k", "v")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"timestamp": -1}, "the negative timestamp -1"), ({"timestamp": 1.5}, "timestamp 1.5"),
        ({"headers": [("a\0", b"")]}, "NUL"), ({"headers": [("a", "x")]}, "bytes"),
    ],
    ids=str,
)  # fmt: skip
def test_what_kafkas_client_would_not_write_as_it_is_isn_t_forwarded(run: Any, change: Any, says: str) -> None:
    class Wrong(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record._replace(**change))

    with pytest.raises(ValueError, match=f"work forwards a record with .*{says}"):
        run(with_processor(Wrong, "first")).pipe("in", "k", "v")


def test_a_record_of_time_0_is_seen_as_it_is_and_written_with_the_first_time_that_can_be(run: Any) -> None:
    seen: list[int] = []

    class Seeing(Processor):
        def process(self, record: Record) -> None:
            seen.append(record.timestamp)
            self.context.forward(record)

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Seeing).to("out", key=TEXT, value=TEXT)
    task = run(builder).feed("in", ("k", "v", 0))
    assert (seen, task.rows("out")) == ([0], [("k", "v", 1)])


def test_a_store_logs_with_the_time_of_the_record_that_its_processor_has(run: Any) -> None:
    seen: list[int] = []

    class Later(Processor):
        def process(self, record: Record) -> None:
            seen.append(scope.timestamp)
            self.context.forward(record.with_timestamp(record.timestamp + 10))
            seen.append(scope.timestamp)

    topology = with_processor(Later).add_processor("next", Later, "work")
    task = run(topology)
    scope = task.services[0].record
    task.pipe("in", "k", "v", 5)
    assert seen == [5, 15, 15, 5]


def test_headers_that_are_forwarded_hold_for_that_record_only(run: Any) -> None:
    class Heading(Processor):
        def process(self, record: Record) -> None:
            record.headers.append(("mine", b"1"))
            self.context.forward(record)
            record.headers.clear()
            self.context.forward(record)
            self.context.forward(record.with_headers([("other", None)]))

    given = [("h", b"0")]
    task = run(with_processor(Heading, "first")).feed("in", ("k", "v", 0, given))
    assert [out.headers for out in task.outputs] == [[("h", b"0"), ("mine", b"1")], None, [("other", None)]]
    assert given == [("h", b"0")]
    assert task.services[0].record.headers is given


def test_processors_are_initialised_in_order_and_closed_in_reverse_even_if_one_fails(run: Any) -> None:
    calls: list[str] = []

    def supplier(name: str, fails: bool = False) -> Any:
        class Calling(Processor):
            def init(self, context: Any) -> None:
                calls.append(f"init {name}")

            def close(self) -> None:
                calls.append(f"close {name}")
                if fails:
                    raise ValueError(name)

        return Calling

    topology = Topology().add_source("source", "in")
    topology.add_processor("a", supplier("a"), "source")
    topology.add_processor("b", supplier("b", fails=True), "a")
    topology.add_processor("c", supplier("c", fails=True), "b")
    with pytest.raises(ValueError, match=r"^c$"):
        run(topology).programs[0].close()
    assert calls == ["init a", "init b", "init c", "close c", "close b", "close a"]


def test_each_task_has_processors_of_its_own(run: Any) -> None:
    made: list[Any] = []
    topology = with_processor(lambda: made.append(Processor()) or made[-1])
    tried = len(made)
    run(topology)
    run(topology)
    assert len(made) == len(set(map(id, made))) == tried + 2


def test_a_supplier_that_gives_one_object_to_all_is_refused_when_the_topology_is_built() -> None:
    processor = Processor()
    with pytest.raises(TopologyError, match=r"returns the same object each time: each task needs one of its own"):
        with_processor(lambda: processor)


def test_a_context_that_is_kept_beyond_close_refuses_everything(run: Any) -> None:
    kept: list[Any] = []

    class Keeping(Processor):
        def init(self, context: Any) -> None:
            kept.append(context)

    run(with_processor(Keeping)).programs[0].close()
    (context,) = kept
    for use in (
        lambda: context.forward(Record("k", "v", 1)),
        lambda: context.schedule(10, "stream-time", print),
        lambda: context.get_state_store("store"),
        context.commit,
        context.record_metadata,
    ):
        with pytest.raises(TopologyError, match=r"is used after its close: the task has moved, or was rolled back"):
            use()


def test_only_connected_stores_can_be_used(run: Any) -> None:
    seen: list[Any] = []

    class Storing(Processor):
        def init(self, context: Any) -> None:
            seen.append(context.get_state_store("mine"))
            context.get_state_store("other")

    topology = with_processor(Storing).add_processor("more", Processor, "source")
    topology.add_state_store(StoreSpec("mine"), "work").add_state_store(StoreSpec("other"), "more")
    with pytest.raises(TopologyError, match=r"work has no access to the store other, only to \['mine'\]"):
        run(topology)
    assert len(seen) == 1


def test_a_punctuation_is_scheduled_by_stream_time_or_wall_clock(run: Any) -> None:
    class Scheduling(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(timedelta(seconds=1.5), "stream-time", self.tick)
            context.schedule(20, "wall-clock-time", self.tick)

        def tick(self, timestamp: int) -> None:
            self.context.forward(Record("tick", str(timestamp), timestamp))
            self.context.commit()

    task = run(with_processor(Scheduling, "first"))
    services = task.services[0]
    assert [entry[:2] + entry[3:] for entry in services.scheduled] == [
        (1500, "stream-time", "work"),
        (20, "wall-clock-time", "work"),
    ]
    services.scheduled[0][2](42)
    assert services.outputs[0][2:6] == (b"tick", b"42", 42, None)
    assert services.commits == 1


@pytest.mark.parametrize(
    ("interval", "kind", "message"), [(0, "stream-time", "at least 1 ms"), (1, "weekly", '"wall-clock-time", not')]
)
def test_a_punctuation_that_can_t_be_is_refused(run: Any, interval: int, kind: Any, message: str) -> None:
    class Scheduling(Processor):
        def init(self, context: Any) -> None:
            context.schedule(interval, kind, print)

    with pytest.raises(ValueError, match=message):
        run(with_processor(Scheduling))


def test_process_values_keeps_the_key(run: Any) -> None:
    class Upper(FixedKeyProcessor):
        def process(self, record: FixedKeyRecord) -> None:
            self.context.forward(record.with_value(record.value.upper()).with_timestamp(record.timestamp + 1))
            self.context.forward(record.with_headers([("h", b"1")]))

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process_values(Upper).to("out")
    task = run(builder).feed("in", ("k", "v", 4))
    assert [(out.key, out.value, out.timestamp, out.headers) for out in task.outputs] == [
        (b"k", b"V", 5, None),
        (b"k", b"v", 4, [("h", b"1")]),
    ]


def test_process_values_can_t_forward_another_key(run: Any) -> None:
    class Wrong(FixedKeyProcessor):
        def process(self, record: FixedKeyRecord) -> None:
            self.context.forward(FixedKeyRecord("other", record.value, record.timestamp))

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process_values(Wrong).to("out")
    with pytest.raises(TopologyError, match="can't change keys"):
        run(builder).pipe("in", "k", "v")


def test_a_dsl_processor_uses_the_stores_it_names(run: Any) -> None:
    class Counting(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            self.rows = context.get_state_store("seen")

        def process(self, record: Record) -> None:
            count = (self.rows.get_raw(record.key) or (0, 0))[0] + 1
            self.rows.put_raw(record.key, count, 0)
            self.context.forward(record.with_value(count))

    builder = StreamsBuilder().add_state_store(StoreSpec("seen", key_serde=TEXT, value_serde=serdes.LONG))
    builder.stream("in", key=TEXT, value=TEXT).process(Counting, "seen").to("out", value=serdes.LONG)
    task = run(builder).feed("in", ("a", "x"), ("a", "y"))
    assert task.rows("out") == [("a", 1, 1), ("a", 2, 1)]


def test_a_processor_without_process_says_so(run: Any) -> None:
    with pytest.raises(NotImplementedError, match="Empty needs a method process"):
        run(with_processor(type("Empty", (Processor,), {}))).pipe("in", "k", "v")
