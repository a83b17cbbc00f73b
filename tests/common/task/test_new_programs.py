"""A roll-back leaves nothing behind in what user code holds: its task goes on with a new program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milestones.common.errors import ProcessingError, StateCorruptError, StateError, TopologyError
from milestones.common.records import OffsetAndMetadata, Record, StoreId, TopicPartition
from milestones.common.topology import Processor, Topology
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import Harness, a_store, forward, message, processing

START = 1_000_000
IN = TopicPartition("in", 0)


class Deduplicating(Processor):
    """Passes each value on once; notes in "store" that it has, and what it began with."""

    made: list[Deduplicating]

    def init(self, context: Any) -> None:
        super().init(context)
        type(self).made.append(self)
        self.store = context.get_state_store("store")
        self.store.put_if_absent("begun", "yes")
        self.seen = {value for _, value in self.store.all()}
        self.closed = 0

    def process(self, record: Record) -> None:
        if record.value not in self.seen:
            self.seen.add(record.value)
            self.store.put(record.value, record.value)
            self.context.forward(record)

    def close(self) -> None:
        self.closed += 1


def deduplicating(**settings: Any) -> Any:
    topology = Topology()
    topology.add_source("source", "in", key=a_store().key_serde, value=a_store().value_serde)
    topology.add_processor("worker", type("Own", (Deduplicating,), {"made": []}), "source")
    topology.add_sink("sink", "out", "worker", key=a_store().key_serde, value=a_store().value_serde)
    topology.add_state_store(a_store(), "worker")
    return Harness(topology, **settings)


def made(h: Any) -> list[Deduplicating]:
    (worker,) = (node for node in h.task.subtopology.nodes if node.name == "worker")
    return worker.operator.supplier.made  # type: ignore[no-any-return]


def rolled_back(h: Any, *again: tuple[Any, Any, int], at: int = 0) -> None:
    """Back to the last commit, and what was read since comes again."""
    h.task.roll_back()
    h.ends["in"] = at
    h.pipe(*again)


def test_attributes_know_nothing_of_records_that_come_again() -> None:
    h = deduplicating(transactional_id="tx").start()
    h.pipe(("k", "a", 1))
    h.commit()
    h.pipe(("k", "b", 2), ("k", "a", 3))
    assert [value for topic, _, value, _ in h.outputs() if topic == "out"] == [b"b"]
    rolled_back(h, ("k", "b", 2), ("k", "a", 3), at=1)
    assert [value for topic, _, value, _ in h.outputs() if topic == "out"] == [b"b"]
    h.commit()
    assert h.engine("store") == {b"begun": b"yes", b"a": b"a", b"b": b"b"}


def test_the_old_processor_is_closed_once_by_the_thread_that_initialises_the_new_one() -> None:
    h = deduplicating().start()
    h.task.roll_back()
    assert [one.closed for one in made(h)] == [0]
    h.task.initialise()
    assert [one.closed for one in made(h)] == [1, 0]
    h.task.close()
    assert [one.closed for one in made(h)] == [1, 1]


def test_a_task_that_ends_before_it_goes_on_closes_its_old_processor() -> None:
    h = deduplicating().start()
    h.task.roll_back()
    h.task.close()
    assert [one.closed for one in made(h)] == [1]


def test_a_processor_that_raises_when_it_is_rolled_back_keeps_nothing_up() -> None:
    def close() -> None:
        raise RuntimeError("user code")

    h = Harness(processing(forward, close=close)).start()
    rolled_back(h, ("k", "v", 1))
    assert [value for *_, value, _ in h.outputs()] == [b"v"]


def test_what_an_old_processor_does_at_its_close_is_never_committed() -> None:
    held: list[Any] = []

    def close() -> None:
        if len(held) == 1:
            held[0].get_state_store("store").put("late", "late")
            held[0].forward(Record("late", "late", 1))
            held[0].schedule(10, "wall-clock-time", lambda now: None)
            held[0].commit()

    h = Harness(processing(forward, [a_store()], init=held.append, close=close)).start()
    rolled_back(h, ("k", "v", 1))
    assert (h.outputs(), h.task.next_punctuation_ms()) == ([("out", b"k", b"v", 1)], None)
    assert not h.task.commit_requested()
    h.commit()
    assert h.engine("store") == {}


def test_what_user_code_kept_of_an_old_program_is_shut() -> None:
    kept: list[Any] = []

    def init(context: Any) -> None:
        store = context.get_state_store("store")
        store.put("a", "1")
        store.put("b", "2")
        entries = store.all()
        next(entries)
        kept.append((context, store, entries, context.schedule(10, "wall-clock-time", lambda now: None)))

    h = Harness(processing(forward, [a_store()], init=init)).start()
    rolled_back(h)
    (context, store, entries, scheduled), (_, new_store, *_) = kept
    for use in (lambda: store.put("a", "old"), lambda: store.get("a"), lambda: next(entries)):
        with pytest.raises(StateError, match=r"store store of task 0_0 isn't open"):
            use()
    with pytest.raises(TopologyError, match=r"a processor of worker is used after its close"):
        context.forward(Record("k", "v", 1))
    scheduled.cancel()
    h.pipe(("k", "v", 1))
    assert h.task.next_punctuation_ms() == START + 10
    assert new_store.get("a") == "1"


def test_a_supplier_that_fails_at_the_roll_back_fails_the_task_and_nothing_is_left_open() -> None:
    tries: list[int] = []

    def supplier() -> Processor:
        tries.append(1)
        if len(tries) > 3:  # two when it is looked at
            raise RuntimeError("no more of them")
        return Processor()

    topology = Topology()
    topology.add_source("source", "in")
    topology.add_processor("worker", supplier, "source")
    h = Harness(topology, config={"default_key_serde": a_store().key_serde}).start()
    h.task.roll_back()
    with pytest.raises(RuntimeError, match=r"no more of them"):
        h.task.initialise()
    assert not h.task.initialised
    h.task.close()
    assert h.state.closed == 1


def test_an_init_that_fails_is_told_by_its_class_and_its_node() -> None:
    def init(_: Any) -> None:
        raise ValueError("no rates yet")

    with pytest.raises(ProcessingError, match=r"node worker, in Calling\.init: ValueError: no rates yet") as caught:
        Harness(processing(forward, init=init)).start()
    assert caught.value.node == "worker"


def test_a_node_below_that_fails_of_what_init_forwards_is_told_instead() -> None:
    def init(context: Any) -> None:
        context.forward(Record("k", 5, 1))

    with pytest.raises(ProcessingError, match=r"node sink, "):
        Harness(processing(forward, init=init)).start()


# -- punctuations


def scheduling(
    kind: str, process: Callable[[Any, Record], None] = lambda context, record: None, **settings: Any
) -> tuple[Any, list[int]]:
    """A task whose processor schedules in `init`, each 10 ms; the times of its calls."""
    calls: list[int] = []
    topology = processing(process, init=lambda context: context.schedule(10, kind, calls.append))
    return Harness(topology, **settings).start(), calls


def test_wall_clock_punctuations_keep_their_rhythm_over_roll_backs() -> None:
    h, calls = scheduling("wall-clock-time")
    h.clock.advance(7)
    rolled_back(h)
    assert h.task.next_punctuation_ms() == START + 10
    h.clock.advance(5)
    h.task.punctuate(START + 12)
    h.pipe(("k", "v", 1))
    h.commit()
    h.task.punctuate(START + 20)
    assert calls == [START + 12, START + 20]
    h.clock.advance(13)
    rolled_back(h, at=1)  # of the second call nothing was committed: it is due again
    assert h.task.next_punctuation_ms() == START + 20
    rolled_back(h, at=1)
    h.task.punctuate(START + 25)
    assert (calls, h.task.next_punctuation_ms()) == ([START + 12, START + 20, START + 25], START + 30)


def test_an_init_that_is_void_costs_punctuations_nothing_of_their_rhythm() -> None:
    """Another task's failure takes this one away from a processing thread that is about to initialise it."""
    void = []

    def init(context: Any) -> None:
        context.schedule(1_000, "wall-clock-time", lambda now: None)
        for _ in void:
            h.task.invalidate()

    h = Harness(processing(forward, init=init))
    h.start()
    for void[:] in ((), ("once",), ()):
        h.clock.advance(300)
        h.task.roll_back()
        h.task.initialise()
    assert h.task.next_punctuation_ms() == START + 1_000


def test_damage_that_init_meets_after_a_roll_back_is_known_as_the_tasks() -> None:
    damaged = []

    def init(context: Any) -> None:
        for store in damaged:
            raise StateCorruptError("a block's checksum is wrong", [StoreId(h.task.id, store)])

    h = Harness(processing(forward, [a_store()], init=init)).start()
    damaged.append("store")
    h.task.roll_back()
    with pytest.raises(StateCorruptError) as raised:
        h.task.initialise()
    assert raised.value.damaged == {(h.task.id, "store")}


def test_stream_time_punctuations_keep_their_rhythm_over_roll_backs() -> None:
    h, calls = scheduling("stream-time")
    h.pipe(("k", "v", 5))
    h.commit()
    h.pipe(("k", "v", 12))
    rolled_back(h, ("k", "v", 9), ("k", "v", 12), at=1)
    assert calls == [5, 12, 12]


def test_what_process_schedules_ends_with_a_roll_back_and_comes_again_with_its_record() -> None:
    calls: list[int] = []

    def process(context: Any, record: Record) -> None:
        context.schedule(100, "wall-clock-time", calls.append)

    h, _ = scheduling("wall-clock-time", process)
    h.pipe(("k", "v", 1))
    for _ in range(3):
        rolled_back(h, ("k", "v", 1))
    h.task.punctuate(START + 100)
    assert calls == [START + 100]


@pytest.mark.parametrize("action", ["schedules", "cancels", "commits"])
@pytest.mark.parametrize("handler", [LogAndContinue(), None], ids=["it is skipped", "it is tried again"])
def test_a_record_that_fails_has_asked_for_nothing(action: str, handler: Any) -> None:
    calls: list[int] = []

    def init(context: Any) -> None:
        context.token = context.schedule(10, "wall-clock-time", calls.append)

    def process(context: Any, record: Record) -> None:
        if action == "schedules":
            context.schedule(1, "wall-clock-time", lambda now: None)
            context.schedule(1, "stream-time", lambda now: calls.append(-1))
        elif action == "cancels":
            context.token.cancel()
        else:
            context.commit()
        if record.value == "fail":
            raise RuntimeError("user code")

    settings = {} if handler is None else {"processing_handler": handler}
    h = Harness(processing(process, init=init), **settings).start()
    h.feed(("k", "fail", 1))
    for _ in range(3):
        try:
            h.run()
        except Exception:
            assert handler is None
    assert not h.task.commit_requested()
    assert h.task.next_punctuation_ms() == START + 10
    h.task.punctuate(START + 10)
    assert calls == [START + 10]


def test_a_request_for_a_commit_is_heard_from_the_end_of_its_record_until_the_commit() -> None:
    heard: list[bool] = []

    def process(context: Any, record: Record) -> None:
        context.commit()
        heard.append(h.task.commit_requested())

    h = Harness(processing(process)).start()
    h.pipe(("k", "v", 1))
    assert (heard, h.task.commit_requested()) == ([False], True)
    h.commit()
    assert not h.task.commit_requested()


def test_a_task_that_only_schedules_in_init_has_nothing_to_commit() -> None:
    h, _ = scheduling("wall-clock-time")
    assert not h.task.commit_needed()


# -- the changelog, at least once


def test_a_commit_without_an_answer_that_was_made_is_restored_after_a_roll_back() -> None:
    h = deduplicating().start()
    h.pipe(("k", "a", 1))
    h.task.freeze()
    h.task.roll_back()
    h.task.compare({IN: OffsetAndMetadata(0)})
    assert not h.task.needs_restoration
    h.task.compare({IN: OffsetAndMetadata(1)})
    assert h.task.needs_restoration
    h.task.restore("store", [message(0, b"a", b"a", 1)], 1)
    h.task.start({IN: 1}, {}, initialise=False)
    assert not h.task.needs_restoration
    h.task.initialise()
    assert [key for _, key, *_ in h.outputs()] == [b"begun"]  # what init writes; nothing is taken back
    h.ends["in"] = 1
    h.pipe(("k", "a", 2))
    assert h.outputs() == []
