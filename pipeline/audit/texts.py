"""Shows the records of an audit as text for people.

*Guarantees*: never raises an error. If a serde can't read a record, its bytes are shown.
*Assumes*: nothing.
"""

from __future__ import annotations

from typing import Any

from milestones.common.serdes import Serde
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import kind_of
from milestones.common.topology.nodes import SinkNode
from milestones.common.windowed import FOREVER
from milestones.instance.application import Application
from milestones.pipeline.audit.report import Finding
from milestones.pipeline.audit.rows import Problem

LONGEST = 120
NOTHING = "nothing"


class Texts:
    """The serdes of an application's outputs and stores, to turn records into text."""

    def __init__(self, application: Application) -> None:
        nodes = [node for sub in application.subtopologies for node in sub.nodes if isinstance(node, SinkNode)]
        self._sinks = {node.topic: node for node in nodes if isinstance(node.topic, str)}
        self._specs = {spec.name: spec for sub in application.subtopologies for spec in sub.stores}

    def is_written(self, topic: str) -> bool:
        """True if a sink names the topic."""
        return topic in self._sinks

    def of_output(self, problem: Problem, expected: Any, actual: Any) -> Finding:
        """Return the text of an output. `expected` and `actual` are rows, of which one may be None."""
        row = actual if actual is not None else expected
        sink, topic = self._sinks.get(row["topic"]), row["topic"]
        key, value = (sink.key, sink.value) if sink is not None else (None, None)
        at = f"@{row['offset']}" if "offset" in row else ""
        source = ""
        if expected is not None and expected["source_offset"] >= 0:
            source = f"{expected['source']}-{expected['source_partition']}@{expected['source_offset']}"
        return Finding(
            problem=problem,
            where=f"{topic}-{row['partition']}{at}",
            key=text(key, topic, row["key"]),
            expected="" if expected is None else self._expected(problem, value, expected),
            actual="" if actual is None else text(value, topic, actual["value"]),
            source=source,
            time=row["time"],
        )

    @staticmethod
    def _expected(problem: Problem, value: Any, row: Any) -> str:
        if problem is Problem.REORDERED:
            return "earlier"
        if problem is Problem.MISPLACED:
            return f"in partition {row['wanted']}"
        return text(value, row["topic"], row["value"])

    def of_entry(self, store: str, row: Any) -> Finding:
        """A row of kind `difference`."""
        spec, topic = self._specs[store], row["topic"]
        expected, actual = (_entry(spec, topic, row[name]) for name in ("value", "other"))
        where = f"{topic}-{row['partition']}"
        return Finding(Problem(row["what"]), where, _key(spec, topic, row["key"]), expected, actual)


def _key(spec: StoreSpec, topic: str, data: Any) -> str:
    windowed = kind_of(spec).windowed
    if windowed is None:
        return text(spec.key_serde, topic, data)
    key, start, end = windowed(spec, bytes(data))
    return f"{text(spec.key_serde, topic, key)} from {start}{'' if end == FOREVER else f' to {end}'}"


def _entry(spec: StoreSpec, topic: str, data: Any) -> str:
    if data is None:
        return NOTHING
    value, time = kind_of(spec).value(bytes(data))
    shown = text(spec.value_serde, topic, value)
    if time is not None:
        shown = f"{shown} of {time}"
    headers = kind_of(spec).headers
    return f"{shown} with {found}" if headers is not None and (found := headers(bytes(data))) else shown


def text(serde: Any, topic: str, data: Any) -> str:
    """A key or value, shortened."""
    if data is None:
        return NOTHING
    shown: Any = bytes(data)
    if isinstance(serde, Serde):
        try:
            shown = serde.deserialize(topic, shown)
        except Exception:
            shown = bytes(data)
    found = repr(shown)
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 3]}..."
