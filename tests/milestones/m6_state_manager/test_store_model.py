"""Every public method of every kind of store does what a dict does, in ranges of one database, side by side."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from milestones.common.state.engines.by_name import open_engines
from milestones.m6_state_manager.manager import RangeStateManager
from tests.common.task.storemodel.machine import StoreMachine
from tests.common.task.test_store_model import SOAK, always_the_same

EXAMPLES = {"rocksdict": 60, "rocksdb": 30}


@pytest.mark.usefixtures("quiet")
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("engine", EXAMPLES)
def test_a_store_in_a_range_does_what_a_dict_does(engine: str, pytestconfig: pytest.Config) -> None:
    if engine == "rocksdb":
        pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    soak = pytestconfig.getoption("hypothesis_profile", None) == SOAK
    options = settings(settings.get_profile(SOAK)) if soak else always_the_same(EXAMPLES[engine])
    attributes: dict[str, Any] = {"engines": open_engines(engine), "persistent": True, "manager": RangeStateManager}
    run_state_machine_as_test(type("Machine", (StoreMachine,), attributes), settings=options)
