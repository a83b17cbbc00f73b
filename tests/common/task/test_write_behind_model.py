"""Every public method of every kind of store does what a dict does while commits wait for the disk, and after kills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.write_behind import WriteBehindNamespace, WriteBehindStorage
from milestones.m6_state_manager.manager import RangeStateManager
from tests.common.task.storemodel.machine import StoreMachine
from tests.common.task.storemodel.setting import WrongStoreError
from tests.common.task.test_store_model import SOAK, always_the_same

MANAGERS = {"folders": LocalStateManager, "ranges": RangeStateManager}
BOUNDS = {"long": (1 << 20, 1 << 40), "a while": (1 << 20, 7), "little": (900, 1 << 40)}
"""For how long commits wait, and how many."""
EXAMPLES, TO_FIND = 40, (100, 400, 1_600, 6_400)

pytestmark = pytest.mark.usefixtures("quiet")


def lives(options: settings, manager: Any = LocalStateManager, bounds: tuple[int, int] = BOUNDS["long"]) -> None:
    attributes: dict[str, Any] = {
        "engines": open_engines("rocksdict"), "persistent": True, "manager": manager, "waiting": bounds,
    }  # fmt: skip
    run_state_machine_as_test(type("Machine", (StoreMachine,), attributes), settings=options)


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("manager", MANAGERS)
def test_a_store_whose_commits_wait_does_what_a_dict_does(
    manager: str, bounds: str, pytestconfig: pytest.Config
) -> None:
    soak = pytestconfig.getoption("hypothesis_profile", None) == SOAK
    options = settings(settings.get_profile(SOAK)) if soak else always_the_same(EXAMPLES)
    lives(options, MANAGERS[manager], BOUNDS[bounds])


def a_scan_that_misses_what_waits(self: Any, *_: Any) -> dict[bytes, Any]:
    return {}


def an_offset_ahead_of_its_entries(self: Any) -> None:
    if self._waiting is not None:
        self._below.apply({}, self._offsets)
        self._offsets = {}


def what_waits_is_let_go_before_it_is_written(self: Any) -> None:
    if self._waiting is not None:
        offsets, stores = self._offsets, list(self._namespaces)
        self._let_go()
        self._below.apply({store: self._namespaces[store].waiting for store in stores}, offsets)


FAULTS: dict[Callable[..., Any], tuple[Any, str]] = {
    a_scan_that_misses_what_waits: (WriteBehindNamespace, "_between"),
    an_offset_ahead_of_its_entries: (WriteBehindStorage, "write"),
    what_waits_is_let_go_before_it_is_written: (WriteBehindStorage, "write"),
}


def many_lives() -> None:
    for examples in TO_FIND:
        lives(always_the_same(examples))


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.replace("_", " "))
def test_the_model_finds(fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = FAULTS[fault]
    monkeypatch.setattr(owner, name, fault)
    with pytest.raises((WrongStoreError, Flaky)):
        many_lives()
