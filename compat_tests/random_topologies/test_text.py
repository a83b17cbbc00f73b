"""Plans and cases as text, and how they shrink, with a broker that is only thought of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import pytest

from compat_tests.apps.topologies import named
from compat_tests.oracles.findings import Finding, PromiseBrokenError
from compat_tests.random_topologies import interpretation, program
from compat_tests.random_topologies.__main__ import seeds
from compat_tests.random_topologies.campaign import alike, attempt, shrunk
from compat_tests.random_topologies.cases import (
    AT_A_POINT,
    COMMITS,
    KINDS,
    SLOW,
    Case,
    Fault,
    cases_of_commits,
    random_case,
    simpler,
)
from compat_tests.random_topologies.plans import STEPS, Path, Plan, PlanError

PLAN = Plan((Path(("swap", "letters"), "count", (0, 1), again=3, more=("tag",)), Path((), "copy")), (2, 5))
SEEDS = range(300)


def test_a_plan_reads_back_what_it_writes() -> None:
    assert Plan.parse(PLAN.text()) == PLAN
    assert json.loads(Plan((Path((), "copy"),)).text()) == {"paths": [{"steps": [], "end": "copy"}]}


def test_a_plan_may_lie_in_a_file(tmp_path: File) -> None:
    (tmp_path / "plan.json").write_text(PLAN.text())
    assert Plan.parse(str(tmp_path / "plan.json")) == PLAN


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "a Plan is an object, not []"),
        ({}, "a Plan needs paths"),
        ({"paths": []}, "a plan needs a path"),
        ({"paths": {}}, "a plan has a list of paths, not {}"),
        ({"paths": [{"end": "copy"}]}, "a Path needs steps"),
        ({"paths": [{"steps": [], "end": "copy", "colour": 1}]}, "a Path has no colour; it has again, end"),
        ({"paths": [{"steps": ["fly"], "end": "copy"}]}, "path 0: no step 'fly'; there are"),
        ({"paths": [{"steps": [], "end": "nowhere"}]}, "path 0: no end 'nowhere'; there are"),
        ({"paths": [{"steps": [], "end": "copy", "sources": [1]}]}, "there are 1 sources"),
        ({"paths": [{"steps": [], "end": "copy", "more": ["tag"]}]}, "a repartition that isn't there"),
        ({"paths": [{"steps": [], "end": "copy", "again": 2, "more": ["swap"]}]}, "can't be changed again"),
        ({"sources": [0], "paths": [{"steps": [], "end": "copy"}]}, "sources have partitions"),
        (
            {"sources": [1, 2], "paths": [{"steps": [], "end": "count", "sources": [0, 1]}]},
            r"state by key over topics of \[1, 2\] partitions",
        ),
    ],
)
def test_a_plan_that_cannot_work_is_refused_with_what_is_wrong(data: Any, says: str) -> None:
    with pytest.raises(PlanError, match=says.replace("[]", r"\[\]")):
        Plan.of(data)


def test_text_that_is_no_plan_is_refused() -> None:
    with pytest.raises(PlanError, match="no JSON, and no file of it"):
        Plan.parse("{")
    with pytest.raises(PlanError, match="no JSON, and no file of it: '/no/such/plan'"):
        Plan.parse("/no/such/plan")


def test_program_and_interpretation_know_the_same_steps() -> None:
    assert program.STEPS.keys() == interpretation.STEPS.keys() == set(STEPS)


def test_an_application_is_started_with_a_plan_in_text() -> None:
    described = str(named(f"plan:{PLAN.text()}")("app").build().describe())  # type: ignore[union-attr]
    assert "app-in1" in described
    assert "app-out1" in described
    with pytest.raises(ValueError, match="no topology 'nothing'; there are calls, copy, count"):
        named("nothing")


def test_a_plan_names_the_repartition_topics_that_its_program_makes() -> None:
    for seed in SEEDS:
        plan = random_case(seed, "at_least_once").plan
        made = {topic for sub in program.topology(plan).build().resolve("app") for topic in sub.repartition_topics}
        assert {f"app-{name}" for name in plan.repartitions()} == made, plan.text()


def test_a_seed_and_a_guarantee_decide_a_case_and_its_text_gives_it_back() -> None:
    for seed in SEEDS:
        case = random_case(seed, "exactly_once_v2")
        assert case == random_case(seed, "exactly_once_v2")
        assert Case.parse(case.text()) == case


def test_the_seeds_of_a_day_have_every_fault_and_the_quick_ones_none_that_takes_long() -> None:
    def kinds(**how: bool) -> set[str]:
        return {fault.kind for seed in SEEDS for fault in random_case(seed, "exactly_once_v2", **how).faults}

    assert kinds() == set(KINDS)
    assert kinds(broker_faults=False) == set(KINDS) - {"broker", "outage"}
    assert kinds(quick=True) == set(KINDS) - set(SLOW)


def test_each_fault_meets_each_step_of_a_commit_before_any_does_so_again() -> None:
    cases = [*cases_of_commits(1, "exactly_once_v2", 2)]
    met = [(case.faults[0].kind, case.faults[0].point.split(":")[0]) for case in cases]
    half = len(met) // 2
    assert met[:half] == met[half:]
    assert len(set(met)) == half == len(AT_A_POINT) * len(COMMITS)
    assert len({case.plan.text() for case in cases}) > half
    of_others = [*cases_of_commits(1, "exactly_once_v2", 1, broker_faults=False)]
    assert "outage" not in {case.faults[0].kind for case in of_others}


def test_a_fault_that_does_not_exist_is_refused() -> None:
    case = random_case(1, "at_least_once")
    with pytest.raises(PlanError, match="no fault 'flood'; there are kill"):
        replace(case, faults=(Fault("flood"),))
    with pytest.raises(PlanError, match="a point, if and only if it is at one"):
        replace(case, faults=(Fault("kill", point="commit.after-flush:kill"),))


def test_seeds_are_one_some_or_without_end() -> None:
    assert [*seeds("7")] == [7]
    assert [*seeds("7-9")] == [7, 8, 9]
    assert next(iter(seeds("100-"))) == 100


# ---- shrinking

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
