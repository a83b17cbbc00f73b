"""Steps for a topology, and what they lead to.

*Guarantees*: hypothesis shrinks a case to few steps, near times and no headers; `trimmed` leaves out the rest. Times
go forward and back, stand still and leap over the retention of a window store; keys repeat; keys and values may be null
or empty.
*Assumes*: nothing of the topology but its input topics. A timestamp of 0 is left out: see `declared.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """What was written before the first step and in each step; `error`: why no step follows. `of_commits`: the
    changelogs that were written at a commit, of each key the last value."""

    outputs: list[Outputs]
    error: str | None = None
    of_commits: frozenset[str] = frozenset()


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
WITH_KEYS = Records(KEYS.filter(lambda key: key is not None), VALUES)

FORWARD = (0, 0, 1, 2, 3, 5, 7, 10, 11, 15, 16, 40, 0, 1, 4, 60_000, 125_000)
BACK = (0, 0, 0, 0, 1, 4, 5, 9, 12, 16, 30, 70_000)
HEADERS: tuple[Header, ...] = (("a", b"1"), ("a", b""), ("b", None), ("é", b"\xff\x00"))
WAITS = (*[0] * 40, 1, 5, 10, 11, 25, 1_000)


def cases(inputs: Mapping[str, Records], back: Sequence[int] = BACK) -> st.SearchStrategy[Case]:
    """Cases for a topology with these input topics. `back`: how many ms a record may be behind the newest one."""
    moves = [
        st.builds(
            _Move, st.just(topic), records.keys, records.values, st.sampled_from(FORWARD), st.sampled_from(back),
            st.just(()) | st.lists(st.sampled_from(HEADERS), max_size=2).map(tuple), st.sampled_from(WAITS),
        )
        for topic, records in sorted(inputs.items())
    ]  # fmt: skip
    # Lists of lists are longer by chance than lists, and end somewhere.
    return st.lists(st.lists(st.one_of(moves), max_size=5), min_size=1, max_size=12).map(_timed)


class _Move(NamedTuple):
    """A record before its time is known: so far on from the former records, then so far back. The wall clock goes on
    before it."""

    topic: str
    key: bytes | None
    value: bytes | None
    forward: int
    back: int
    headers: tuple[Header, ...]
    wait: int


def _timed(groups: list[list[_Move]]) -> Case:
    now = 1
    steps: list[Step] = []
    for move in (move for group in groups for move in group):
        steps += [Advance(move.wait)] if move.wait else []
        now += move.forward
        steps.append(Pipe(move.topic, move.key, move.value, max(1, now - move.back), move.headers))
    return tuple(steps)


def trimmed(case: Case, wanted: Callable[[Case], bool]) -> Case:
    """`case` without each step that isn't needed for what is wanted of it: hypothesis leaves some."""
    for at in reversed(range(len(case))):
        shorter = case[:at] + case[at + 1 :]
        if wanted(shorter):
            case = shorter
    return case


def shown(data: bytes | None) -> str:
    """Bytes as text, if they are one."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return repr(text) if text.isprintable() else f"0x{data.hex()}"
