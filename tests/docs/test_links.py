"""Pages: what they link to is there, and the pages for contributors name what there is."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from tests.sources import ROOT

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "changes").glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    + [path for top in ("common", "milestones", "pipeline", "compat_tests") for path in (ROOT / top).rglob("*.md")]
    + [*(ROOT / "benchmarks").glob("*.md")]
)
CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def without_code(text: str) -> str:
    """The text without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as hosting platforms make them."""
    titles = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(text: str) -> list[tuple[str, str]]:
    """Each link into the repository: the file, and the anchor in it."""
    found = re.findall(r"\]\(([^)\s]+)\)", without_code(text))
    return [(file, anchor) for file, _, anchor in (link.partition("#") for link in found if "://" not in link)]


def leads_nowhere(page: Path, file: str, anchor: str) -> bool:
    target = page.parent / file if file else page
    return not target.exists() or (anchor != "" and target.suffix == ".md" and anchor not in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    assert [link for link in links(page.read_text()) if leads_nowhere(page, *link)] == []


def test_the_index_of_the_docs_leads_to_each_of_their_pages() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {file for file, _ in links(index.read_text())}
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {index.name}
    assert len(pages) > 30
    assert pages - listed == set()


def test_a_link_without_a_file_or_a_heading_is_found() -> None:
    assert links("[a](b.md#c), [d](https://e), [f](#g)\n```\n[h](i)\n```\n") == [("b.md", "c"), ("", "g")]
    assert leads_nowhere(CONTRIBUTING, "nothing.md", "")
    assert leads_nowhere(CONTRIBUTING, "", "nothing")
    assert not leads_nowhere(CONTRIBUTING, "docs/api.md", "streams-and-tables")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md"])
def test_each_file_and_folder_that_a_page_for_contributors_names_exists(name: str) -> None:
    code = re.findall(r"`([^`\n]+)`", (ROOT / name).read_text())
    paths = {word for span in code for word in span.split() if re.fullmatch(r"\w[\w./-]*/[\w./-]*", word)}
    assert len(paths) > 2
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_contributors_find_a_place_for_each_of_twenty_changes_or_more() -> None:
    table = without_code(CONTRIBUTING.read_text()).split("| to change | go to |")[1].split("\n\n")[0]
    rows = table.strip().splitlines()[1:]
    assert 20 <= len(rows) <= 35
    assert all(row.count("`") >= 2 for row in rows)


def test_each_command_of_tox_that_contributors_are_shown_is_one() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    heads = {head.removeprefix("testenv:") for head in tox.sections() if head.startswith("testenv:")}
    known = {name for head in heads for name in head.strip("{}").split(",")}
    shown = set(re.findall(r"`tox -e ([\w-]+)", CONTRIBUTING.read_text()))
    assert len(shown) > 3
    assert shown <= known
