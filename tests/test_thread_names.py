"""No thread of ours has an attribute that Python's own class of threads uses for itself, on any version of Python."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.sources import files, module_of

FOLDERS = ("benchmarks", "common", "compat_tests", "milestones", "pipeline")

KNOWN = frozenset({
    "_after_fork", "_args", "_bootstrap", "_bootstrap_inner", "_context", "_daemonic", "_delete", "_handle", "_ident",
    "_initialized", "_invoke_excepthook", "_is_stopped", "_kwargs", "_name", "_native_id", "_os_thread_handle",
    "_reset_internal_locks", "_set_ident", "_set_native_id", "_set_os_name", "_set_tstate_lock", "_started", "_stderr",
    "_stop", "_target", "_tstate_lock", "_wait_for_tstate_lock",
})  # fmt: skip
"""Those of Python 3.11 to 3.14; of the one that runs this test they are asked for."""

OVERRIDDEN = frozenset({"__init__", "run", "join", "start"})
"""What a subclass is there to have of its own."""


def reserved() -> frozenset[str]:
    """Every name that a `Thread` has before anybody derives from it."""
    thread = threading.Thread()
    return KNOWN | (vars(thread).keys() | set(dir(threading.Thread))) - set(dir(object)) - OVERRIDDEN


@dataclass(frozen=True)
class Found:
    """A class of the project, and what its bases are called in full."""

    name: str
    bases: frozenset[str]
    node: ast.ClassDef


def threads() -> list[Found]:
    paths = list(files(*FOLDERS))
    found = [one for path in paths for one in classes(path)]
    exported = {name: defined for path in paths if path.name == "__init__.py" for name, defined in exports(path)}
    known = {"threading.Thread", "threading.Timer"}
    while more := {one.name for one in found if {exported.get(base, base) for base in one.bases} & known} - known:
        known |= more
    return [one for one in found if one.name in known]


def exports(path: Path) -> Iterator[tuple[str, str]]:
    """What a package hands on: the name there, and the one where it is defined."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{module_of(path)}.{alias.asname or alias.name}", f"{node.module}.{alias.name}"


def classes(path: Path) -> Iterator[Found]:
    module = module_of(path)
    tree = ast.parse(path.read_text())
    names = {node.name: f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = frozenset(names.get(base, base) for base in map(ast.unparse, node.bases))
            yield Found(names.get(node.name, f"{module}.{node.name}"), bases, node)


def own_names(of: ast.ClassDef) -> set[str]:
    """Its methods and class attributes, and what is assigned to `self.`."""
    names = {node.name for node in of.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(of):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return names | {ast.unparse(node) for node in assigned(of)}


def assigned(of: ast.ClassDef) -> Iterator[ast.expr]:
    """What is assigned or annotated in the body of the class itself."""
    for node in of.body:
        if isinstance(node, ast.Assign):
            yield from node.targets
        elif isinstance(node, ast.AnnAssign):
            yield node.target


def test_a_thread_shadows_nothing_of_pythons_own() -> None:
    found, pythons = threads(), reserved()
    names = {one.node.name for one in found}
    assert {"StreamThread", "ProcessingThread", "Housekeeper", "UpdaterThread", "EngineMetricsThread"} <= names
    shadowed = {one.name: own_names(one.node) & pythons for one in found}
    assert {name: own for name, own in shadowed.items() if own} == {}
