"""Parallel workers (pytest-xdist): what the process that leads them hands to each, and the order of their cases.

*Guarantees*: one seed, one choice of the broker and one folder of reported files for all workers; the same order of
cases in each; Ctrl-C ends all of them.
*Assumes*: workers run on this machine. pytest-xdist may be missing: then nothing here ever has workers.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

LONGEST = (
    "test_endurance",
    "test_committed_collector",
    "test_take_over",
    "test_on_a_broker",
    "test_stalls",
    "test_crashes",
    "test_processing_threads",
    "test_coordinator",
    "test_standbys",
    "test_scaling",
)
"""Files with the longest cases, the longest first: one that begins late would let the other workers wait at the end."""

_KEY = "compatibility"


class Node(Protocol):
    """A worker, as pytest-xdist shows it to the process that leads."""

    workerinput: dict[str, object]


class Handed(NamedTuple):
    """What must be the same in all workers. `files`: where their cases write what the report keeps."""

    seed: int
    broker: str
    files: Path


def hand_over(node: Node, what: Handed) -> None:
    """Give it to a worker that is about to start."""
    node.workerinput[_KEY] = (what.seed, what.broker, str(what.files))


def handed(config: pytest.Config) -> Handed | None:
    """What this process was given; None: it leads, or is the only one."""
    given = getattr(config, "workerinput", {}).get(_KEY)
    return None if given is None else Handed(given[0], given[1], Path(given[2]))


def mind_interrupts_in_cases_only() -> None:
    """Ctrl-C reaches all processes of a run at once. A worker that it meets between two cases would break off its talk
    with the process that leads, which then waits for it for ever; that one ends the run anyway."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def in_a_case(config: pytest.Config) -> Iterator[None]:
    """Around a case: a worker's is interrupted, and may say what it has."""
    if handed(config) is None:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        mind_interrupts_in_cases_only()


def count(config: pytest.Config) -> int:
    """Workers of this process; 0: it runs the cases itself."""
    if config.getoption("dist", "no") == "no" or config.option.collectonly:
        return 0
    return len(config.getoption("tx", None) or ())


def send_one_by_one(config: pytest.Config) -> None:
    """A worker gets its next case when it begins its last: sent in heaps, long cases would wait behind long cases."""
    if count(config) and config.option.maxschedchunk is None:
        config.option.maxschedchunk = 1


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Whole files are moved; the cases of a file stay in their order, in which the matrix shows them."""
    rank = {name: place for place, name in enumerate(LONGEST)}
    return sorted(items, key=lambda item: rank.get(item.path.stem, len(rank)))
