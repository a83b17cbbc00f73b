"""Steps for a topology, and what they lead to.

*Guarantees*: hypothesis shrinks a case to few steps, near times and no headers. Times go forward and back, stand still
and leap over the retention of a window store; keys repeat; keys and values may be null or empty.
*Assumes*: nothing of the topology but its input topics. A timestamp of 0 is left out: see `declared.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hypothesis import strategies as st

from milestones.common.records import Header

WALL_MS = 1_700_000_000_000
"""The wall clock before the first step."""


class Pipe(NamedTuple):
    """A record to an input topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...] = ()

    def __str__(self) -> str:
        headers = "".join(f", header {name!r}: {shown(value)}" for name, value in self.headers)
        return f"{self.topic} <- {shown(self.key)}: {shown(self.value)} at {self.timestamp}{headers}"


class Advance(NamedTuple):
    """So much time by the wall clock."""

    ms: int

    def __str__(self) -> str:
        return f"the wall clock goes on by {self.ms} ms"


Step: TypeAlias = Pipe | Advance
Case: TypeAlias = "tuple[Step, ...]"


class Row(NamedTuple):
    """A record that a topology wrote."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...] = ()

    def __str__(self) -> str:
        headers = "".join(f", header {name!r}: {shown(value)}" for name, value in self.headers)
        return f"{shown(self.key)}: {shown(self.value)} at {self.timestamp}{headers}"


Outputs: TypeAlias = "dict[str, list[Row]]"
"""By topic, changelogs and repartition topics too."""


class Outcome(NamedTuple):
    """What was written before the first step and in each step; `error`: why no step follows."""

    outputs: list[Outputs]
    error: str | None = None


Run = Callable[[str, Case, int], Outcome]
"""(topology, case, bytes of the cache) -> outcome"""


@dataclass(frozen=True)
class Records:
    """What may come to a topic."""

    keys: st.SearchStrategy[bytes | None]
    values: st.SearchStrategy[bytes | None]


def texts(*often: str | None) -> st.SearchStrategy[bytes | None]:
    """UTF-8, mostly of these."""
    return st.sampled_from([None if each is None else each.encode() for each in often])


RARE = st.text("ab é\U0001f600\0", max_size=5).map(str.encode)
KEYS = texts("a", "b", "a", "c", "ab", None, "", "é") | RARE
VALUES = texts("a", "b", "ab", None, "x", "bx", "a b", "del", "", "a  b", "é") | texts("a", "b", None) | RARE
TEXT = Records(KEYS, VALUES)

FORWARD = (0, 0, 1, 2, 3, 5, 7, 10, 11, 15, 16, 40, 0, 1, 4, 60_000, 125_000)
BACK = (0, 0, 0, 0, 1, 4, 5, 9, 12, 16, 30, 70_000)
HEADERS: tuple[Header, ...] = (("a", b"1"), ("a", b""), ("b", None), ("é", b"\xff\x00"))
WAITS = (1, 5, 10, 11, 25, 1_000)


def cases(inputs: Mapping[str, Records]) -> st.SearchStrategy[Case]:
    """Cases for a topology with these input topics."""
    topics = sorted(inputs)

    @st.composite
    def case(draw: st.DrawFn) -> Case:
        now = 1
        steps: list[Step] = []
        longer = draw(st.booleans())
        for _ in range(draw(st.integers(8, 40) if longer else st.integers(1, 8))):
            if draw(st.integers(0, 9)) == 9:
                steps.append(Advance(draw(st.sampled_from(WAITS))))
                continue
            topic = draw(st.sampled_from(topics))
            key, value = draw(inputs[topic].keys), draw(inputs[topic].values)
            now += draw(st.sampled_from(FORWARD))
            timestamp = max(1, now - draw(st.sampled_from(BACK)))
            headers = draw(st.lists(st.sampled_from(HEADERS), max_size=2)) if draw(st.booleans()) else []
            steps.append(Pipe(topic, key, value, timestamp, tuple(headers)))
        return tuple(steps)

    return case()


def shown(data: bytes | None) -> str:
    """Bytes as text, if they are one."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return repr(text) if text.isprintable() else f"0x{data.hex()}"
