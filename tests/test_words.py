"""Words: a sentence about the code names its subject, a class, a thread or a process.

Docstrings and comments of what is shipped (`common/`, `milestones/`, `pipeline/`) don't speak of *somebody*, *whoever*
or *who*: a reader has to know which thread or class that is. Nor have they words for what is better said as it is:
*goes on* (is processed, continues, runs), *its fate* (how it is closed), *trouble* (an error). READMEs of packages keep
to it too.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.sources import ROOT, SHIPPED, files, place

VAGUE = re.compile(
    r"\b(somebody|someone|anybody|anyone|nobody|everybody|everyone|whoever|whomever|who|whom|he|him|his|fate|troubles?"
    r"|go(?:es)? on|what there is)\b",
    re.IGNORECASE,
)

QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[A-Za-z ]{2,}'")
"""Names of code, and what is quoted: a seed's words, Kafka's."""


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Each line of a module's docstrings, those of attributes too, and of its comments, with its number."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                yield number, lines[number - 1].replace('"""', "")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def vague(lines: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """The vague words, each with the number of its line."""
    return [(number, word) for number, line in lines for word in VAGUE.findall(QUOTED.sub("", line))]


def test_docstrings_and_comments_name_their_subjects() -> None:
    found = {place(path): vague(prose(path.read_text())) for path in files(*SHIPPED)}
    assert {name: words for name, words in found.items() if words} == {}


def test_readmes_of_packages_name_their_subjects() -> None:
    pages = [path for top in ("common", "milestones") for path in (ROOT / top).rglob("README.md")]
    assert len(pages) > 20
    texts = {place(path): path.read_text().replace("**Who owns what.**", "") for path in pages}
    found = {name: vague(iter(enumerate(text.splitlines(), 1))) for name, text in texts.items()}
    assert {name: words for name, words in found.items() if words} == {}


def test_vague_words_are_found_in_docstrings_and_comments_and_nowhere_else() -> None:
    text = '"""Whoever asks."""\nx = "nobody"  # who knows\n"""Of `nobody`, and what it says: "who"."""\nhis = 1\n'
    assert vague(prose(text)) == [(1, "Whoever"), (2, "who")]
