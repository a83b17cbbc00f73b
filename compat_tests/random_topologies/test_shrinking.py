"""Shrinking of cases, with a broker that is only thought of."""

from __future__ import annotations

from compat_tests.oracles.findings import Finding, PromiseBrokenError
from compat_tests.random_topologies.campaign import alike, attempt, shrunk
from compat_tests.random_topologies.cases import Case, Fault, random_case, simpler
from compat_tests.random_topologies.plans import Path, Plan

LOST, TWICE = (PromiseBrokenError([Finding(kind, "an output")]) for kind in ("lost", "duplicate"))
BIG = Case(
    seed=1,
    guarantee="exactly_once_v2",
    plan=Plan((Path(("tag", "swap"), "count", (0, 1), again=2, more=("tag",)), Path(("letters",), "copy")), (3, 4)),
    faults=(Fault("join"), Fault("kill", 7), Fault("stall")),
    instances=3,
    threads=2,
    cache=300,
    static=False,
)


class Runs:
    """Fails when a kill meets a count."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, case: Case) -> None:
        self.count += 1
        killed = any(fault.kind == "kill" for fault in case.faults)
        if killed and any(path.end == "count" for path in case.plan.paths):
            raise LOST


def test_the_smallest_case_that_fails_is_found() -> None:
    runs = Runs()
    failure = attempt(runs, BIG)
    assert failure is not None
    smallest = shrunk(failure, runs, 500).case
    assert smallest.faults == (Fault("kill", 7),)
    assert [(path.end, path.steps, path.again) for path in smallest.plan.paths] == [("count", (), 0)]
    assert (smallest.instances, smallest.threads, smallest.cache, smallest.static) == (1, 1, 0, True)


def test_it_stops_when_its_tries_are_used_up() -> None:
    runs = Runs()
    failure = attempt(runs, BIG)
    assert failure is not None
    shrunk(failure, runs, 5)
    assert runs.count == 6


def test_a_case_that_passes_is_no_failure() -> None:
    assert attempt(lambda case: None, BIG) is None


def test_a_smaller_case_that_fails_otherwise_is_not_taken() -> None:
    def run(case: Case) -> None:
        raise LOST if case == BIG else TWICE

    failure = attempt(run, BIG)
    assert failure is not None
    assert shrunk(failure, run, 50).case == BIG
    assert not alike(LOST, RuntimeError())
    assert alike(LOST, PromiseBrokenError([*TWICE.findings, *LOST.findings]))


def test_simpler_cases_are_other_cases_that_work_and_they_come_to_an_end() -> None:
    for seed in range(50):
        case, steps = random_case(seed, "at_least_once"), 0
        while candidates := simpler(case):
            assert case not in candidates
            case, steps = candidates[-1], steps + 1
            assert steps < 100
        assert len(case.plan.paths) == 1
