"""No check without its planted fault: every place that makes a finding is reached, every kind planted and documented.

What is looked at is the source itself, so a new check without a test fails here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from compat_tests.oracles.findings import Finding
from compat_tests.planted import mutated, mutations

HERE = Path(__file__).parent
SUITE = HERE.parent
BESIDE = {
    "soak/samples.py": "soak/test_samples.py",
    "random_topologies/stages.py": "random_topologies/test_stages.py",
    "random_topologies/joins_by_definition.py": "random_topologies/test_joins_by_definition.py",
    "random_topologies/shaped_judgement.py": "random_topologies/test_shaped_judgement.py",
    "takeover/comparing.py": "takeover/test_comparing.py",
}
"""Checks outside of oracles and harness, each with the file beside it that plants their faults."""
CHECKED = sorted(path for folder in ("oracles", "harness") for path in (SUITE / folder).glob("*.py"))
CHECKED += [SUITE / path for path in BESIDE]
PLANTED = sorted(HERE.glob("test_*.py")) + [SUITE / path for path in BESIDE.values()]
GUIDE = SUITE.parent / "docs" / "compatibility.md"


def sites(path: Path) -> list[range]:
    """The lines of each `Finding(...)` in a file."""
    calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == Finding.__name__]
    return [range(call.lineno, (call.end_lineno or call.lineno) + 1) for call in made]


def documented(path: Path) -> set[str]:
    """The kinds in the table of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return set(re.findall(r"^\| ([\w-]+) \|", text, re.MULTILINE)) - {"kind"}


def planted_tests() -> Iterator[Callable[[], object]]:
    """Every test of those files that needs nothing but its parameters, once per set of them."""
    for path in PLANTED:
        if path.name == Path(__file__).name:
            continue
        module = importlib.import_module(".".join(path.relative_to(SUITE.parent).with_suffix("").parts))
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_") and test.__module__ == module.__name__:
                yield from calls(test)


def calls(test: Callable[..., object]) -> Iterator[Callable[[], object]]:
    """A test with each of its `parametrize`d arguments; nothing when it takes a fixture."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    names = [name.strip() for mark in marks for name in _names(mark.args[0])]
    if set(inspect.signature(test).parameters) != set(names) or len(marks) > 1:
        return
    for values in marks[0].args[1] if marks else [()]:
        values = getattr(values, "values", values)
        arguments = dict(zip(names, values if len(names) != 1 else [values], strict=True))
        yield lambda arguments=arguments: test(**arguments)  # type: ignore[misc]


def _names(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(given.split(",")) if isinstance(given, str) else given


Made = dict[Path, dict[int, set[str]]]
"""By file and line: the kinds of the findings that were made there."""


@pytest.fixture(scope="module")
def made() -> Made:
    """What all planted tests find."""
    found: Made = defaultdict(lambda: defaultdict(set))
    original = Finding.__new__

    def noting(cls: Any, kind: str, text: str) -> Finding:
        frame = sys._getframe(1)
        found[Path(frame.f_code.co_filename)][frame.f_lineno].add(kind)
        finding: Finding = original(cls, kind, text)
        return finding

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finding, "__new__", noting)
        for test in planted_tests():
            with suppress(AssertionError):  # it says so itself
                test()
    return found


@pytest.mark.parametrize("path", [path for path in CHECKED if sites(path)], ids=lambda path: path.stem)
def test_every_finding_of_every_check_is_made_by_a_planted_fault(made: Made, path: Path) -> None:
    lines = made.get(path, {})
    never = [site[0] for site in sites(path) if not any(line in site for line in lines)]
    assert not never, f"no planted fault reaches the findings of {path.name} in lines {never}"


@pytest.mark.parametrize("path", [path for path in CHECKED if documented(path)], ids=lambda path: path.stem)
def test_every_kind_in_the_table_of_a_check_is_planted_and_no_other_is_found(made: Made, path: Path) -> None:
    assert set().union(*made[path].values()) == documented(path)


def test_every_kind_is_explained_to_users(made: Made) -> None:
    guide = GUIDE.read_text("utf-8")
    known = {kind for path in CHECKED for kinds in made.get(path, {}).values() for kind in kinds}
    assert sorted(kind for kind in known if f"`{kind}`" not in guide) == []


def test_every_mutation_of_the_runtime_and_every_kind_of_finding_is_seen_from_end_to_end() -> None:
    seen = "".join(path.read_text("utf-8") for path in HERE.glob("test_mutations*.py"))
    assert mutated.MODULES
    assert sorted(name for name in mutations.MUTATIONS if f'"{name}"' not in seen) == []
    kinds = {kind for path in CHECKED if path.parent.name == "oracles" for kind in documented(path)}
    assert sorted(kind for kind in kinds if f'"{kind}"' not in seen) == []
