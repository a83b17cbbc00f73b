"""Flags -> parts: each set of flags gets what its flags put in, whichever those are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from milestones import wiring
from milestones.baseline.committing import Transaction, WaitingCommitter
from milestones.client.supervisor import Supervisor
from milestones.common.config.keys import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from milestones.flags import STAGES, legal_sets, parse_milestones, stage_name
from milestones.instance.states import StreamsState
from milestones.m1_state_updater.engine_metrics import EngineMetricsThread
from milestones.m1_state_updater.opening import ThreadedOpening
from milestones.m1_state_updater.restoration import UpdaterRestoration
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from milestones.m3_fencing_tolerance.transaction import ResolvedTransaction
from milestones.parts import InstanceParts, Parts, ThreadParts
from milestones.shared_parts.committer import Committer
from milestones.shared_parts.offset_commit import OffsetCommit
from milestones.stream_thread.loop import StreamLoop
from milestones.wiring import Replacement
from tests.milestones.client.fake_threads import MAKERS, FakeThread, FakeThreads
from tests.milestones.fakes import World, counting

NEEDS = {stage.flag: frozenset(stage.needs) for stage in STAGES if stage.flag is not None}


def all_needs(flag: str) -> frozenset[str]:
    """The flags that it can't be without, theirs too."""
    return NEEDS[flag].union(*map(all_needs, NEEDS[flag]))


def replaced(flag: str) -> set[str]:
    """The parts that a flag puts in."""
    return {*wiring.REPLACEMENTS[flag].instance, *wiring.REPLACEMENTS[flag].thread}


def test_flags_of_which_neither_needs_the_other_replace_no_part_in_common() -> None:
    for one, other in combinations(NEEDS, 2):
        if one not in all_needs(other) and other not in all_needs(one):
            assert not replaced(one) & replaced(other), (one, other)


def test_each_flag_has_its_replacements_in_the_order_of_the_stages() -> None:
    assert list(wiring.REPLACEMENTS) == [stage.flag for stage in STAGES if stage.flag is not None]


class Recorder:
    """Makes doubles of parts, and notes which flag's was asked for which part."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.made: list[tuple[str, str]] = []

    def double(self, flag: str, part: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any) -> Any:
            self.made.append((part, flag))
            return real(*arguments)

        return make

    def parts(self, flags: frozenset[str]) -> Parts:
        """What wiring makes of these flags, when each part that a flag replaces is a double of the baseline's."""
        base = replace(
            wiring.BASELINE,
            instance=replace(
                wiring.BASELINE.instance, workforce=FakeThreads, state_manager=lambda *_: self.world.state  # type: ignore[arg-type,return-value]
            ),
            thread=replace(
                wiring.BASELINE.thread,
                clients=lambda *_: self.world.clients,  # type: ignore[arg-type,return-value]
                state=lambda *_: self.world.state,
            ),
        )
        table = {}
        for flag in NEEDS:
            put = replaced(flag)
            observers = len(wiring.REPLACEMENTS[flag].observers)
            table[flag] = Replacement(
                instance=self.doubles(flag, put, base.instance), thread=self.doubles(flag, put, base.thread),
                observers=tuple(self.double(flag, "observer", observer) for _ in range(observers)),
            )  # fmt: skip
        return wiring.parts(flags, table, base)

    def doubles(self, flag: str, put: set[str], base: InstanceParts | ThreadParts) -> dict[str, Callable[..., Any]]:
        names = put & {field.name for field in fields(base)}
        return {name: self.double(flag, name, getattr(base, name)) for name in names}


def observer(*_: Any) -> Any:
    def nothing(*_: Any) -> None: ...

    return SimpleNamespace(
        name="observer", ident=None, start=nothing, close=nothing, join=nothing, is_alive=lambda: False
    )


@pytest.mark.usefixtures("fake_threads")
@pytest.mark.parametrize("flags", legal_sets(), ids=stage_name)
def test_every_legal_set_makes_a_client_and_a_loop_of_the_parts_that_its_newest_flags_put_in(
    flags: frozenset[str],
) -> None:
    world = World(counting())
    recorder = Recorder(world)
    parts = recorder.parts(flags)

    supervisor = Supervisor(world.config, flags, world.context.application, parts, world.clock, **MAKERS)
    supervisor.begin()
    supervisor.ask_to_close(True)
    assert supervisor.wait(10)
    assert supervisor.state is StreamsState.NOT_RUNNING
    assert [thread.started for thread in FakeThread.all] == [True]

    factory = parts.instance.client_factory(world.context)
    clients = parts.thread.clients(world.context, factory)
    StreamLoop(world.context, parts.thread, clients, world.states.append).run_once(0)

    newest = {part: flag for flag in NEEDS if flag in flags for part in replaced(flag)}
    asked = {(part, flag) for part, flag in recorder.made if part != "observer"}
    assert asked == set(newest.items())
    observing = [flag for flag in ("state_updater",) if flag in flags]
    assert [flag for part, flag in recorder.made if part == "observer"] == observing


def test_no_flag_at_all_is_the_baseline() -> None:
    assert wiring.parts(frozenset()) == wiring.BASELINE
    assert wiring.parts(parse_milestones("baseline")) == wiring.BASELINE


def test_the_state_updater_replaces_restoration_and_store_opening_and_has_engines_watched() -> None:
    parts = wiring.parts(parse_milestones("m1"))
    baseline = wiring.BASELINE.thread
    assert replace(parts.thread, restoration=baseline.restoration, opening=baseline.opening) == baseline
    assert (parts.thread.restoration, parts.thread.opening) == (UpdaterRestoration, ThreadedOpening)
    nothing: Any = SimpleNamespace(statistics=dict)
    (observer,) = parts.instance.observers
    assert isinstance(observer("app", nothing, nothing, nothing), EngineMetricsThread)
    assert wiring.BASELINE.instance.observers == ()


@pytest.mark.parametrize(
    ("flags", "exactly_once"),
    [(frozenset[str](), Transaction), (frozenset({"fencing_tolerance"}), ResolvedTransaction)],
)
def test_each_processing_guarantee_has_its_own_way_to_confirm_a_commit(
    flags: frozenset[str], exactly_once: type
) -> None:
    ways = {}
    for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE_V2):
        world = World(settings={"processing_guarantee": guarantee})
        parts = wiring.parts(flags).thread
        ways[guarantee] = type(parts.confirmation(world.context, world.clients, lambda stage: None))  # type: ignore[arg-type]
    assert ways == {AT_LEAST_ONCE: OffsetCommit, EXACTLY_ONCE_V2: exactly_once}


def test_a_stream_thread_waits_for_its_commits_where_it_processes_itself_and_only_there() -> None:
    for flags in legal_sets():
        if "polling_thread" not in flags and "state_manager" not in flags:
            beside = "processing_threads" in flags
            assert wiring.parts(flags).thread.commit is (Committer if beside else WaitingCommitter), flags


def test_fencing_tolerance_replaces_recovery_and_confirmation_and_nothing_else_with_any_other_flag() -> None:
    for others in (set[str](), {"state_updater"}, {"state_updater", "processing_threads"}):
        with_it = wiring.parts(frozenset({"fencing_tolerance", *others}))
        without = wiring.parts(frozenset(others))
        assert with_it.instance == without.instance
        assert with_it.thread.recovery is InPlaceRecovery
        changed = {
            field.name
            for field in fields(ThreadParts)
            if getattr(with_it.thread, field.name) != getattr(without.thread, field.name)
        }
        assert changed == {"confirmation", "recovery"}
