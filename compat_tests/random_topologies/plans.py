"""A small random topology as a plan, and the two things that it stands for: a program of ours, and flows of the
reference interpreter. Each step is written down twice, once for each, in plain sight.

*Guarantees*: a plan's `repr` rebuilds it; hypothesis shrinks a plan to fewer paths with fewer steps.
*Assumes*: keys and values are text, or missing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

from hypothesis import strategies as st

from compat_tests.oracles.flows import Flow
from compat_tests.oracles.rows import Row
from milestones import StreamsBuilder, serdes
from milestones.common.topology.stream import KStream

TEXT, LONG = serdes.STRING, serdes.LONG
Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class Step:
    """One operator: on a stream of ours, and on one record of the interpreter."""

    stream: Callable[[KStream], KStream]
    record: Callable[[bytes | None, bytes | None], Iterable[Pair]]


def _tag(value: str | None) -> str:
    return f"{value or ''}!"


STEPS = {
    "keep-short": Step(
        lambda stream: stream.filter(lambda _, value: len(value or "") < 3),
        lambda key, value: [(key, value)] if len(value or b"") < 3 else [],
    ),
    "drop-keyless": Step(
        lambda stream: stream.filter_not(lambda key, _: key is None),
        lambda key, value: [(key, value)] if key is not None else [],
    ),
    "tag": Step(
        lambda stream: stream.map_values(_tag),
        lambda key, value: [(key, (value or b"") + b"!")],
    ),
    "by-value": Step(
        lambda stream: stream.select_key(lambda _, value: value),
        lambda key, value: [(value, value)],
    ),
    "swap": Step(
        lambda stream: stream.map(lambda key, value: (value, key)),
        lambda key, value: [(value, key)],
    ),
    "letters": Step(
        lambda stream: stream.flat_map_values(lambda value: list(value or "")),
        lambda key, value: [(key, (value or b"")[at : at + 1]) for at in range(len(value or b""))],
    ),
    "erase-empty": Step(
        lambda stream: stream.map_values(lambda value: value or None),
        lambda key, value: [(key, value or None)],
    ),
}
ENDS = ("copy", "repartition", "count", "join-texts", "latest")


@dataclass(frozen=True)
class Path:
    """From the input through `steps` to an output of its own. `end`: what it does with the records there."""

    steps: tuple[str, ...]
    end: str
    in_memory: bool = True


@dataclass(frozen=True)
class Plan:
    """Paths side by side, all from the topic `in`, the n-th to `out<n>`."""

    paths: tuple[Path, ...]

    def topology(self, prefix: str = "") -> StreamsBuilder:
        """The program. Topics' names begin with `prefix`."""
        builder = StreamsBuilder()
        source = builder.stream(f"{prefix}in", key=TEXT, value=TEXT)
        for number, path in enumerate(self.paths):
            stream = reduce(lambda stream, step: STEPS[step].stream(stream), path.steps, source)
            _finish(stream, path, number, f"{prefix}out{number}")
        return builder

    def flows(self) -> list[Flow]:
        """What it must do, path by path."""
        return [_flow(path, number) for number, path in enumerate(self.paths)]


def _finish(stream: KStream, path: Path, number: int, output: str) -> None:
    store = f"store{number}"
    match path.end:
        case "copy":
            stream.to(output, key=TEXT, value=TEXT)
        case "repartition":
            stream.repartition(name=f"again{number}", key=TEXT, value=TEXT).to(output, key=TEXT, value=TEXT)
        case "count":
            grouped = stream.group_by_key(name=f"group{number}", key=TEXT, value=TEXT)
            grouped.count(store, in_memory=path.in_memory).to_stream().to(output, key=TEXT, value=LONG)
        case "join-texts":
            grouped = stream.group_by_key(name=f"group{number}", key=TEXT, value=TEXT)
            joined = grouped.aggregate(
                str, lambda _, value, text: text[-9:] + value, store, value=TEXT, in_memory=path.in_memory
            )
            joined.to_stream().to(output, key=TEXT, value=TEXT)
        case "latest":
            grouped = stream.group_by_key(name=f"group{number}", key=TEXT, value=TEXT)
            latest = grouped.reduce(lambda _, value: value, store, in_memory=path.in_memory)
            latest.to_stream().to(output, key=TEXT, value=TEXT)


def _flow(path: Path, number: int) -> Flow:
    needs_value, needs_key = path.end not in ("copy", "repartition"), path.end != "copy"
    steps = [STEPS[step].record for step in path.steps]

    def expand(row: Row) -> Iterable[Pair]:
        pairs: list[Pair] = [(row.key, row.value)]
        for step in steps:
            pairs = [out for pair in pairs for out in step(*pair)]
        return [
            (key, value)
            for key, value in pairs
            if not (needs_key and key is None) and not (needs_value and value is None)
        ]

    names, output = ("in",), f"out{number}"
    match path.end:
        case "count":
            return Flow(names, output, expand, struct.Struct(">q").pack, lambda n, _: (n or 0) + 1, f"store{number}")
        case "join-texts":
            return Flow(names, output, expand, step=lambda text, value: (text or b"")[-9:] + value)
        case "latest":
            return Flow(names, output, expand, step=lambda _, value: value)
        case _:
            return Flow(names, output, expand)


def plans() -> st.SearchStrategy[Plan]:
    """Up to three paths of up to four steps."""
    steps = st.lists(st.sampled_from(sorted(STEPS)), max_size=4).map(tuple)
    paths = st.builds(Path, steps, st.sampled_from(ENDS), st.booleans())
    return st.lists(paths, min_size=1, max_size=3).map(lambda some: Plan(tuple(some)))


def inputs(topic: str = "in") -> st.SearchStrategy[list[Row]]:
    """Up to thirty records of a few keys, some keyless, some without a value, some late."""
    text = st.none() | st.text("ab", max_size=4).map(str.encode)
    record = st.tuples(text, text, st.integers(1, 50))
    return st.lists(record, max_size=30).map(
        lambda records: [Row(topic, 0, offset, *record) for offset, record in enumerate(records)]
    )
