"""Joins by foreign key in the life of an application of several tasks: records that fail, roll-backs, crashes, stores
that come from changelogs or from a disk; whatever comes between, the end is what a join of two dicts gives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager as ContextManager
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from milestones import StreamsBuilder, Topology, serdes
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.engines.by_name import ENGINES
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.topology import foreign_keys
from milestones.common.topology.operators import foreign_keys as ops
from milestones.common.topology.operators.subscriptions import (
    ANSWER,
    UNSUBSCRIBE,
    UNSUBSCRIBE_AND_ANSWER,
    SubscriptionSerde,
    SubscriptionWrapper,
    hash_of,
)
from milestones.common.topology.program import OperatorContext, Process
from tests.common.task.several_tasks import Opener, SeveralTasks, on_disk

EXAMPLES = {"memory": 200, "rocksdict": 25, "rocksdb": 20}
TO_FIND = 300
"""Applications in which each planted mistake must show."""

Plant = Callable[[pytest.MonkeyPatch], None]

BYTES = serdes.BYTES
COUNTS = {"left": 2, "right": 3, "out": 2}
LARGE = 10 << 20

KEYS = [b"", b"\x00", b"a", b"ab", b"a\x00", b"\xff", b"\xff\xff", b"\x00\x00\x00\x01a"]
"""Keys that begin with one another, and that are the first or the last of all."""


def of_row(_key: bytes, value: bytes) -> bytes | None:
    """The foreign key in front of the last bar; none in front of a dash."""
    foreign, _, rest = value.rpartition(b"|")
    if rest == b"fail":
        raise RuntimeError("user code")
    return None if rest == b"-" else foreign


def loud(value: bytes) -> bytes:
    if value == b"fail":
        raise RuntimeError("user code")
    return value + b"!"


def joined(value: bytes, other: bytes | None) -> bytes:
    return value + b"&" + (b"none" if other is None else other)


def joins(left_join: bool) -> Topology:
    builder = StreamsBuilder()
    left = builder.table("left", key=BYTES, value=BYTES)
    # Behind a cache a row that came and went is told to nobody, though a subscription may have been answered with it.
    right = builder.table("right", key=BYTES, value=BYTES, caching=False)
    join = left.left_join if left_join else left.join
    rows = join(right.map_values(loud), joined, "joined", foreign_key=of_row, name="linking", value=BYTES)
    rows.to_stream().to("out", value=BYTES)
    return builder.build()


Table = dict[bytes, bytes]


class Model:
    """What the rows of both tables lead to."""

    def __init__(self, left_join: bool) -> None:
        self._left_join, self.left, self.right = left_join, Table(), Table()

    def put(self, topic: str, key: bytes, value: bytes | None) -> None:
        rows = self.left if topic == "left" else self.right
        if value is None:
            rows.pop(key, None)
        elif not value.endswith(b"fail"):  # such a record is skipped
            rows[key] = value

    def rows(self) -> Table:
        found = {}
        for key, value in self.left.items():
            foreign = of_row(key, value)
            other = None if foreign is None else self.right.get(foreign)
            if other is not None or self._left_join:
                found[key] = joined(value, None if other is None else loud(other))
        return found

    def subscriptions(self) -> set[tuple[bytes, bytes]]:
        """Foreign and primary keys."""
        pairs = {(of_row(key, value), key) for key, value in self.left.items()}
        return {(foreign, key) for foreign, key in pairs if foreign is not None}


def subscribed(tasks: SeveralTasks) -> set[tuple[bytes, bytes]]:
    """Foreign and primary keys of the rows in the store of subscriptions."""
    keys = tasks.rows("linking-subscription-store")
    return {(key[4 : 4 + int.from_bytes(key[:4])], key[4 + int.from_bytes(key[:4]) :]) for key in keys}


def is_as_the_model(tasks: SeveralTasks, model: Model) -> None:
    tasks.settle()
    assert {key: row[8:] for key, row in tasks.rows("joined").items()} == model.rows()
    assert tasks.folded("app-joined-changelog") == model.rows()
    assert tasks.folded("out") == model.rows()
    assert subscribed(tasks) == model.subscriptions()


KEY = st.sampled_from([b"a", b"ab"]) | st.sampled_from(KEYS)
LEFT_VALUE = st.builds(lambda key, end: key + b"|" + end, KEY, st.sampled_from([b"1", b"2", b"-", b"fail"]))
RIGHT_VALUE = st.sampled_from([b"x", b"y", b"fail"])
STEP = st.one_of(
    st.tuples(st.just("left"), KEY, st.none() | LEFT_VALUE | LEFT_VALUE),
    st.tuples(st.just("right"), KEY, st.none() | RIGHT_VALUE | RIGHT_VALUE),
    st.tuples(st.sampled_from(["process", "commit"]), st.integers(0, 4), st.integers(1, 3)),
    st.tuples(st.sampled_from(["process", "roll_back", "restart"]), st.integers(0, 4), st.integers(1, 3)),
    st.just(("settle", 0, 0)),
)


def lives(opener: Callable[[], ContextManager[Opener]], examples: int) -> None:
    """So many applications, always the same ones."""

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, report_multiple_bugs=False,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.lists(STEP, min_size=10, max_size=60), st.booleans(), st.booleans(), st.sampled_from([0, LARGE]))
    def live(steps: list[tuple[Any, ...]], left_join: bool, exactly_once: bool, cache: int) -> None:
        with opener() as stores:
            tasks = SeveralTasks(joins(left_join), COUNTS, exactly_once=exactly_once, cache=cache, opener=stores)
            try:
                is_as_the_model(tasks, lived(tasks, steps, Model(left_join), fails=not cache, one_by_one=not left_join))
            finally:
                tasks.close()

    live()


def lived(tasks: SeveralTasks, steps: list[tuple[Any, ...]], model: Model, fails: bool, one_by_one: bool) -> Model:
    """The model, once these steps are done. `fails`: records may fail; behind a cache the row would be kept, as it is
    the flush that fails. `one_by_one`: a change is there when the one before has come to its end."""
    ids = sorted(tasks.tasks)
    for now, (what, first, second) in enumerate(steps, 1):
        if what in ("left", "right"):
            if one_by_one:
                tasks.settle()
            value = second if fails or second is None else second.replace(b"fail", b"3")
            tasks.pipe(what, first, value, now)
            model.put(what, first, value)
        elif what == "process":
            tasks.process(ids[first], second)
        elif what == "settle":
            tasks.settle()
        else:
            getattr(tasks, what)(ids[first])
    return model


def in_memory() -> ContextManager[Opener]:
    return nullcontext(MemoryTaskStorage)


@pytest.mark.usefixtures("quiet")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ENGINES)
def test_whatever_comes_between_the_end_is_a_join_of_two_dicts(engine: str, tmp_path: Path) -> None:
    if engine == "rocksdb":
        pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    numbers = count()
    lives(
        in_memory if engine == "memory" else lambda: on_disk(tmp_path / str(next(numbers)), engine), EXAMPLES[engine]
    )


# -- what the model finds


def wrapped(owner: type, name: str, wrap: Callable[[Process, OperatorContext], Process]) -> Plant:
    """Plants `wrap(closure, context)` in place of an operator's closure."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        bind = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda operator, context: wrap(bind(operator, context), context))

    return plant


def replaced(module: Any, name: str, planted: Any) -> Plant:
    return lambda monkeypatch: monkeypatch.setattr(module, name, planted)


def without(instruction: int) -> Callable[[Process, OperatorContext], Process]:
    """Loses subscriptions with an instruction."""

    def lossy(process: Process, _: OperatorContext) -> Process:
        return lambda key, value, time: None if value.instruction == instruction else process(key, value, time)

    return lossy


PLANTED: dict[str, Plant] = {
    "an old subscription stays": wrapped(ops.KeepSubscriptions, "bind", without(UNSUBSCRIBE)),
    "a deletion isn't answered": wrapped(ops.AnswerSubscription, "bind", without(UNSUBSCRIBE_AND_ANSWER)),
    "a key that changes isn't answered": wrapped(ops.AnswerSubscription, "bind", without(ANSWER)),
    "the right table's changes aren't told": wrapped(
        ops.AnswerSubscribers, "bind_new", lambda _process, _context: lambda key, value, timestamp: None
    ),
    "the response goes to another partition": replaced(foreign_keys, "to_the_row", lambda *_: 0),
    "the length isn't in front of the key": replaced(ops, "prefix_of", lambda data: data),
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", PLANTED)
def test_the_model_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises((AssertionError, ValueError, IndexError)):
        lives(in_memory, TO_FIND)


# -- in particular


def started(left_join: bool = False, **options: Any) -> SeveralTasks:
    return SeveralTasks(joins(left_join), COUNTS, **options)


def test_a_response_goes_to_the_partition_of_its_row() -> None:
    tasks = started()
    for number in range(20):
        tasks.pipe("left", b"k%d" % number, b"a|1", 1)
    tasks.pipe("right", b"a", b"x", 2)
    tasks.settle()
    for partition in range(COUNTS["left"]):
        keys, responses = (
            {message.key() for message in tasks.logs[TopicPartition(topic, partition)]}
            for topic in ("left", "app-linking-subscription-response-topic")
        )
        assert responses == keys != set()


def test_a_subscription_that_a_newer_release_wrote_is_told_with_its_version() -> None:
    tasks = started()
    topic = "app-linking-subscription-registration-topic"
    tasks.pipe(topic, b"a", b"\x02\x03" + b"h" * 16 + b"k", 1)
    (reader,) = [id for id, task in tasks.tasks.items() if tasks.logs.keys() & set(task.partitions)]
    with pytest.raises(Exception, match=r"a subscription has version 2, and none above 1 is known"):
        tasks.process(reader)


def test_a_subscription_of_a_release_without_partitions_is_answered_by_the_key() -> None:
    tasks = started()
    tasks.pipe("left", b"k", b"a|1", 1)
    tasks.pipe("right", b"a", b"x", 1)
    left = SubscriptionWrapper(hash_of(b"a|1"), ANSWER, b"k", None)
    written = SubscriptionSerde(BYTES).serialize("any", left)
    tasks.pipe("app-linking-subscription-registration-topic", b"a", written, 2)
    tasks.settle()
    assert tasks.folded("out") == {b"k": b"a|1&x!"}


def test_the_response_to_a_former_row_does_no_harm_when_it_comes_last() -> None:
    tasks, model = started(left_join=True), Model(True)
    changes = ("right", b"ab", b"x"), ("left", b"k", b"ab|1"), ("left", b"k", b"a|1")
    for now, (topic, key, value) in enumerate(changes, 1):
        tasks.pipe(topic, key, value, now)
        model.put(topic, key, value)
    is_as_the_model(tasks, model)


def test_without_its_hash_a_response_to_a_former_row_would_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "hash_of", lambda data: b"-" * 16)
    with pytest.raises(AssertionError):
        test_the_response_to_a_former_row_does_no_harm_when_it_comes_last()


def test_a_response_to_a_row_that_has_changed_since_is_dropped_and_counted() -> None:
    tasks = started(left_join=True)
    tasks.pipe("right", b"a", b"x", 1)
    tasks.settle()
    tasks.pipe("left", b"k", b"a|1", 2)
    tasks.pipe("left", b"k", b"a|2", 3)
    tasks.settle()
    results = [m.value() for at, log in tasks.logs.items() if at.topic == "out" for m in log]
    assert results == [b"a|2&x!"]
    assert sum(task.dropped_records for task in tasks.tasks.values()) == 1


@pytest.mark.parametrize("left_join", [False, True])
def test_a_row_whose_response_is_under_way_when_its_task_crashes_is_joined_once(left_join: bool) -> None:
    tasks = started(left_join)
    tasks.pipe("right", b"a", b"x", 1)
    tasks.settle()
    tasks.pipe("left", b"k", b"a|1", 2)
    (left,) = [id for id, task in tasks.tasks.items() if task.id.subtopology == 0 and waits(tasks, id)]
    tasks.process(left)
    tasks.restart(left)
    tasks.settle()
    tasks.restart(left)
    tasks.settle()
    results = [m.value() for at, log in tasks.logs.items() if at.topic == "out" for m in log]
    assert results == [b"a|1&x!"]


def waits(tasks: SeveralTasks, id: TaskId) -> bool:
    return any(partition.topic == "left" and tasks.logs[partition] for partition in tasks.tasks[id].partitions)
