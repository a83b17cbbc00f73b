"""A join that is broken, from the application's process over Kafka to the judgement of random topologies."""

from __future__ import annotations

import pytest

from compat_tests import EOS
from compat_tests.oracles.findings import PromiseBrokenError, kinds
from compat_tests.planted.conftest import Break
from compat_tests.planted.mutated import NOTHING
from compat_tests.random_topologies.cases import Case, Fault
from compat_tests.random_topologies.plans import Path, Plan
from compat_tests.random_topologies.running import run_in
from compat_tests.random_topologies.shapes import SKEW_MS, STREAMS, Join

PLAN = Plan((Path((), STREAMS, join=Join(1, "left", 1, 1, SKEW_MS)),), (1, 1))
RESTARTED = Case(1, EOS, PLAN, (Fault("restart", after=50),), batch=5, rest=5)


def found(broken: Break, mutation: str) -> set[str]:
    world = broken(mutation, EOS)
    world.feeds.pop("in").close()  # the case has inputs of its own
    try:
        run_in(world, RESTARTED)
    except PromiseBrokenError as error:
        return kinds(error.findings)
    return set()


def test_a_left_join_that_forgets_at_a_restart_who_waits_is_found(broken: Break) -> None:
    assert found(broken, "who-waits-is-forgotten-at-a-restart") == {"lost"}


@pytest.mark.full
def test_a_left_join_that_forgets_nobody_is_right(broken: Break) -> None:
    assert found(broken, NOTHING) == set()
