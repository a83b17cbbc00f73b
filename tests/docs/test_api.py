"""`docs/api.md` is current."""

from __future__ import annotations

from pathlib import Path

import milestones
from docs.api import SECTIONS, markdown
from milestones.common import serdes


def test_the_api_page_says_what_signatures_and_docstrings_say() -> None:
    page = Path(__file__).parents[2] / "docs" / "api.md"
    assert page.read_text() == markdown(), "run python -m docs.api > docs/api.md"


def test_the_api_page_has_every_class_and_function_that_milestones_exports() -> None:
    shown = {entry.__name__ for entries in SECTIONS.values() for entry in entries}
    assert set(milestones.__all__) - shown == {"serdes"}


def test_every_built_in_serde_is_on_the_api_page() -> None:
    page = markdown()
    assert all(f"serdes.{name}:" in page for name in serdes.__all__ if name.isupper())
