"""The program of docs/testing.md passes the tests of the page; each fault point says what is true there."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from milestones.testing import FAULT_POINTS
from tests.docs.pages import DOCS, run

PAGE = (DOCS / "testing.md").read_text()


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return run("testing.md")


def test_the_driver_shows_the_outputs_and_the_store(page: ModuleType) -> None:
    page.test_each_day_begins_with_one()
    page.test_a_count_is_in_the_store()


def test_the_stepped_application_shows_commits_a_crash_and_a_fence(page: ModuleType) -> None:
    page.test_a_crash_and_a_fence_cost_no_visit()


@pytest.mark.kafka
def test_a_killed_instance_leaves_no_output_and_its_successor_counts_each_visit_once(
    page: ModuleType, kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = re.search(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert program is not None
    (tmp_path / "visits.py").write_text(program[1])
    monkeypatch.chdir(tmp_path)
    page.counts_each_visit_once(kafka, str(tmp_path / "state"))


def test_each_point_says_in_a_sentence_what_is_true_there() -> None:
    assert len(FAULT_POINTS) > 20
    assert [point for point, truth in FAULT_POINTS.items() if len(truth) < 20] == []
