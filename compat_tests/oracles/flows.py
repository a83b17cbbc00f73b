"""The reference interpreter: what a topology must do, said in plain Python, one record at a time.

A topology of the suite is one or more flows. A flow reads topics, makes each record into payloads by key
(`expand`), folds payloads into a state per key (`step`), and writes what `encode` makes of the state.

*Guarantees*: uses nothing of the runtime.
*Assumes*: a flow's state depends on the order of its own key's payloads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from compat_tests.oracles.rows import Origin, Row


@dataclass(frozen=True)
class Flow:
    """One path from topics to a topic. `sources` and `output` are names without the application's prefix.

    `step` None: no state, `encode` is given the payload itself. `store`: the name of the store that keeps the state.
    Payloads of one input are numbered as they come, unless `expand` gives each its ordinal. `later`: the timestamp of
    a state out of its own and the next payload's. `counts`: the state may be too high after a repetition, never too
    low. `thinned`: a cache, or an upsert sink, leaves only some of a key's outputs, always the last. `rows`: what the
    store keeps of a key, its state and its timestamp; None: one row, what is written. `kept_back`: an output is made
    later, of rows of the store. At least once that store may be ahead of its input after a crash, and such outputs with
    it.
    """

    sources: tuple[str, ...]
    output: str
    expand: Callable[[Row], Iterable[tuple[bytes | None, Any] | tuple[bytes | None, Any, int]]]
    encode: Callable[[Any], bytes | None] = lambda payload: payload
    step: Callable[[Any, Any], Any] | None = None
    store: str | None = None
    later: Callable[[int, int], int] = max
    counts: bool = True
    thinned: bool = False
    rows: Callable[[bytes, Any, int], Iterable[tuple[bytes, Entry]]] | None = None
    kept_back: bool = False


class Expected(NamedTuple):
    """What one input gives, before any state is looked at."""

    key: bytes | None
    payload: Any
    timestamp: int


class Entry(NamedTuple):
    """One row of a table: the timestamp of a stored value, and its bytes."""

    timestamp: int
    value: bytes


def expected(flow: Flow, inputs: Iterable[Row]) -> dict[Origin, Expected]:
    """Every output that these inputs must give, by origin."""
    return {
        Origin(row.topic, row.partition, row.offset, *(its or [at])): Expected(key, payload, row.timestamp)
        for row in inputs
        for at, (key, payload, *its) in enumerate(flow.expand(row))
    }


class Interpreter:
    """Runs a flow, payload by payload, in whatever order it is given."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._states: dict[bytes | None, tuple[Any, int]] = {}

    def process(self, record: Expected) -> tuple[bytes | None, int]:
        """Value and timestamp of the output. A state's timestamp is what `later` says: the highest."""
        if self._flow.step is None:
            return self._flow.encode(record.payload), record.timestamp
        state, latest = self._states.get(record.key, (None, record.timestamp))
        state, latest = self._flow.step(state, record.payload), self._flow.later(latest, record.timestamp)
        self._states[record.key] = state, latest
        return self._flow.encode(state), latest

    def table(self) -> Mapping[bytes, Entry]:
        """The table after everything so far."""
        rows = self._flow.rows
        if rows is not None:
            known = [(key, *state) for key, state in self._states.items() if key is not None]
            return dict(row for one in known for row in rows(*one))
        encoded = {key: (self._flow.encode(state), at) for key, (state, at) in self._states.items()}
        return {key: Entry(at, value) for key, (value, at) in encoded.items() if key is not None and value is not None}


def states_in_order(flow: Flow, records: Iterable[Expected]) -> dict[bytes, list[Entry | None]]:
    """All that each key's row has been when the records are processed in this order; None: deleted, or left out. Of
    flows whose rows are their states."""
    interpreter, states = Interpreter(flow), dict[bytes, list[Entry | None]]()
    for record in records:
        value, timestamp = interpreter.process(record)
        if record.key is not None:
            states.setdefault(record.key, []).append(None if value is None else Entry(timestamp, value))
    return states


def table_in_order(flow: Flow, wanted: Mapping[Origin, Expected]) -> Mapping[bytes, Entry]:
    """The table after all of them, partition by partition: what it must be where the order of several is no matter."""
    interpreter = Interpreter(flow)
    for origin in sorted(wanted):
        interpreter.process(wanted[origin])
    return interpreter.table()
