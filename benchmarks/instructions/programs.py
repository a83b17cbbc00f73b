"""What is counted: the count, and what `windows` has besides.

*Guarantees*: the same numbers give the same records.
*Assumes*: a record's number is its time, in ms after the first one's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from benchmarks import windows
from benchmarks.count import app as count
from benchmarks.count.data import Data
from benchmarks.job import Job
from benchmarks.windows import app as others
from benchmarks.windows.data import Input, value_of
from milestones import Topology

COUNT: Final = "count"
"""That of the benchmark `count`, with a sum."""
WORKS: Final = (COUNT, *(kind for kind in windows.KINDS if kind != windows.COUNT))

Given = tuple[str, bytes, bytes]
"""Topic, key and value of an input record."""


@dataclass(frozen=True)
class Program:
    """A topology, and what it reads. `records(total, of_a_commit, keys, seed)`."""

    work: str
    topology: Callable[[Job], Topology]
    inputs: tuple[str, ...]
    records: Callable[[int, int, int, int], Iterator[Given]]


def program(work: str, topic: str) -> Program:
    """Of one of `WORKS`; `topic`: its input, or that of its stream."""
    if work == COUNT:
        return Program(work, count.topology, (topic,), lambda total, _, keys, seed: _sales(topic, total, keys, seed))
    inputs = (topic, topic + windows.OTHER) if work in windows.JOINS else (topic,)
    return Program(work, others.topology, inputs, lambda *sizes: _of_windows(work, topic, *sizes))


def _sales(topic: str, total: int, keys: int, seed: int) -> Iterator[Given]:
    for key, value in Data(total, keys, seed).values():
        yield topic, key, value


def _of_windows(work: str, topic: str, total: int, of_a_commit: int, keys: int, seed: int) -> Iterator[Given]:
    """The rows that a table begins with are in the first commit, which isn't counted."""
    keys = min(keys, of_a_commit)
    given = Input(work, total, keys, seed, 0)
    given = replace(given, records=total - given.first)
    for is_other, key, number in given:
        yield topic + windows.OTHER if is_other else topic, key, value_of(number)
