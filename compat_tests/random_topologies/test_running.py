"""The course of a case, with instances that only say that they run. No broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from compat_tests.random_topologies.cases import Fault
from compat_tests.random_topologies.running import Course


def test_nobody_dies_of_an_earlier_fault_while_a_calm_one_waits_for_what_is_processed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without input nobody would bring it back."""
    course: Any = Course.__new__(Course)
    course._case = SimpleNamespace(plan=SimpleNamespace(shaped=True))
    course.group, course._armed = [SimpleNamespace(name="a", running=True)], {"a"}
    waited: list[set[str]] = []
    for name in ("feed", "feed_until_they_run", "_begin", "_pause"):
        monkeypatch.setattr(Course, name, lambda *_: None)
    monkeypatch.setattr(Course, "_halt", lambda self, one: self._armed.discard(one.name))
    monkeypatch.setattr(Course, "_leap", lambda self: waited.append({*self._armed}))
    course.strike(Fault("pause"))
    assert waited == [set()]
