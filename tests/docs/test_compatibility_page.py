"""The page on the compatibility suite: what each of its files has happen."""

from __future__ import annotations

import re

from tests.sources import ROOT

ROW = re.compile(r"^\| `(test_\w+\.py)` \| \S", re.MULTILINE)


def test_each_file_of_cases_has_one_row() -> None:
    rows = ROW.findall((ROOT / "docs" / "compatibility.md").read_text())
    assert sorted(rows) == sorted(path.name for path in (ROOT / "compat_tests" / "cases").glob("test_*.py"))
