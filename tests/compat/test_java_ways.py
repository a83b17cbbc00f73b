"""The ways in which our side runs a plan: they come to the same, and find what a restart, a roll-back or a partition
breaks. `python -m compat_tests.java plans --ours` tries thousands."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from compat_tests.java.__main__ import _alone
from compat_tests.java.bench import DIFFERS, EQUAL, some_cases
from compat_tests.java.fed import AsJava, Fifo
from compat_tests.java.plan_program import entry_of
from compat_tests.java.plans import random_plan_of, text_of
from compat_tests.java.ways import difference_between_ways
from milestones.common.records import TopicPartition
from milestones.common.state.cells import Cells
from milestones.common.task.task import Task
from milestones.common.task.task_stores import TaskStores

COUNT = text_of({"ops": [{"op": "stream", "topic": "in0"}, {"op": "group_by", "of": 0, "f": "value"},
                         {"op": "count", "of": 1}, {"op": "numbers", "of": 2}, {"op": "to_stream", "of": 3},
                         {"op": "to", "of": 4, "topic": "out"}], "settings": {}})  # fmt: skip
WINDOWS = text_of({"ops": [{"op": "stream", "topic": "in0"}, {"op": "group_by_key", "of": 0},
                           {"op": "windowed", "of": 1, "shape": "tumbling", "size": 10, "grace": 0},
                           {"op": "count", "of": 2}, {"op": "to_texts", "of": 3},
                           {"op": "to", "of": 4, "topic": "out"}], "settings": {}})  # fmt: skip


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "milestones")


def found(plan: str, examples: int = 12) -> str | None:
    entry = entry_of(plan)
    every = (difference_between_ways(entry, case, "seed") for case in some_cases(entry.inputs, examples, "seed"))
    return next((one for one in every if one is not None), None)


@pytest.mark.parametrize("number", range(4))
def test_a_plan_comes_to_the_same_in_all_ways(number: int) -> None:
    line = _alone(random_plan_of("ways", number), f"ways {number}", 2)
    assert (line.result, line.why) == (EQUAL, "")


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("plan", "owner", "method", "broken", "way"),
    [
        (COUNT, Task, "restore", nothing, "a restart elsewhere before each record"),
        (WINDOWS, Cells, "to_keep", lambda self, values: {}, "a restart elsewhere before each record"),
        (COUNT, TaskStores, "abort", nothing, "each record twice"),
    ],
)
def test_they_find_what_a_restart_or_a_roll_back_breaks(
    plan: str, owner: type, method: str, broken: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(plan, 3) is None
    monkeypatch.setattr(owner, method, broken)
    assert str(found(plan)).startswith(way)


def test_they_find_records_of_a_key_in_two_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    places = iter(range(1 << 30))
    monkeypatch.setattr("compat_tests.java.fed.partition_of", lambda key, partitions: next(places) % partitions)
    assert str(found(COUNT)).startswith("several partitions")


def test_a_difference_of_a_way_is_one_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "restore", nothing)
    monkeypatch.setattr("compat_tests.java.__main__.WAYS", 99)
    line = _alone(COUNT, "seed", 12)
    assert line.result == DIFFERS
    assert "a restart elsewhere before each record" in line.why
    assert "The steps:" in line.why


A, B, C = (TopicPartition(name, 0) for name in "abc")


def test_java_takes_the_smallest_time_and_of_equal_ones_the_top_of_its_heap() -> None:
    order = AsJava()
    for at, time in ((A, 5), (B, 5), (C, 5), (A, 1), (B, 5)):
        order.add(at, time)
    # A priority queue of Java's puts its last element where the first one was.
    assert [order.take() for _ in range(6)] == [A, A, C, B, B, None]
    order.add(B, 7)
    order.add(C, 3)
    assert [order.take(), order.take()] == [C, B]


def test_else_the_first_that_was_written_comes_first() -> None:
    order = Fifo()
    for at, time in ((B, 5), (A, 1)):
        order.add(at, time)
    assert [order.take(), order.take(), order.take()] == [B, A, None]
