"""Faults planted in what the judgement itself looks at: a world without Kafka."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from compat_tests.harness.judge import judge_history
from compat_tests.oracles.findings import kinds
from compat_tests.oracles.group import Generation, History, Member
from compat_tests.oracles.rows import Place
from compat_tests.planted.samples import inputs

P0 = Place("in", 0)
ALONE = Generation(1, (Member("a", "a", frozenset({P0}), frozenset()),))


def world_of(history: History) -> Any:
    feeds = {"in": SimpleNamespace(rows=inputs())}
    return SimpleNamespace(application_id="app", feeds=feeds, history=lambda: history)


def test_a_group_with_generations_and_commits_passes() -> None:
    assert judge_history(world_of(History([ALONE], [(P0, 3)]))) == []


def test_a_group_of_which_the_broker_knows_nothing_is_found() -> None:
    assert kinds(judge_history(world_of(History([], [(P0, 3)])))) == {"no-history"}
    assert kinds(judge_history(world_of(History([ALONE], [])))) == {"no-history"}


def test_what_the_history_says_is_judged() -> None:
    assert kinds(judge_history(world_of(History([ALONE], [(P0, 3), (P0, 2)])))) == {"went-back"}
