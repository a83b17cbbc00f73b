"""Random cases on a real broker: topology, input, settings and faults by `--seed`; see `cases.py`.

A failure shows the smallest case found, in text, and the command that repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.harness.brokers import Broker
from compat_tests.random_topologies.campaign import Campaign
from compat_tests.random_topologies.cases import Case, random_case
from compat_tests.random_topologies.stages import INTERPRETER, compare

FULL = 6


def hold(request: pytest.FixtureRequest, broker: Broker, stage: str, directory: Path, cases: Iterable[Case]) -> None:
    campaign = Campaign(broker, request.config.option.broker, stage, directory)
    campaign.run(cases)
    campaign.hold()


@pytest.mark.timeout(1_200)
def test_a_small_random_case_is_as_promised(
    request: pytest.FixtureRequest, broker: Broker, stage: str, guarantee: str, tmp_path: Path
) -> None:
    hold(request, broker, stage, tmp_path, [random_case(request.config.option.seed, guarantee, quick=True)])


@pytest.mark.full
@pytest.mark.timeout(2_400)
def test_random_cases_with_all_faults_are_as_promised(
    request: pytest.FixtureRequest, broker: Broker, stage: str, guarantee: str, tmp_path: Path
) -> None:
    seeds = range(request.config.option.seed, request.config.option.seed + FULL)
    cases = [random_case(seed, guarantee, broker_faults=broker.has_faults) for seed in seeds]
    hold(request, broker, stage, tmp_path, cases)


@pytest.mark.full
@pytest.mark.parametrize("other", [INTERPRETER, None])
def test_two_stages_commit_the_same(
    request: pytest.FixtureRequest, broker: Broker, stage: str, other: str | None, tmp_path: Path
) -> None:
    """`other` None: the baseline, which every stage must be like. How much input goes by during a fault is a matter of
    time: two runs on brokers get the same input only without one."""
    case = random_case(request.config.option.seed, "exactly_once_v2", quick=True)
    case = case if other == INTERPRETER else replace(case, faults=())
    assert compare(broker, case, stage, other or "baseline", tmp_path) == []
