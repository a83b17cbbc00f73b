"""The changelog: each name that users see, and that came or went since the release, is in a fragment."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection

import pytest

from tests.docs.released import FILE, methods, names
from tests.sources import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TYPES = [one["directory"] for one in PROJECT["tool"]["towncrier"]["type"]]
FRAGMENTS = {
    path.name: path.read_text()
    for path in sorted((ROOT / PROJECT["tool"]["towncrier"]["directory"]).iterdir())
    if path.name != "README.md"
}
LONGEST = 300


def unsaid(changed: Collection[str], fragments: Collection[str]) -> list[str]:
    """Those of the changed names that no fragment has in backticks."""
    quoted = " ".join(span for text in fragments for span in re.findall(r"`([^`]+)`", text))
    said = set(re.findall(r"[\w-]+", quoted))
    return sorted(name for name in changed if re.split(r"[ .]", name)[-1] not in said)


def test_each_name_that_users_see_and_that_is_new_or_gone_is_in_a_fragment() -> None:
    changed = names() ^ set(FILE.read_text().splitlines())
    missing = unsaid(changed, FRAGMENTS.values())
    assert missing == [], "write changes/+words.added.md that has each name in backticks (CONTRIBUTING.md, changelog)"


def test_a_fragment_is_named_by_its_type_and_is_a_short_sentence() -> None:
    legal = re.compile(rf"\+[a-z0-9-]+\.({'|'.join(TYPES)})\.md")
    assert [name for name in FRAGMENTS if not legal.fullmatch(name)] == []
    texts = {name: text.strip() for name, text in FRAGMENTS.items()}
    assert [name for name, text in texts.items() if not re.match(r"[A-Z`].*[.)]$", text, re.DOTALL)] == []
    assert [name for name, text in texts.items() if len(text) > LONGEST] == []


def test_the_newest_version_of_the_changelog_is_that_of_the_package() -> None:
    versions = re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == PROJECT["project"]["version"]


@pytest.mark.parametrize(
    ("changed", "fragment", "missing"),
    [
        ({"setting poll_ms"}, "`poll_ms` sets the wait of a poll.", []),
        ({"setting poll_ms"}, "poll_ms sets the wait of a poll.", ["setting poll_ms"]),
        ({"method KStream.peek", "method KTable.peek"}, "`peek` calls a function.", []),
        ({"option milestones run --profile"}, "`milestones run --profile` shows times.", []),
        ({"option milestones run --profile"}, "`milestones run` shows times.", ["option milestones run --profile"]),
        ({"metric stream-metrics state"}, "`state-age` is new.", ["metric stream-metrics state"]),
    ],
)
def test_a_name_counts_as_said_where_a_fragment_quotes_it(changed: set[str], fragment: str, missing: list[str]) -> None:
    assert unsaid(changed, [fragment]) == missing


def test_the_names_of_each_kind_are_found() -> None:
    found = {name.partition(" ")[0] for name in names()}
    assert found == {"setting", "metric", "name", "flag", "method", "command", "option"}
    assert {"setting poll_ms", "method KStream.peek", "option milestones run --profile"} <= names()
    assert [*methods("### A\n- `f(x)`: does.\n- `g: int`\ntext `h`\n")] == ["method A.f", "method A.g"]
