"""Random cases on a real broker: topology, input, settings and faults by `--seed`; see `cases.py`.

A failure shows the smallest case found, in text, and the command that repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.harness.brokers import Broker
from compat_tests.harness.other_stages import the_baseline, the_one_before
from compat_tests.random_topologies.campaign import Campaign
from compat_tests.random_topologies.cases import mixed, random_case
from compat_tests.random_topologies.stages import INTERPRETER, compare

FULL = 6


def the_interpreter(_: str) -> str:
    """In a stage's place, for every stage."""
    return INTERPRETER


@pytest.mark.timeout(1_200)
def test_a_small_random_case_is_as_promised(campaign: Campaign, request: pytest.FixtureRequest, guarantee: str) -> None:
    campaign.run([random_case(request.config.option.seed, guarantee, quick=True)])
    campaign.hold()


@pytest.mark.full
@pytest.mark.timeout(2_400)
def test_random_cases_with_all_faults_are_as_promised(
    campaign: Campaign, request: pytest.FixtureRequest, guarantee: str
) -> None:
    seeds = range(request.config.option.seed, request.config.option.seed + FULL)
    campaign.run(random_case(seed, guarantee, broker_faults=campaign.broker.has_faults) for seed in seeds)
    campaign.hold()


@pytest.mark.full
@pytest.mark.timeout(1_200)
def test_a_random_case_in_a_group_of_two_stages_is_as_promised(
    campaign: Campaign, request: pytest.FixtureRequest, guarantee: str
) -> None:
    before = the_one_before(campaign.stage)
    if before == campaign.stage:
        pytest.skip("there is none before")
    case = random_case(request.config.option.seed, guarantee, broker_faults=campaign.broker.has_faults)
    campaign.run([mixed(case, before)])
    campaign.hold()


@pytest.mark.full
@pytest.mark.parametrize("other", [the_interpreter, the_baseline, the_one_before])
def test_two_stages_commit_the_same(
    request: pytest.FixtureRequest, broker: Broker, stage: str, other: Callable[[str], str], tmp_path: Path
) -> None:
    """How much input goes by during a fault is a matter of time: two runs on brokers get the same input only without
    one."""
    case, beside = random_case(request.config.option.seed, "exactly_once_v2", quick=True), other(stage)
    case = case if beside == INTERPRETER else replace(case, faults=())
    assert compare(broker, case, stage, beside, tmp_path) == []
