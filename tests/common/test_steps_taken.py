"""Steps are taken: a function that returns `Steps` does nothing when its result is dropped, and says nothing either."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

from tests.sources import SHIPPED, parsed

Definition = tuple[str, tuple[str, ...]]
"""Name and parameters."""


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def returns_steps(function: ast.FunctionDef) -> bool:
    return function.returns is not None and ast.unparse(function.returns).startswith("Steps[")


def definition(function: ast.FunctionDef) -> Definition:
    return function.name, tuple(one.arg for one in (*function.args.args, *function.args.kwonlyargs))


def dropped(trees: Mapping[str, ast.Module]) -> set[str]:
    """Calls, as statements, of functions by their names and of methods of the same class, that return steps."""
    of_modules = {node.name for tree in trees.values() for node in tree.body if is_of_steps(node)}
    found = set[str]()
    for path, tree in trees.items():
        imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
        own = {node.name for node in tree.body if is_of_steps(node)}
        found |= {f"{path}: {name}" for name in called(tree, "") if name in of_modules & (imported | own)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = {one.name for one in node.body if is_of_steps(one)}
                found |= {f"{path}: {name}" for name in called(node, "self") if name in methods}
    return found


def is_of_steps(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and returns_steps(node)


def called(tree: ast.AST, of: str) -> Iterator[str]:
    """Names of what is called as a statement: functions, or methods `of` an object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            what = node.value.func
            if isinstance(what, ast.Name) and not of:
                yield what.id
            if isinstance(what, ast.Attribute) and isinstance(what.value, ast.Name) and what.value.id == of:
                yield what.attr


def at_once(trees: Mapping[str, ast.Module]) -> set[str]:
    """Functions that return no steps though one of `parts` of the same name and parameters, if it has any, does."""
    parts = [tree for path, tree in trees.items() if path.startswith("milestones/parts/")]
    promised = {definition(one) for tree in parts for one in functions(tree) if returns_steps(one)}
    return {
        f"{path}: {one.name}"
        for path, tree in trees.items()
        for one in functions(tree)
        if len(one.args.args) > 1 and definition(one) in promised and not returns_steps(one)
    }


def test_no_steps_are_dropped() -> None:
    assert not dropped(parsed(*SHIPPED))


def test_what_a_part_promises_to_do_in_steps_is_done_in_steps_by_whatever_takes_its_place() -> None:
    assert not at_once(parsed(*SHIPPED))


OF_ITS_OWN = "class C:\n def f(self) -> Steps[None]: ...\n def g(self): self.f()"


@pytest.mark.parametrize("code", ["initialise(1)", OF_ITS_OWN])
def test_steps_that_are_dropped_are_found(code: str) -> None:
    home = ast.parse("def initialise(within_ms: int) -> Steps[None]: ...")
    user = ast.parse(f"from home import initialise\n{code}")
    assert len(dropped({"home.py": home, "user.py": user})) == 1


def test_a_call_at_once_in_place_of_steps_is_found() -> None:
    renew = "class C:\n def renew(self, within_ms) -> {}: ..."
    part, other = (ast.parse(renew.format(what)) for what in ("Steps[None]", "None"))
    assert at_once({"milestones/parts/a.py": part, "other.py": other}) == {"other.py: renew"}
