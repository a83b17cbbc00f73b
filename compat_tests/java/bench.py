"""Topologies on both sides, on the same random cases, until they differ.

*Guarantees*: the same seed, topology and number of examples try the same cases; of a difference the smallest case that
hypothesis finds is told.
*Assumes*: both sides do the same again for the same case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity

from compat_tests.java.cases import Case, Outcome, cases, trimmed
from compat_tests.java.comparing import CHANGELOG, DifferenceError, difference, last_rows
from compat_tests.java.declared import Declared, declared_for, declared_for_plan
from compat_tests.java.plans import is_plan
from compat_tests.java.registry import Entry
from milestones.common.topology.nodes import ProcessorNode
from milestones.common.topology.operators.stream_joins import KeepRecords
from milestones.common.topology.operators.tables import TableSource
from milestones.common.topology.optimization import REWRITES
from milestones.common.topology.topology import Topology

CACHES = (0, 10 << 20)
OPTIMIZATIONS = ("none", "all", *REWRITES)
"""Values of `topology.optimization` whose texts are compared."""
EQUAL, DIFFERS, DECLARED, ABSENT = "equal", "differs", "differs, as declared", "not here yet"

_CHOSEN_TOPIC = re.compile(r"\(extractor class: [^)]*\)")
"""Java has an object's address there."""


class Side(Protocol):
    """Ours or Java's topologies."""

    def describe(self, topology: str, optimization: str, /) -> str:
        """The text of a topology, built with a value of `topology.optimization`."""
        ...

    def run(self, topology: str, case: Case, cache: int, optimization: str, /) -> Outcome:
        """What the steps lead to."""
        ...


@dataclass
class Compared:
    """So much was compared. `records`: without a cache; `rows`: last ones of keys behind one; `errors`: cases that end
    early, on both sides; `declared`: outcomes that differ as declared, and in nothing else."""

    examples: int = 0
    records: int = 0
    rows: int = 0
    errors: int = 0
    declared: int = 0
    topics: set[str] = field(default_factory=set)

    def add(self, outcome: Outcome, cache: int) -> None:
        """Count an outcome that is the same on both sides."""
        if cache == 0:
            self.records += sum(len(rows) for step in outcome.outputs for rows in step.values())
        else:
            self.rows += len(last_rows(outcome.outputs))
        self.topics.update(topic for step in outcome.outputs for topic in step)

    @property
    def changelogs(self) -> int:
        """How many of the topics are changelogs."""
        return sum(topic.endswith(CHANGELOG) for topic in self.topics)


@dataclass(frozen=True)
class Line:
    """What came out for one topology. `why`: the difference, or the reason why it is declared."""

    topology: str
    result: str
    compared: Compared = field(default_factory=Compared)
    why: str = ""


def check(
    entry: Entry, ours: Side, java: Side, examples: int, seed: int, caches: Sequence[int] = CACHES, shrink: bool = True
) -> Line:
    """Compare one topology's text, then so many cases at each of `caches`. `shrink`: look for a smaller case that
    differs."""
    compared, declared = Compared(), _declared(entry)
    try:
        if (found := text_difference(entry.name, ours, java)) is not None:
            raise DifferenceError(found)
        _check_cases(entry, declared, ours, java, examples, seed, caches, shrink, compared)
    except DifferenceError as differs:
        if shrink and differs.case:
            differs = _trimmed(differs, entry, declared, ours, java, caches)
        return Line(entry.name, DIFFERS, compared, str(differs))
    if declared is not None and compared.declared:
        return Line(entry.name, DECLARED, compared, declared.reason)
    return Line(entry.name, EQUAL, compared)


def _declared(entry: Entry) -> Declared | None:
    """The difference declared for a topology or a plan."""
    if not is_plan(entry.name):
        return declared_for(entry.name)
    return declared_for_plan(entry.build(), entry.inputs)


def absent(names: Iterable[str]) -> list[Line]:
    """Lines of topologies that only Java has."""
    return [Line(name, ABSENT) for name in names]


def text_difference(name: str, ours: Side, java: Side) -> str | None:
    """How the texts of a topology differ, None if they don't."""
    for optimization in OPTIMIZATIONS:
        mine, theirs = (
            _CHOSEN_TOPIC.sub("(extractor class)", side.describe(name, optimization)).rstrip() for side in (ours, java)
        )
        if mine != theirs:
            return f"describe(), optimization {optimization}:\n-- ours\n{mine}\n-- java\n{theirs}"
    return None


def _check_cases(
    entry: Entry,
    declared: Declared | None,
    ours: Side,
    java: Side,
    examples: int,
    seed: int,
    caches: Sequence[int],
    shrink: bool,
    compared: Compared,
) -> None:
    @hypothesis.seed(crc32(f"{seed} {entry.name}".encode()))
    @hypothesis.settings(
        max_examples=examples,
        phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(cases(entry.inputs))
    def same(case: Case) -> None:
        for cache, optimization in ways:
            outcome, as_declared = _compare(entry.name, declared, ours, java, case, cache, optimization)
            compared.add(outcome, cache)
            compared.declared += as_declared
        compared.examples += 1
        compared.errors += outcome.error is not None

    ways = ways_of(entry, caches)
    same()


def ways_of(entry: Entry, caches: Sequence[int]) -> list[tuple[int, str]]:
    """The caches and optimisations with which a topology is run: with all of these, if that is another topology."""
    ways = [(cache, "none") for cache in caches]
    return [*ways, *((cache, "all") for cache in caches[:1] if _may_be_optimized(entry.build()))]


def _may_be_optimized(topology: Topology) -> bool:
    """Whether it has what an optimisation may be about; whether ours does anything is no matter."""
    subs = topology.resolve("bench")
    operators = [node.operator for sub in subs for node in sub.nodes if isinstance(node, ProcessorNode)]
    about = any(isinstance(operator, TableSource | KeepRecords) for operator in operators)
    return about or any(sub.repartition_topics for sub in subs)


def _compare(
    name: str, declared: Declared | None, ours: Side, java: Side, case: Case, cache: int, optimization: str
) -> tuple[Outcome, bool]:
    """Ours, as far as it is Java's too; whether a declared difference was left out for that."""
    outcome, other = (side.run(name, case, cache, optimization) for side in (ours, java))
    found = difference(outcome, other, cache)
    if found is None:
        return outcome, False
    if declared is not None and declared.of(case, cache):
        outcome, other = declared.rest(outcome), declared.rest(other)
        found = difference(outcome, other, cache)
    if found is not None:
        raise DifferenceError(f"{name}, cache of {cache} bytes, optimization {optimization}: {found}", case)
    return outcome, True


def _trimmed(
    found: DifferenceError,
    entry: Entry,
    declared: Declared | None,
    ours: Side,
    java: Side,
    caches: Sequence[int],
) -> DifferenceError:
    """The difference that fewer steps lead to."""
    least, ways = [found], ways_of(entry, caches)

    def differs(case: Case) -> bool:
        try:
            for cache, optimization in ways:
                _compare(entry.name, declared, ours, java, case, cache, optimization)
        except DifferenceError as error:
            least[0] = error
            return True
        return False

    trimmed(found.case, differs)
    return least[0]
