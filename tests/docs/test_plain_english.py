"""Phrases that make a reader stop are in no page and no docstring: each has a plain word of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.sources import ROOT, SHIPPED, parsed, place

PLAIN = {
    r"\b[Aa]s of\b": "as in, at the time of, after",
    r"\bfor now\b": "until when",
    r"\bbut for (?!good\b)": "except",
    r"\b[Ww]hoever\b": "the name of a class, a thread or a process",
}
"""By pattern, what says the same."""

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    + [path for top in (*SHIPPED, "compat_tests", "benchmarks") for path in (ROOT / top).rglob("*.md")]
)
RULES = "CONTRIBUTING.md"
"""The page that names the phrases."""

LEFT = frozenset({"milestones/stream_thread/commits/driver.py"})
"""The modules that have such phrases still: the list may only shrink."""


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Those of attributes, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def found(text: str) -> list[str]:
    """Each phrase, with what to write in its place."""
    words = " ".join(text.split())
    return [f"{match[0]!r}: write {plain!r}" for phrase, plain in PLAIN.items() for match in re.finditer(phrase, words)]


def test_pages_use_plain_words() -> None:
    phrases = {place(page): found(page.read_text()) for page in PAGES if place(page) != RULES}
    assert {name: here for name, here in phrases.items() if here} == {}


def test_docstrings_use_plain_words() -> None:
    phrases = {name: found(" ".join(docstrings(tree))) for name, tree in parsed(*SHIPPED).items()}
    assert {name: here for name, here in phrases.items() if here and name not in LEFT} == {}


def test_a_phrase_is_found_over_the_end_of_a_line_and_before_a_time() -> None:
    assert found("Errors as of `apply`, but\nfor one.") == [
        "'as of': write 'as in, at the time of, after'", "'but for ': write 'except'",
    ]  # fmt: skip
    assert found("As of the last commit") == ["'As of': write 'as in, at the time of, after'"]
    assert found("for a week, but for good where nothing else has it.") == []
