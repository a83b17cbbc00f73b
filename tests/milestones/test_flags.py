"""Stages and flags."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from milestones.common.config import StreamsConfig
from milestones.common.errors import ConfigError
from milestones.flags import STAGES, legal_sets, parse_milestones, stage_name, stage_names, without_effect

README = Path(__file__).parents[2] / "README.md"
ALL = {stage.flag for stage in STAGES if stage.flag is not None}


def test_there_are_seven_stages() -> None:
    assert [stage.name for stage in STAGES] == ["baseline", "m1", "m2", "m3", "m4", "m5", "m6"]


def test_exactly_ten_sets_of_flags_are_legal() -> None:
    sets = legal_sets()
    assert len(sets) == len(set(sets)) == 10
    assert frozenset() in sets
    assert ALL in sets
    assert all(chosen | {"fencing_tolerance"} in sets for chosen in sets)


@pytest.mark.parametrize("value", ["baseline", "", " Baseline ", [], frozenset(), {"baseline"}])
def test_the_baseline_has_no_flags(value: str | frozenset[str]) -> None:
    assert parse_milestones(value) == frozenset()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("m1", {"state_updater"}),
        ("m3", {"state_updater", "processing_threads", "fencing_tolerance"}),
        ({"m3"}, {"state_updater", "processing_threads", "fencing_tolerance"}),
        ("fencing_tolerance", {"fencing_tolerance"}),
        ("state_updater, fencing_tolerance", {"state_updater", "fencing_tolerance"}),
        ("state_updater+fencing_tolerance", {"state_updater", "fencing_tolerance"}),
        ({"state_updater+fencing_tolerance"}, {"state_updater", "fencing_tolerance"}),
        ("m6", ALL),
    ],
)
def test_a_stage_means_all_before_it_and_flags_mean_themselves(value: str, expected: set[str]) -> None:
    assert parse_milestones(value) == expected


def test_every_legal_set_is_accepted_and_every_other_refused() -> None:
    legal = set(legal_sets())
    for size in range(len(ALL) + 1):
        for chosen in map(frozenset, combinations(sorted(ALL), size)):
            if chosen in legal:
                assert parse_milestones(chosen) == chosen
            else:
                with pytest.raises(ConfigError, match=r"which (is|are) missing"):
                    parse_milestones(chosen)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("m9", "no stage or flag 'm9'"),
        ("state_updates", "did you mean state_updater"),
        ("processing_threads", "processing_threads needs state_updater, which is missing"),
        ("state_updater,polling_thread", "polling_thread needs processing_threads, which is missing"),
        ("m1,fencing_tolerance", "name one stage, or flags"),
        ("committed_collector", "needs polling_thread and fencing_tolerance, which are missing"),
        (
            "state_updater,processing_threads,polling_thread,committed_collector",
            "committed_collector needs fencing_tolerance, which is missing",
        ),
    ],
)
def test_what_cannot_be_had_is_named(value: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_milestones(value)
    assert caught.value.key == "milestones"
    assert re.search(why, caught.value.reason), caught.value.reason


def test_a_set_of_flags_is_called_after_its_stage_or_by_its_flags() -> None:
    assert [stage_name(parse_milestones(stage.name)) for stage in STAGES] == [stage.name for stage in STAGES]
    assert stage_name(frozenset({"fencing_tolerance", "state_updater"})) == "state_updater+fencing_tolerance"


def test_whatever_this_version_can_run_is_accepted_by_its_name_from_the_baseline_to_the_newest() -> None:
    names = stage_names()
    assert names[0] == "baseline"
    assert [stage_name(parse_milestones(name)) for name in names] == list(names)
    assert len(parse_milestones(names[-1])) == max(len(parse_milestones(name)) for name in names)


def test_the_readme_shows_the_stages_that_this_version_lists() -> None:
    rows = {
        cells[0].strip("`"): cells[1:]
        for line in README.read_text(encoding="utf-8").splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 3 and cells[0].startswith("`")
    }
    for stage in STAGES:
        needs = f" (needs {' and '.join(f'`{flag}`' for flag in stage.needs)})" if stage.needs else ""
        flag = f"`{stage.flag}`" if stage.flag else "–"
        assert rows[stage.name] == [flag, stage.title + needs]


def test_one_producer_without_fencing_tolerance_is_said_to_be_costly_exactly_once() -> None:
    flags = "state_updater+processing_threads+polling_thread"

    def told(milestones: str, guarantee: str) -> list[str]:
        config = StreamsConfig(
            application_id="app", bootstrap_servers="b:1", milestones=milestones, processing_guarantee=guarantee,
            variables={},
        )  # fmt: skip
        return without_effect(config)

    assert "add fencing_tolerance" in told(flags, "exactly_once_v2")[0]
    assert told(flags, "at_least_once") == told("m4", "exactly_once_v2") == []
