"""`docs/api.md` is current."""

from __future__ import annotations

import builtins
import collections.abc
import pathlib
import re
import typing

from docs.api import SECTIONS, TYPES, markdown
from milestones.common import serdes


def test_the_api_page_says_what_signatures_and_docstrings_say() -> None:
    page = pathlib.Path(__file__).parents[2] / "docs" / "api.md"
    assert page.read_text() == markdown(), "run python -m docs.api > docs/api.md"


def test_every_built_in_serde_is_on_the_api_page() -> None:
    page = markdown()
    assert all(f"serdes.{name}:" in page for name in serdes.__all__ if name.isupper())


def test_every_type_in_a_signature_is_on_the_api_page() -> None:
    page = markdown()
    code = " ".join(map(" ".join, re.findall(r"^(?:- )?`([^`\n]+)`(?:: `([^`\n]+)`)?", page, re.MULTILINE)))
    named = set(re.findall(r"(?<![\w.\"'])[A-Z]\w*[a-z]\w*", code))
    shown = {entry.__name__ for entries in SECTIONS.values() for entry in entries}
    explained = {name for name in TYPES if f"- `{name}`" in page}
    well_known = {name for module in (builtins, typing, collections.abc, pathlib) for name in dir(module)}
    assert named - shown - explained - well_known == set()
    assert {"Partitioner", "Status", "KStream"} <= named
