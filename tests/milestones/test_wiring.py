"""Flags -> parts."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from milestones import wiring
from milestones.baseline.collection import DirectCollection
from milestones.baseline.committing import Committer, OffsetCommit
from milestones.baseline.next_producer import ThreadTransaction
from milestones.baseline.processing import InlineProcessing
from milestones.common.config.keys import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from milestones.flags import parse_milestones
from milestones.m1_state_updater.engine_metrics import EngineMetricsThread
from milestones.m1_state_updater.restoration import UpdaterRestoration
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from milestones.m3_fencing_tolerance.transaction import ResolvedTransaction
from milestones.parts import Parts
from tests.milestones.fakes import World


def test_no_flag_at_all_is_the_baseline() -> None:
    assert wiring.parts(frozenset()) is wiring.BASELINE
    assert wiring.parts(parse_milestones("baseline")) is wiring.BASELINE


def test_every_seam_has_a_part() -> None:
    assert all(callable(getattr(wiring.BASELINE, field.name)) for field in fields(Parts))


def test_a_flag_replaces_parts_by_their_name_and_later_flags_win(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = object(), object(), object()
    monkeypatch.setitem(wiring.REPLACEMENTS, "a", {"restoration": first, "processing": first})
    monkeypatch.setitem(wiring.REPLACEMENTS, "b", {"processing": second})
    monkeypatch.setitem(wiring.REPLACEMENTS, "c", {"state": third})
    parts = wiring.parts(frozenset({"a", "b"}))
    assert (parts.restoration, parts.processing, parts.state) == (first, second, wiring.BASELINE.state)


def test_the_state_updater_replaces_restoration_and_has_engines_watched() -> None:
    parts = wiring.parts(parse_milestones("m1"))
    assert parts.restoration is UpdaterRestoration
    assert (parts.processing, parts.commit) == (wiring.BASELINE.processing, wiring.BASELINE.commit)
    nothing: Any = SimpleNamespace(statistics=dict)
    assert wiring.BASELINE.observer("metrics", nothing, nothing, nothing) is None
    assert isinstance(parts.observer("metrics", nothing, nothing, nothing), EngineMetricsThread)


WAYS: list[tuple[frozenset[str], type]] = [
    (frozenset(), ThreadTransaction),
    (frozenset({"fencing_tolerance"}), ResolvedTransaction),
]


@pytest.mark.parametrize(("flags", "exactly_once"), WAYS)
def test_each_processing_guarantee_has_its_own_way_to_confirm_a_commit(
    flags: frozenset[str], exactly_once: type
) -> None:
    ways = {}
    for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE_V2):
        world = World(settings={"processing_guarantee": guarantee})
        collection = DirectCollection(world.context, world.clients)  # type: ignore[arg-type]
        processing = InlineProcessing(world.context)
        parts = wiring.parts(flags)
        committer = parts.commit(world.context, world.clients, collection, processing)  # type: ignore[arg-type]
        assert isinstance(committer, Committer)
        ways[guarantee] = type(committer._confirmation)
    assert ways == {AT_LEAST_ONCE: OffsetCommit, EXACTLY_ONCE_V2: exactly_once}
    assert wiring.CONFIRMATIONS.keys() == ways.keys()


def test_fencing_tolerance_replaces_recovery_and_commit_and_nothing_else_with_any_other_flag() -> None:
    for others in (set[str](), {"state_updater"}):
        with_it, without = wiring.parts(frozenset({"fencing_tolerance", *others})), wiring.parts(frozenset(others))
        assert with_it.recovery is InPlaceRecovery
        same = {field.name for field in fields(Parts) if getattr(with_it, field.name) is getattr(without, field.name)}
        assert {field.name for field in fields(Parts)} - same == {"commit", "recovery"}
