"""What the profile makes of py-spy's samples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.profiling import ELSEWHERE, PARTS, Frame, Profile, parse, part_of
from milestones.common.kafka import consumers
from milestones.common.state import layers
from milestones.common.state.stores import key_value_stores

FETCH = Path(consumers.__file__)


@pytest.mark.parametrize("name", ["StreamThread-1", "PollingThread"])
def test_only_the_thread_that_polls_counts(name: str) -> None:
    text = "\n".join([
        f"thread (101): app-{name};run (/x/thread.py:1);fetch (/x/kafka/consumers.py:7) 5",
        f"thread (102): app-{name}-consumer-membership;run (/x/thread.py:1) 9",
        "thread (103): MainThread;run (/x/thread.py:1) 9",
    ])
    assert list(parse(text)) == [((Frame("run", "/x/thread.py", 1), Frame("fetch", "/x/kafka/consumers.py", 7)), 5)]


def test_the_innermost_frame_that_is_known_decides() -> None:
    outer = Frame("Runner.process", "/x/task/runner.py", 1)
    get = Frame("KeyValueStore.get", key_value_stores.__file__, 1)
    read = Frame("StoreLayers.get", layers.__file__, 1)
    assert part_of([outer, get, read, Frame("loads", "/x/json.py", 1)]) == "store get"
    assert part_of([outer, Frame("Runner._advance", "/x/task/runner.py", 1)]) == "merge"
    assert part_of([Frame("elsewhere", "/x/y.py", 1)]) == ELSEWHERE


def test_consuming_and_dispatching_are_told_apart_by_the_line() -> None:
    lines = FETCH.read_text().splitlines()
    consume = next(number for number, line in enumerate(lines, 1) if "_consumer.consume(limit" in line)
    assert part_of([Frame("AssignedConsumer.fetch", str(FETCH), consume)]) == "consume"
    assert part_of([Frame("AssignedConsumer.fetch", str(FETCH), consume + 1)]) == "dispatch"


def test_microseconds_add_up() -> None:
    stacks = [((Frame("send", "/x/kafka/producer.py", 1),), 30), ((Frame("a", "/x/a.py", 1),), 10)]
    table = Profile(stacks, us_per_sample=0.01).parts_table("title")
    names, times = (list(column.cells) for column in table.columns[:2])
    assert dict(zip(names, times, strict=True)) == {"send": "0.30", ELSEWHERE: "0.10", "all": "0.40"}


def test_every_file_that_a_part_names_exists() -> None:
    root = Path(__file__).resolve().parents[2]
    sources = [str(path) for folder in ("common", "milestones", "benchmarks") for path in (root / folder).rglob("*.py")]
    for part, file, _, _ in PARTS:
        assert any(re.search(f"({file})$", path) for path in sources), part
