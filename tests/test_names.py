"""Names: a class name says one thing, a milestone's folder can be read by itself, a class has few public names.

What is shipped is `common/`, `milestones/` and `pipeline/`. Three rules hold there.

A class name is defined once, so that a search for it finds one thing. Excepted: definitions of one name in the same
scope of the same module (one for each Python version, or for type checkers only), and nested classes of one outer class
for the same reason. Names of tests, benchmarks and the compatibility suite aren't shipped.

A milestone's folder uses no underscore name of a class outside of it: neither one that it inherits, to call it, read it
or override it, nor one of another object, nor one that it imports. Otherwise a milestone couldn't be understood without
what is private to another folder. Excepted: dunder names, those of every
`NamedTuple`, and `ALLOWED`.

A public class has up to `MOST_NAMES` public names of its own: methods, properties, class attributes, and attributes
that its `__init__` sets. That is as much as a first-time reader can hold in mind. A class with more names does several
things, and can be cut into several classes. Inherited names don't count. A table doesn't count either: a class without
methods, whose rows are settings, metrics, or members of an enumeration. `LARGE` lists the larger classes of today.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.sources import SHIPPED, files, module_of

STAGES = ("baseline", "m1_", "m2_", "m3_", "m4_", "m5_", "m6_")


class Use(NamedTuple):
    """A use of a foreign underscore name. `scope`: the class that uses it, "" outside of any."""

    module: str
    scope: str
    name: str


ALLOWED = frozenset(
    {
        Use("milestones.m2_processing_threads.collection", "BufferedCollection", "_config"),
        Use("milestones.m2_processing_threads.collection", "BufferedCollection", "_hold"),
        Use("milestones.m2_processing_threads.collection", "BufferedCollection", "_take"),
    }
)
"""Today's offenders. The list only shrinks: the test fails for one that is mended as well, until it is taken out."""

MOST_NAMES = 20

LARGE = {
    "Task": 64,
    "SubtopologyEngine": 45,
    "SnapshotManifest": 39,
    "Scheduler": 32,
    "TaskStores": 32,
    "Changelogs": 30,
    "BoundContext": 28,
    "OutputProducer": 28,
    "Cluster": 27,
    "ThreadTasks": 27,
    "StateDirectory": 24,
    "InlineProcessing": 23,
    "Streams": 23,
    "ThreadedProcessing": 23,
    "Application": 22,
    "ThreadContext": 22,
    "Processing": 21,
    "StoreSpec": 21,
    "StreamsConfig": 21,
    "TaskCommits": 21,
    "ThreadRoster": 21,
}
"""The public names of each larger class, most first. Numbers only fall: the test fails when a class grows, and when it
has shrunk as well, until its number here is lowered or taken out. Only `Streams` has grown, by `memory`: it is where
users look for everything about their client."""


@dataclass
class Module:
    name: str
    tree: ast.Module
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Local name -> module and name there."""
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def stage(self) -> bool:
        parts = self.name.split(".")
        return parts[0] == "milestones" and len(parts) > 2 and parts[1].startswith(STAGES)


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of each shipped module."""
    return ((module_of(path), path.read_text()) for path in files(*SHIPPED))


def parsed(texts: Iterable[tuple[str, str]]) -> dict[str, Module]:
    modules = {}
    for name, text in texts:
        module = modules[name] = Module(name, ast.parse(text))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom):
                for one in node.names:
                    module.imports[one.asname or one.name] = node.module or "", one.name
            elif isinstance(node, ast.ClassDef):
                module.classes[node.name] = node
    return modules


def definitions(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """By class name the scopes that define it."""
    found = defaultdict(set)

    def visit(node: ast.AST, scope: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found[child.name].add(scope)
            inner = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            visit(child, f"{scope}.{child.name}" if inner else scope)  # type: ignore[attr-defined]

    for module in modules.values():
        visit(module.tree, module.name)
    return found


NAMED_TUPLE = frozenset({"_asdict", "_fields", "_make", "_replace"})
"""Public, whatever they look like."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in NAMED_TUPLE


def own(node: ast.AST) -> set[str]:
    """The underscore names that a class, or a module's classes and functions, define."""
    names = set[str]()
    for child in ast.walk(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(child.name)
        elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and _is_self(child.value):
            names.add(child.attr)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            names.add(child.value)  # `__slots__`
    return {name for name in names if private(name)}


def _is_self(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def ancestors(
    modules: Mapping[str, Module], module: Module, node: ast.ClassDef
) -> Iterator[tuple[Module, ast.ClassDef]]:
    """The shipped classes that it inherits from, at any distance."""
    for base in node.bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        if not isinstance(name, ast.Name):
            continue
        where, called = module, name.id
        while called not in where.classes and called in where.imports and where.imports[called][0] in modules:
            source, called = where.imports[called]
            where = modules[source]
        found = where.classes.get(called)
        if found is not None and found is not node:
            yield where, found
            yield from ancestors(modules, where, found)


def foreign_uses(modules: Mapping[str, Module]) -> set[Use]:
    found = set[Use]()
    names = {module.name: set().union(*(own(node) for node in module.classes.values())) for module in modules.values()}
    for module in (module for module in modules.values() if module.stage):
        mine = own(module.tree)
        elsewhere = set[str]().union(*(n for name, n in names.items() if modules[name].folder != module.folder))
        for source, name in module.imports.values():
            if private(name) and source in modules and modules[source].folder != module.folder:
                found.add(Use(module.name, "", name))
        found |= {Use(module.name, "", name) for name in _reads(module.tree) & elsewhere - mine}
        for node in module.classes.values():
            above = [own(base) for where, base in ancestors(modules, module, node) if where.folder != module.folder]
            used = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and _is_self(n.value)} | own(node)
            found |= {Use(module.name, node.name, name) for name in used & set[str]().union(*above)}
    return found


def _reads(node: ast.AST) -> set[str]:
    """Underscore names that are read of other objects than `self`."""
    attributes = (child for child in ast.walk(node) if isinstance(child, ast.Attribute) and not _is_self(child.value))
    return {child.attr for child in attributes if private(child.attr)}


def test_a_class_name_is_defined_once() -> None:
    twice = {name: sorted(scopes) for name, scopes in definitions(parsed(sources())).items() if len(scopes) > 1}
    assert twice == {}


def test_no_milestone_uses_underscore_names_of_classes_outside_of_its_folder() -> None:
    assert foreign_uses(parsed(sources())) == ALLOWED


def public_names(node: ast.ClassDef) -> set[str]:
    """The public names of a class, as far as it defines them itself; none of a table."""
    methods = [child for child in _statements(node) if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not methods:
        return set()
    names = {method.name for method in methods}
    for child in _statements(node):
        if isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            names |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        elif isinstance(child, ast.ClassDef):
            names.add(child.name)
    for child in (n for method in methods if method.name == "__init__" for n in ast.walk(method)):
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and _is_self(child.value):
            names.add(child.attr)
    return {name for name in names if not name.startswith("_")}


def _statements(node: ast.ClassDef) -> Iterator[ast.stmt]:
    """The statements of a class body, those in its conditions too."""
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.If):
            waiting += [*one.body, *one.orelse]
        elif isinstance(one, ast.stmt):
            yield one


def larger_classes(modules: Mapping[str, Module], most: int = MOST_NAMES) -> dict[str, int]:
    """Public classes with more than `most` public names: how many they have, the largest first."""
    counts = {name: len(public_names(node)) for module in modules.values() for name, node in module.classes.items()}
    large = [(name, count) for name, count in counts.items() if count > most and not name.startswith("_")]
    return dict(sorted(large, key=lambda one: (-one[1], one[0])))


def test_no_public_class_has_more_public_names_than_a_reader_can_hold_in_mind() -> None:
    found = larger_classes(parsed(sources()))
    assert {name: count for name, count in found.items() if count > LARGE.get(name, 0)} == {}, "cut the class"
    assert found == LARGE, "a class has become smaller: lower its number, or take it out"
    assert list(found) == list(LARGE), "the largest come first"


BASE = ("milestones.baseline.base", "class Base:\n    def __init__(self): self._state = 1\n    def _hook(self): ...\n")


def uses(text: str) -> set[tuple[str, str]]:
    module = "milestones.m1_state_updater.one"
    return {(use.scope, use.name) for use in foreign_uses(parsed([BASE, (module, text)])) if use.module == module}


IMPORT = "from milestones.baseline.base import Base\n"


def test_a_name_that_is_inherited_is_found_when_it_is_overridden_called_or_read() -> None:
    assert uses(f"{IMPORT}class One(Base):\n    def _hook(self): ...") == {("One", "_hook")}
    assert uses(f"{IMPORT}class One(Base):\n    def f(self): self._hook()") == {("One", "_hook")}
    assert uses(f"{IMPORT}class One(Base):\n    def f(self): return super()._hook()") == {("One", "_hook")}
    assert uses(f"{IMPORT}class Two(Base): ...\nclass One(Two):\n    def f(self): return self._state") == {
        ("One", "_state")
    }


def test_a_name_of_another_object_and_an_imported_one_are_found() -> None:
    assert uses(f"{IMPORT}def f(base: Base): return base._state") == {("", "_state")}
    assert uses("from milestones.baseline.base import _hidden") == {("", "_hidden")}


def test_own_names_and_public_ones_are_free() -> None:
    assert uses(f"{IMPORT}class One:\n    def __init__(self): self._state = Base()\n    def _hook(self): ...") == set()
    assert uses(f"{IMPORT}class One(Base):\n    def hook(self): self.state = self._mine = 1") == set()


def test_nested_classes_of_two_outer_ones_are_two_and_definitions_in_one_scope_are_one() -> None:
    nested = "class A:\n    class Row: ...\nclass B:\n    class Row: ...\n"
    versions = "if 1:\n    class V: ...\nelse:\n    class V: ...\n"
    found = definitions(parsed([("milestones.x", nested + versions)]))
    assert {name for name, scopes in found.items() if len(scopes) > 1} == {"Row"}


def sizes(text: str) -> dict[str, int]:
    """Of the classes with any public name, the number of them."""
    return larger_classes(parsed([("milestones.x", text)]), most=0)


def test_methods_properties_class_attributes_and_those_of_init_are_public_names_and_count_once() -> None:
    methods = "class A:\n    def f(self): ...\n    async def g(self): ...\n    def _h(self): ...\n"
    assert sizes(methods) == {"A": 2}
    given = "    @property\n    def h(self): return 1\n    @h.setter\n    def h(self, value): ...\n"
    assert sizes(methods + given) == {"A": 3}
    assert sizes(f"{methods}    a = b = 1\n    c: int\n    _d: int = 2\n") == {"A": 5}
    init = "    def __init__(self, a):\n        self.a, self._b = a, 1\n        self.c: int = 2\n        a.d = 3\n"
    assert sizes(methods + init) == {"A": 4}
    assert sizes(f"{methods}    def i(self): self.later = 1\n    if 1:\n        def j(self): ...\n") == {"A": 4}


def test_tables_private_classes_and_inherited_names_do_not_count() -> None:
    assert sizes("class Row:\n    a = 1\n    b: int = 2\n") == {}
    assert sizes("class _A:\n    def f(self): ...\n") == {}
    assert sizes("class A:\n    def f(self): ...\nclass B(A):\n    def g(self): ...\n") == {"A": 1, "B": 1}


def test_the_largest_class_comes_first() -> None:
    assert list(sizes("class B:\n    def f(self): ...\nclass A:\n    def f(self): ...\n    a = 1\n")) == ["A", "B"]
