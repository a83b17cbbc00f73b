"""Every public method of every kind of store, in a task, on every engine, does what a dict does.

As unit tests these are the same lives of stores each time, as long as the same modules are loaded: hypothesis draws
constants of theirs, too. `--hypothesis-profile soak` tries others, as many as the profile says (tests/conftest.py), and
shrinks what it finds; with `--hypothesis-seed` it repeats them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from milestones.common.state.engines.by_name import ENGINES, open_engines
from milestones.common.state.spec import BOUNDED
from milestones.common.state.stores.kinds import KINDS as REAL_KINDS
from tests.common.task.storemodel.called_methods import count_calls
from tests.common.task.storemodel.calls import KINDS
from tests.common.task.storemodel.faults import FAULTS, ON_DISK
from tests.common.task.storemodel.machine import StoreMachine
from tests.common.task.storemodel.setting import WrongStoreError

EXAMPLES = {"memory": 180, "rocksdict": 60, "rocksdb": 40}
TO_FIND = 400, 1_600
"""Lives in which each planted fault must show: more, where these don't do."""
TO_CALL = 40, 160, 640, 2_560
"""Lives in which each method must be called."""

WITH_HEADERS, AT_COMMITS = {"kind": ["timestamped-key-value-with-headers"]}, {"at_commit": [True]}
ONLY_IN: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "a write to the key that is flushed": {"cache": [700, 10**6], "listening": [True], "at_commit": [False]},
    "a deletion that is logged without its time": AT_COMMITS,
    "a commit log without what a failed commit had": {**AT_COMMITS, "exactly_once": [False]},
    "a thawed commit that is lost": {"exactly_once": [False]},
    "a changelog that is not mended after a roll back": {"exactly_once": [False]},
    "a row without headers after a restore": WITH_HEADERS,
    "a row that is logged without headers": WITH_HEADERS,
    "headers that are cut off": WITH_HEADERS,
}
"""Faults that only some lives can show, by their settings: they are looked for in those."""

SOAK = "soak"


def lives(engine: str, options: settings, only: Mapping[str, Sequence[Any]] | None = None) -> None:
    """Run so many lives of stores on this engine. `only`: as that of the `StoreMachine`."""
    if engine == "rocksdb":
        pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    attributes: dict[str, Any] = {"engines": open_engines(engine), "persistent": engine != "memory", "only": only or {}}
    run_state_machine_as_test(type("Machine", (StoreMachine,), attributes), settings=options)


def each_of(engine: str, counts: Iterable[int], only: Mapping[str, Sequence[Any]] | None = None) -> None:
    for examples in counts:
        lives(engine, always_the_same(examples), only)


def always_the_same(examples: int) -> settings:
    return settings(
        max_examples=examples, stateful_step_count=15, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip


@pytest.mark.usefixtures("quiet")
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_does_what_a_dict_does(engine: str, pytestconfig: pytest.Config) -> None:
    soak = pytestconfig.getoption("hypothesis_profile", None) == SOAK
    lives(engine, settings(settings.get_profile(SOAK)) if soak else always_the_same(EXAMPLES[engine]))


@pytest.mark.usefixtures("quiet")
@pytest.mark.timeout(900)  # always the same work, of up to a quarter of a minute of a core that nothing else uses
@pytest.mark.parametrize("name", FAULTS)
def test_the_model_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    # What is in freed memory isn't always the same, as hypothesis says then.
    with pytest.raises((WrongStoreError, Flaky) if name in ON_DISK else WrongStoreError):
        each_of("rocksdict" if name in ON_DISK else "memory", TO_FIND, ONLY_IN.get(name))


def test_the_faults_that_are_looked_for_in_some_lives_are_faults() -> None:
    assert ONLY_IN.keys() <= FAULTS.keys()


@pytest.mark.usefixtures("quiet")
def test_the_model_calls_every_public_method_of_every_kind_of_store(monkeypatch: pytest.MonkeyPatch) -> None:
    others = BOUNDED | {"suppress", "lru", "join-buffer", "expiring-key-value"}  # each of which has tests of its own
    assert KINDS.keys() == REAL_KINDS.keys() - others
    public, called = count_calls(monkeypatch, [kind for kind in REAL_KINDS if kind in KINDS])
    for examples in TO_CALL:
        if public - called.keys():
            lives("memory", always_the_same(examples))
    assert public - called.keys() == set()
