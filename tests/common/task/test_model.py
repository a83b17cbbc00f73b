"""A task against a plain model: any mix of records, failures, commits, failed commits and roll-backs.

The model is a dict per committed state and one for what is staged. After each commit the store's engine must be the
fold of its changelog up to the stored offset (invariant I8), and nothing uncommitted may be in it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from milestones.common import serdes
from milestones.common.records import Output, TopicPartition
from milestones.common.state.stores import ValueAndTimestamp
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.conftest import named

IN = TopicPartition("in", 0)

_spec = importlib.util.spec_from_file_location("task_kit", Path(__file__).with_name("conftest.py"))
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
kit = _module.Kit()

KEYS = st.sampled_from(["", "a", "b", "ab", "b\x00", "ü", "z"])
OPERATION = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 3)),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("absent"), KEYS, st.integers(0, 3)),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("change"), KEYS),
    st.tuples(st.sampled_from(["range", "reverse_range"]), st.none() | KEYS, st.none() | KEYS),
    st.tuples(st.just("prefix_scan"), KEYS),
    st.tuples(st.just("fail")),
)
Rows = dict[str, Any]


def in_order(rows: Rows) -> list[tuple[str, Any]]:
    return sorted(rows.items(), key=lambda item: item[0].encode())


def expected(rows: Rows, operation: Any) -> Any:
    """What an operation returns; it changes `rows`."""
    name, *args = operation
    match name:
        case "put":
            rows[args[0]] = [args[1]]
        case "delete":
            return rows.pop(args[0], None)
        case "absent":
            before = rows.get(args[0])
            rows.setdefault(args[0], [args[1]])
            return before
        case "get" | "change":
            return rows.get(args[0])
        case "prefix_scan":
            return [(k, v) for k, v in in_order(rows) if k.encode().startswith(args[0].encode())]
        case "range" | "reverse_range":
            low, high = (None if bound is None else bound.encode() for bound in args)
            found = [
                (k, v)
                for k, v in in_order(rows)
                if (low is None or low <= k.encode()) and (high is None or k.encode() <= high)
            ]
            return found if name == "range" else found[::-1]
    return None


class Store:
    """The store under test, with plain values whatever its kind is."""

    def __init__(self, store: Any, timestamped: bool) -> None:
        self._store, self._timestamped = store, timestamped

    def _in(self, value: Any) -> Any:
        return ValueAndTimestamp(value, 7) if self._timestamped else value

    def _out(self, value: Any) -> Any:
        return value.value if self._timestamped and value is not None else value

    def run(self, operation: Any) -> Any:
        name, *args = operation
        match name:
            case "put":
                return self._store.put(args[0], self._in([args[1]]))
            case "absent":
                return self._out(self._store.put_if_absent(args[0], self._in([args[1]])))
            case "change":
                value = self._out(self._store.get(args[0]))
                answer = None if value is None else list(value)
                if value is not None:
                    value.append("changed by the user")
                return answer
            case "get" | "delete":
                return self._out(getattr(self._store, name)(args[0]))
            case _:
                return [(key, self._out(value)) for key, value in getattr(self._store, name)(*args)]


class TaskModel(RuleBasedStateMachine):
    """`kafka`: the committed changelog. `staged`, `pending`: rows, in the boundary and in the commit under way."""

    @initialize(
        kind=st.sampled_from(["key-value", "timestamped-key-value"]), cache=st.sampled_from([0, 700, 10**6]),
        remembered=st.sampled_from([2, 32_768]),
    )  # fmt: skip
    def begin(self, kind: Any, cache: int, remembered: int) -> None:
        spec = kit.store(kind=kind, cached=cache > 0, value_serde=serdes.JSON)
        topology = kit.processing(self.process, [spec], value=serdes.JSON)
        self.timestamped = kind == "timestamped-key-value"
        self.h = kit.Harness(
            topology, cache_max_bytes=cache, max_remembered=remembered, processing_handler=LogAndContinue()
        ).start()
        self.kafka: list[Output] = []
        self.unconfirmed: list[Output] = []
        self.committed: Rows = {}
        self.staged: Rows = {}
        self.pending: Any = None
        self.committed_offset = self.offset = 0
        self.exactly_once = True

    def process(self, context: Any, record: Any) -> None:
        store = Store(context.get_state_store("store"), self.timestamped)
        rows = {key: list(value) for key, value in self.staged.items()}
        for operation in record.value:
            if operation[0] == "fail":
                raise RuntimeError("user code")
            assert store.run(operation) == expected(rows, operation), operation
        self.staged = rows

    @rule(operations=st.lists(OPERATION, min_size=1, max_size=6))
    def record(self, operations: Any) -> None:
        self.h.feed(("k", orjson.dumps(operations), 5))
        assert self.h.run() == 1
        self.offset += 1

    @rule()
    def send(self) -> None:
        self.unconfirmed += named(self.h.task.take_outputs())

    @precondition(lambda self: self.pending is None)
    @rule()
    def freeze(self) -> None:
        staged = self.h.task.freeze()
        assert staged.offsets == {IN: self.offset}
        self.unconfirmed += named(staged.outputs)
        rows = {key: list(value) for key, value in self.staged.items()}
        self.pending = staged, rows, self.offset, len(self.unconfirmed)

    @precondition(lambda self: self.pending is not None)
    @rule()
    def confirm(self) -> None:
        staged, rows, offset, count = self.pending
        self.kafka += self.unconfirmed[:count]
        del self.unconfirmed[:count]
        self.h.task.applied(staged, {"store": len(self.kafka)})
        self.committed, self.committed_offset, self.pending = rows, offset, None
        self.check_engine()

    @precondition(lambda self: self.pending is not None)
    @rule()
    def thaw(self) -> None:
        self.h.task.thaw(self.pending[0])
        self.pending = None

    @rule()
    def roll_back(self) -> None:
        self.h.task.roll_back()
        self.unconfirmed.clear()
        self.staged = {key: list(value) for key, value in self.committed.items()}
        self.offset, self.pending = self.committed_offset, None
        self.h.ends["in"] = self.offset
        assert self.h.task.input.position(IN) == self.offset
        self.check_engine()

    def check_engine(self) -> None:
        """I8: the engine is the fold of the committed changelog, and that is what the model has committed."""
        folded: dict[bytes, bytes] = {}
        for output in self.kafka:
            assert output.key is not None
            if output.value is None:
                folded.pop(output.key, None)
            else:
                folded[output.key] = output.value
        head = 8 if self.timestamped else 0
        engine = {key: value[head:] for key, value in self.h.engine("store").items()}
        assert engine == folded
        assert {key.decode(): orjson.loads(value) for key, value in engine.items()} == self.committed
        assert self.h.task.changelog_offsets()["store"] in (len(self.kafka), None)

    @invariant()
    def reads_see_the_boundary(self) -> None:
        if hasattr(self, "h"):
            store = Store(self.h.task.store("store"), self.timestamped)
            assert store.run(("range", None, None)) == in_order(self.staged)
            assert self.h.task.uncommitted_bytes() >= 0


TestTaskAgainstModel = TaskModel.TestCase
TestTaskAgainstModel.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
