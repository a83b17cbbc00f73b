"""The page on the compatibility suite: what each of its files has happen."""

from __future__ import annotations

import re
from pathlib import Path

from tests.sources import ROOT

ROW = re.compile(r"^\| `(test_\w+\.py)` \| \S", re.MULTILINE)

NIGHTLY = re.compile(r"^\| `(tests/\S+\.py)` \| \S", re.MULTILINE)
MARK = re.compile(r"pytest\.mark\.nightly|^from tests\.milestones\.app import .*\bSTAGES\b", re.MULTILINE)
"""What marks tests as nightly: the mark itself, or the parameters that `tests.milestones.app` shares."""


def test_each_file_of_unit_tests_with_a_nightly_one_has_a_row() -> None:
    rows = NIGHTLY.findall((ROOT / "docs" / "compatibility.md").read_text())
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if MARK.search(path.read_text())]
    assert sorted(rows) == sorted(str(path.relative_to(ROOT)) for path in marked if path != Path(__file__))


def test_no_other_module_marks_the_tests_of_files_that_use_it() -> None:
    others = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    marking = [str(path.relative_to(ROOT)) for path in others if "pytest.mark.nightly" in path.read_text()]
    assert marking == ["tests/milestones/app.py"]


def test_each_file_of_cases_has_one_row() -> None:
    rows = ROW.findall((ROOT / "docs" / "compatibility.md").read_text())
    assert sorted(rows) == sorted(path.name for path in (ROOT / "compat_tests" / "cases").glob("test_*.py"))
