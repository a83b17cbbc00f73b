"""The records of decisions: each is in the index, and says what, why, at what price, and what was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sources import ROOT

FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
HEADINGS = ["Context", "Decision", "Consequences", "Tried and measured"]


def test_the_index_has_each_record_with_its_number_and_title() -> None:
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+?) \| .+ \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    titles = [(path.name[:4], path.name, path.read_text().splitlines()[0]) for path in RECORDS]
    assert [(number, name, f"# {number}. {title}") for number, name, title in rows] == titles


def test_records_are_numbered_without_a_gap() -> None:
    assert [int(path.name[:4]) for path in RECORDS] == [*range(1, len(RECORDS) + 1)]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_the_four_parts_and_fits_on_two_pages(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)
    assert all(part.strip() for part in parts)
    assert len(text.splitlines()) <= 80
