"""Topologies on both sides, on the same random cases, until they differ.

*Guarantees*: the same seed, topology and number of examples try the same cases; of a difference the smallest case that
hypothesis finds is told.
*Assumes*: both sides do the same again for the same case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity

from compat_tests.java.cases import Case, Outcome, Records, cases, trimmed
from compat_tests.java.comparing import CHANGELOG, DifferenceError, difference, last_rows
from compat_tests.java.declared import EQUAL_TIMES, PAST_A_MERGE, Declared, declared_for, declared_for_plan
from compat_tests.java.plans import is_plan
from compat_tests.java.registry import Entry
from milestones.common.topology.nodes import ProcessorNode
from milestones.common.topology.operators.stream_joins import KeepRecords
from milestones.common.topology.operators.tables import TableSource
from milestones.common.topology.optimization import MERGE, REWRITES
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
    early, on both sides; `declared`: outcomes that differ as declared, and in nothing else, for these `reasons`."""

    examples: int = 0
    records: int = 0
    rows: int = 0
    errors: int = 0
    declared: int = 0
    reasons: set[str] = field(default_factory=set)
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


def nothing_else(case: Case) -> str | None:
    """No other difference."""
    return None


def check(
    entry: Entry,
    ours: Side,
    java: Side,
    examples: int,
    seed: int,
    caches: Sequence[int] = CACHES,
    shrink: bool = True,
    otherwise: Side | None = None,
    also: Callable[[Case], str | None] = nothing_else,
) -> Line:
    """Compare one topology's text, then so many cases at each of `caches`. `shrink`: look for a smaller case that
    differs. `otherwise`: ours, asked for the outcome in another order that is as good, where that of `ours` differs.
    `also`: tells what else is wrong with a case."""
    compared = Compared()
    try:
        ways = ways_of(entry, caches)
        if (found := text_difference(entry.name, ours, java)) is not None:
            if not (is_plan(entry.name) and merges_past_merge(entry, ours, java)):
                raise DifferenceError(found)
            compared.reasons.add(PAST_A_MERGE)
            ways = [(cache, optimization) for cache, optimization in ways if optimization == "none"]
        comparison = _Comparison(entry, ours, java, ways, _declared(entry), otherwise, also)
        _check_cases(comparison, examples, seed, shrink, compared)
    except DifferenceError as differs:
        if shrink and differs.case:
            differs = _trimmed(differs, comparison)
        return Line(entry.name, DIFFERS, compared, str(differs))
    if compared.reasons:
        return Line(entry.name, DECLARED, compared, " and ".join(sorted(compared.reasons)))
    return Line(entry.name, EQUAL, compared)


def _declared(entry: Entry) -> Declared | None:
    """The difference declared for a topology or a plan."""
    if not is_plan(entry.name):
        return declared_for(entry.name)
    return declared_for_plan(entry.build())


def absent(names: Iterable[str]) -> list[Line]:
    """Lines of topologies that only Java has."""
    return [Line(name, ABSENT) for name in names]


def merges_past_merge(entry: Entry, ours: Side, java: Side) -> bool:
    """Whether the texts of a plan that merges streams differ only where repartition topics are merged."""
    others = [each for each in OPTIMIZATIONS if each not in ("all", MERGE)]
    return '"op":"merge"' in entry.name and text_difference(entry.name, ours, java, others) is None


def text_difference(name: str, ours: Side, java: Side, optimizations: Sequence[str] = OPTIMIZATIONS) -> str | None:
    """How the texts of a topology differ, None if they don't."""
    for optimization in optimizations:
        mine, theirs = (
            _CHOSEN_TOPIC.sub("(extractor class)", side.describe(name, optimization)).rstrip() for side in (ours, java)
        )
        if mine != theirs:
            return f"describe(), optimization {optimization}:\n-- ours\n{mine}\n-- java\n{theirs}"
    return None


def _check_cases(comparison: _Comparison, examples: int, seed: int, shrink: bool, compared: Compared) -> None:
    def same(case: Case) -> None:
        outcome = None
        for cache, outcome, reasons in comparison.outcomes(case):
            compared.add(outcome, cache)
            compared.declared += bool(reasons)
            compared.reasons.update(reasons)
        compared.examples += 1
        compared.errors += outcome is not None and outcome.error is not None

    _try(same, comparison.entry.inputs, examples, f"{seed} {comparison.entry.name}", shrink)


def some_cases(inputs: Mapping[str, Records], examples: int, seed: str) -> list[Case]:
    """Draw `examples` cases, the same ones for the same seed."""
    found: list[Case] = []
    _try(found.append, inputs, examples, seed, shrink=False)
    return found


def _try(
    tried: Callable[[Case], object], inputs: Mapping[str, Records], examples: int, seed: str, shrink: bool
) -> None:
    @hypothesis.seed(crc32(seed.encode()))
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
    @hypothesis.given(cases(inputs))
    def each(case: Case) -> None:
        tried(case)

    each()


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


@dataclass(frozen=True)
class _Comparison:
    """What is compared, as `check` is given it. `ways`: caches and optimisations."""

    entry: Entry
    ours: Side
    java: Side
    ways: Sequence[tuple[int, str]]
    declared: Declared | None
    otherwise: Side | None
    also: Callable[[Case], str | None]

    def outcomes(self, case: Case) -> Iterator[tuple[int, Outcome, list[str]]]:
        """Of each way to run it: the cache, our outcome as far as it is Java's too, and the reasons of the declared
        differences that were left out for that. `DifferenceError`."""
        for cache, optimization in self.ways:
            yield cache, *self._same(case, cache, optimization)
        if (found := self.also(case)) is not None:
            raise DifferenceError(f"{self.entry.name}, on our side: {found}", case)

    def _same(self, case: Case, cache: int, optimization: str) -> tuple[Outcome, list[str]]:
        arguments = self.entry.name, case, cache, optimization
        java, reasons = self.java.run(*arguments), list[str]()
        for side in (self.ours, self.otherwise):
            if side is None:
                break
            outcome = side.run(*arguments)
            if (found := difference(outcome, java, cache)) is None:
                return outcome, reasons
            declared = self.declared
            if declared is not None and declared.of(case, cache):
                rest = declared.rest(outcome)
                if (found := difference(rest, declared.rest(java), cache)) is None:
                    return rest, [*reasons, declared.reason]
            reasons.append(EQUAL_TIMES)
        raise DifferenceError(f"{self.entry.name}, cache of {cache} bytes, optimization {optimization}: {found}", case)


def _trimmed(found: DifferenceError, comparison: _Comparison) -> DifferenceError:
    """The difference that fewer steps lead to."""
    least = [found]

    def differs(case: Case) -> bool:
        try:
            for _ in comparison.outcomes(case):
                pass
        except DifferenceError as error:
            least[0] = error
            return True
        return False

    trimmed(found.case, differs)
    return least[0]
