"""The page on the compatibility suite: what each of its files has happen."""

from __future__ import annotations

import re
from pathlib import Path

from tests.sources import ROOT

ROW = re.compile(r"^\| `(test_\w+\.py)` \| \S", re.MULTILINE)

NIGHTLY = re.compile(r"^\| `(tests/\S+\.py)` \| \S", re.MULTILINE)


def test_each_file_of_unit_tests_with_a_nightly_one_has_a_row() -> None:
    rows = NIGHTLY.findall((ROOT / "docs" / "compatibility.md").read_text())
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.nightly" in path.read_text()]
    assert sorted(rows) == sorted(str(path.relative_to(ROOT)) for path in marked if path != Path(__file__))


def test_each_file_of_cases_has_one_row() -> None:
    rows = ROW.findall((ROOT / "docs" / "compatibility.md").read_text())
    assert sorted(rows) == sorted(path.name for path in (ROOT / "compat_tests" / "cases").glob("test_*.py"))
