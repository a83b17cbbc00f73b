"""A profile: each node's own time and that of what it called, whatever raises, waits or is made anew meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import ProcessingError
from milestones.common.records import Record
from milestones.common.serdes import Serde
from milestones.common.state.stores.key_value_stores import KeyValueStore
from milestones.common.task.profile import Part, Profile, Spent, one_in
from milestones.common.task.timings import Cost, Costs, Timings, measured_costs
from milestones.common.topology import Processor, StreamsBuilder, Topology
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import Harness, a_store

RECORDS = Part("work", "records")


class Clock:
    """Time that passes when user code says so, on a CPU or not."""

    def __init__(self) -> None:
        self.ns = self.cpu_ns = 0

    def compute(self, ns: int) -> None:
        self.ns, self.cpu_ns = self.ns + ns, self.cpu_ns + ns

    def wait(self, ns: int) -> None:
        self.ns += ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def profile(clock: Clock) -> Profile:
    return Profile(lambda: clock.ns, lambda: clock.cpu_ns, lambda: True)


def node(name: str) -> Part:
    return Part("node", name)


def own(profile: Profile) -> dict[str, float]:
    """The own time of each node."""
    timings = Timings(profile.edges())
    return {part.name: timings.own_ns(part) for part in timings.parts if part.kind == "node"}


def total(profile: Profile, name: str) -> float:
    return Timings(profile.edges()).total_ns(node(name))


def chain(**actions: Callable[[Any, Any], None]) -> Topology:
    """A source, and a processor of each name, one after the other; an action takes context and record."""
    topology, parent = Topology(), "source"
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    for name, action in actions.items():
        topology.add_processor(name, processor(action), parent)
        parent = name
    return topology


def processor(
    action: Callable[[Any, Any], None], init: Callable[[Any], None] = lambda _: None
) -> Callable[[], Processor[Any, Any, Any, Any]]:
    class Acting(Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            super().init(context)
            init(context)

        def process(self, record: Any) -> None:
            action(self.context, record)

    return Acting


def test_a_nodes_own_time_is_without_that_of_the_nodes_below(clock: Clock, profile: Profile) -> None:
    def twice(context: Any, record: Any) -> None:
        clock.compute(30)
        context.forward(record)
        clock.compute(10)
        context.forward(record)

    h = Harness(chain(twice=twice, last=lambda *_: clock.compute(5)), profile=profile).start()
    h.pipe(("k", "v", 1), ("k", "v", 2))
    assert own(profile) == {"source": 0, "twice": 80, "last": 20}
    assert total(profile, "twice") == total(profile, "source") == 100
    assert Timings(profile.edges()).given(node("last")).calls == 4


def test_a_function_that_computes_before_one_that_waits_has_its_time(clock: Clock, profile: Profile) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    stream.map_values(lambda value: clock.compute(400) or value).for_each(lambda *_: clock.wait(600))
    Harness(builder.build(), profile=profile).start().pipe(("k", "v", 1))
    timings = Timings(profile.edges())
    assert sorted(own(profile).values()) == [0, 400, 600]
    assert [timings.given(part).calls for part in timings.parts if part.kind == "node"] == [1, 1, 1]


def test_the_clocks_of_the_system_tell_computing_from_waiting_as_well() -> None:
    """A sampler that runs beside the thread would find it in the wait each time: that is where the lock is free."""
    never, profile = Event(), Profile(choose=lambda: True)

    def compute(context: Any, record: Any) -> None:
        until = time.perf_counter_ns() + 200_000
        while time.perf_counter_ns() < until:
            pass
        context.forward(record)

    h = Harness(chain(computes=compute, waits=lambda *_: never.wait(0.0002)), profile=profile).start()
    h.pipe(*(("k", "v", at) for at in range(200)))
    timings = Timings(profile.edges())
    computing, waiting = (timings.on_cpu(node(name)) for name in ("computes", "waits"))
    assert own(profile)["computes"] >= 200 * 200_000 <= own(profile)["waits"]
    assert computing is not None
    assert waiting is not None
    assert computing > waiting


def test_cpu_time_is_told_from_waiting_and_not_guessed_from_too_little(clock: Clock, profile: Profile) -> None:
    def wait_then_compute(context: Any, record: Any) -> None:
        clock.wait(3_000_000)
        clock.compute(1_000_000)
        context.forward(record)

    h = Harness(chain(slow=wait_then_compute, quick=lambda *_: clock.compute(10)), profile=profile).start()
    h.pipe(("k", "v", 1))
    timings = Timings(profile.edges())
    assert timings.on_cpu(node("slow")) == pytest.approx(0.25)
    assert timings.on_cpu(node("quick")) is None


def test_cpu_time_is_taken_at_first_and_then_of_some_turns_only() -> None:
    choose = one_in(16)
    chosen = [choose() for _ in range(3_200)]
    assert chosen[0]
    assert 100 < sum(chosen) < 400


def test_records_that_fail_count_and_the_next_one_is_timed_from_the_beginning(clock: Clock, profile: Profile) -> None:
    def fail(_: Any, record: Any) -> None:
        clock.compute(7)
        if record.value == "fail":
            raise RuntimeError("user code")

    h = Harness(
        chain(first=lambda context, record: context.forward(record), last=fail), profile=profile,
        processing_handler=LogAndContinue(),
    ).start()  # fmt: skip
    h.pipe(("k", "fail", 1), ("k", "v", 2))
    assert own(profile)["last"] == 14
    assert {caller for (caller, part) in profile.edges() if part == node("source")} == {RECORDS}


def test_an_error_that_ends_the_turn_leaves_nothing_open(clock: Clock, profile: Profile) -> None:
    def fail(*_: Any) -> None:
        clock.compute(3)
        raise RuntimeError("user code")

    h = Harness(chain(only=fail), profile=profile).start()
    for _ in range(2):
        with pytest.raises(ProcessingError):
            h.pipe(("k", "v", 1))
    assert own(profile)["only"] == 6
    assert {caller for (caller, part) in profile.edges() if part == RECORDS} == {None}


def test_a_punctuation_has_a_time_of_its_own_and_so_has_what_it_forwards(clock: Clock, profile: Profile) -> None:
    def init(context: Any) -> None:
        def tick(_now: int) -> None:
            clock.compute(50)
            context.forward(Record("k", "v", 1))

        context.schedule(10, "stream-time", tick)

    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("ticks", processor(lambda *_: clock.compute(1), init), "source")
    topology.add_processor("below", processor(lambda *_: clock.compute(4)), "ticks")
    Harness(topology, profile=profile).start().pipe(("k", "v", 1), ("k", "v", 12))
    timings = Timings(profile.edges())
    tick = Part("punctuation", "ticks")
    assert (timings.given(tick).calls, timings.own_ns(tick), timings.total_ns(tick)) == (2, 100, 108)
    assert own(profile) == {"source": 0, "ticks": 2, "below": 8}


def test_calls_of_stores_and_deserialisers_are_told_apart_from_their_nodes(clock: Clock, profile: Profile) -> None:
    def write(value: str) -> bytes:
        clock.compute(20)
        return value.encode()

    def read(data: bytes) -> str:
        clock.compute(9)
        return data.decode()

    slow = Serde(write, read)

    def keep(context: Any, record: Any) -> None:
        clock.compute(1)
        context.get_state_store("store").put(record.key, record.value)

    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=slow)
    topology.add_processor("keeps", processor(keep), "source")
    topology.add_state_store(a_store(value_serde=slow), "keeps")
    Harness(topology, profile=profile).start().pipe(("k", "v", 1), ("k", "w", 2))
    timings = Timings(profile.edges())
    assert timings.own_ns(node("keeps")) == 2
    assert timings.called_by(node("keeps")) == [Part("store", "store", "put")]
    assert timings.given(Part("store", "store", "put")).calls == 2
    assert timings.own_ns(Part("store", "store", "put")) == 40
    assert timings.own_ns(Part("serde", "source", "value")) == 18


def test_a_processor_finds_a_store_of_the_class_that_it_asked_for(profile: Profile) -> None:
    found: list[Any] = []
    topology = chain(only=lambda context, _: found.append(context.get_state_store("store")))
    topology.add_state_store(a_store(), "only")
    h = Harness(topology, profile=profile).start()
    h.pipe(("k", "v", 1))
    assert isinstance(found[0], KeyValueStore)
    assert (found[0].name, found[0].get("k")) == ("store", None)


def test_a_node_that_two_call_is_shared_out_by_the_time_that_each_caused(clock: Clock, profile: Profile) -> None:
    topology = chain(first=lambda context, record: context.forward(record))
    topology.add_processor("second", processor(lambda context, record: context.forward(record)), "source")
    times = iter((30, 10))
    topology.add_processor("both", processor(lambda *_: clock.compute(next(times))), "first", "second")
    Harness(topology, profile=profile).start().pipe(("k", "v", 1))
    assert (total(profile, "first"), total(profile, "second"), total(profile, "both")) == (30, 10, 40)
    in_us = {edge: Spent(*(each * 1000 for each in spent)) for edge, spent in profile.edges().items()}
    assert sorted(Timings(in_us).stacks()) == ["records;source;first;both 30", "records;source;second;both 10"]


def test_a_node_that_only_passes_on_is_left_out_and_its_child_called_by_those_before(
    clock: Clock, profile: Profile
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    one, other = stream.map_values(lambda value: clock.compute(1) or value), stream.filter(lambda *_: True)
    one.merge(other).for_each(lambda *_: clock.compute(10))
    Harness(builder.build(), profile=profile).start().pipe(("k", "v", 1))
    times = own(profile)
    assert not [name for name in times if "MERGE" in name]
    assert sorted(times.values()) == [0, 0, 1, 20]


def test_times_go_on_through_a_roll_back_and_a_successor_of_the_task(clock: Clock, profile: Profile) -> None:
    topology = chain(only=lambda *_: clock.compute(5))
    h = Harness(topology, profile=profile).start()
    h.pipe(("k", "v", 1))
    h.task.roll_back()
    h.task.start(dict.fromkeys(h.task.partitions, 0), {})
    h.pipe(("k", "v", 1))
    assert own(profile)["only"] == 10
    Harness(topology, profile=profile).start().pipe(("k", "v", 1))
    assert own(profile)["only"] == 15
    assert Timings(profile.edges()).given(node("only")).calls == 3


def test_the_work_of_a_commit_is_told_by_what_it_is(clock: Clock, profile: Profile) -> None:
    h = Harness(chain(only=lambda *_: clock.compute(5)), profile=profile).start()
    h.pipe(("k", "v", 1))
    h.commit()
    calls = {part.name: spent.calls for (_, part), spent in profile.edges().items() if part.kind == "work"}
    assert calls == {"records": 1, "commit": 1, "writes": 1}


def test_what_the_profile_itself_takes_is_taken_out() -> None:
    outer, inner = node("outer"), node("inner")
    put = Part("store", "store", "put")
    edges = {(None, outer): Spent(10, 1_000), (outer, inner): Spent(20, 300), (outer, put): Spent(5, 100)}
    timings = Timings(edges, Costs(node=Cost(within=3, around=4), call=Cost(within=6, around=7)))
    assert timings.own_ns(inner) == 300 - 20 * 3
    assert timings.own_ns(put) == 100 - 5 * 6
    assert timings.own_ns(outer) == 1_000 - 300 - 100 - 10 * 3 - 20 * 4 - 5 * 7
    assert timings.all_ns == timings.total_ns(outer) == 1_000 - 10 * 3 - 20 * 7 - 5 * 13
    assert timings.cost_ns == 30 * 7 + 5 * 13


def test_a_part_called_by_itself_has_its_time_once() -> None:
    part = node("again")
    timings = Timings({(None, part): Spent(1, 100), (part, part): Spent(1, 60)})
    assert timings.own_ns(part) == timings.total_ns(part) == 100


def test_the_cost_of_timing_a_call_is_a_part_of_a_microsecond() -> None:
    for cost in measured_costs():
        assert 0 < cost.within + cost.around < 20_000


def test_threads_are_told_by_what_they_do_also_when_a_namesake_follows(clock: Clock, profile: Profile) -> None:
    class Loop:
        def turn(self) -> None:
            clock.wait(5)
            self.work()

        def work(self) -> None:
            clock.compute(20)

    for _ in range(2):
        loop = Loop()
        profile.follow_thread("thread", [(loop, {"turn": "waits", "work": "works"})])
        loop.turn()
    timings = Timings(profile.threads()["thread"])
    assert {part.name: timings.own_ns(part) for part in timings.parts} == {"waits": 10, "works": 40}
    assert timings.cpu_ns == 40


def test_without_a_profile_nothing_stands_between_a_record_and_its_nodes(profile: Profile) -> None:
    def names(h: Harness) -> set[str]:
        (buffer,) = h.task.input.buffers.values()
        called = (buffer.source.process, buffer.source.read_key, h.task._runner.process)
        return {function.__qualname__.rpartition(".")[2] for function in called}

    topology = chain(only=lambda *_: None)
    assert names(Harness(topology).start()).isdisjoint({"timed", "turn"})
    assert names(Harness(topology, profile=profile).start()) == {"timed", "turn"}
