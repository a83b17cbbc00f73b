"""The project's own Python files, for tests that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHIPPED = ("common", "milestones", "pipeline")
"""The folders of the wheel; the links to two of them within the third are passed over."""


def files(*folders: str) -> Iterator[Path]:
    """The modules below these folders, in order."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any((ROOT / part).is_symlink() for part in path.relative_to(ROOT).parents):
                yield path


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """What the module is imported as."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return f"milestones.{module}" if module.startswith(("common", "pipeline")) else module


@cache
def parsed(*folders: str) -> Mapping[str, ast.Module]:
    """The modules below these folders, by their places."""
    return {place(path): ast.parse(path.read_text()) for path in files(*folders)}
