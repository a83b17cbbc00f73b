"""`Timings`: what a profile's times say of each part: its own time, and that of all it called.

*Guarantees*: the own times of all parts together are all the time that there is. What the profile itself has taken, as
measured at its start, is taken out.
*Assumes*: of tasks, no part calls itself through another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from time import perf_counter_ns
from typing import NamedTuple

from milestones.common.task.profile import Edges, Part, Spent, Stopwatch

LEAST_WATCHED_NS = 1_000_000
"""Less of a part whose CPU time was taken says nothing about the rest."""

ROUNDS, CALLS = 20, 500


class Cost(NamedTuple):
    """What timing one call takes, in ns: between its two looks at the clock, and around them."""

    within: float = 0.0
    around: float = 0.0


class Costs(NamedTuple):
    """Of a node's call, and of any other."""

    node: Cost = Cost()
    call: Cost = Cost()

    def of(self, part: Part) -> Cost:
        return self.node if part.kind == "node" else self.call


def measured_costs() -> Costs:
    """The cost of timing calls here, in the best of some rounds: some 20 ms."""
    return Costs(
        _measured(lambda watch: watch.node("", _nothing)),
        _measured(lambda watch: watch.call(Part("store", ""), _nothing)),
    )


def _nothing(key: object, value: object, timestamp: int) -> None:
    pass


def _measured(timing: Callable[[Stopwatch], Callable[[object, object, int], object]]) -> Cost:
    rounds: list[tuple[float, float, float]] = []
    for _ in range(ROUNDS):
        watch = Stopwatch()
        timed = timing(watch)
        began = perf_counter_ns()
        for _ in range(CALLS):
            _nothing(None, None, 0)
        bare_ns = perf_counter_ns() - began
        for _ in range(CALLS):
            timed(None, None, 0)
        all_ns = perf_counter_ns() - began - bare_ns
        within_ns = sum(spent.ns for spent in watch.edges().values())
        rounds.append((bare_ns / CALLS, within_ns / CALLS, all_ns / CALLS))
    bare, within, both = (min(column) for column in zip(*rounds, strict=True))
    within = max(0.0, within - bare)
    return Cost(within, max(0.0, both - bare - within))


class Timings:
    """The times of a profile, by part."""

    def __init__(self, edges: Edges, costs: Costs = Costs()) -> None:  # noqa: B008
        self._costs = costs
        self._into: dict[Part, dict[Part | None, Spent]] = {}
        self._out: dict[Part | None, dict[Part, Spent]] = {}
        self._totals: dict[Part, float] = {}
        for (caller, part), spent in edges.items():
            if caller != part:  # a call within a call: its time is in the outer one's
                self._into.setdefault(part, {})[caller] = spent
                self._out.setdefault(caller, {})[part] = spent

    @property
    def parts(self) -> Mapping[Part, object]:
        """All parts that were called."""
        return self._into

    def called_by(self, caller: Part | None) -> list[Part]:
        """The parts that it called."""
        return [*self._out.get(caller, ())]

    def given(self, part: Part) -> Spent:
        """All calls of it."""
        return _sum(self._into.get(part, {}).values())

    def _made(self, part: Part) -> Spent:
        return _sum(self._out.get(part, {}).values())

    def own_ns(self, part: Part) -> float:
        """Its time, without that of the parts that it called."""
        given, made = self.given(part), self._out.get(part, {})
        around = sum(spent.calls * self._costs.of(callee).around for callee, spent in made.items())
        return max(0.0, given.ns - _sum(made.values()).ns - given.calls * self._costs.of(part).within - around)

    def total_ns(self, part: Part) -> float:
        """Its time, with that of the parts that it called. A part that several call is shared out by their times."""
        if part not in self._totals:
            below = sum(self.total_ns(callee) * share for callee, share in self._shares(part))
            self._totals[part] = self.own_ns(part) + below
        return self._totals[part]

    def _shares(self, caller: Part | None) -> Iterator[tuple[Part, float]]:
        for callee, spent in self._out.get(caller, {}).items():
            all_ns = self.given(callee).ns
            yield callee, spent.ns / all_ns if all_ns else 0.0

    def on_cpu(self, part: Part) -> float | None:
        """The part of its own time in which its thread was on a CPU, 0 to 1; None when too little was looked at."""
        given, made = self.given(part), self._made(part)
        watched = given.watched_ns - made.watched_ns
        if watched < LEAST_WATCHED_NS:
            return None
        return min(1.0, max(0.0, (given.cpu_ns - made.cpu_ns) / watched))

    @cached_property
    def all_ns(self) -> float:
        return sum(map(self.own_ns, self._into))

    @property
    def cpu_ns(self) -> int:
        """The CPU time of the outermost calls, where it was taken of each."""
        return sum(spent.cpu_ns for spent in self._out.get(None, {}).values())

    @property
    def cost_ns(self) -> float:
        """What the profile itself has taken, about; not in the other times."""
        return sum(self.given(part).calls * sum(self._costs.of(part)) for part in self._into)

    def stacks(self) -> Iterator[str]:
        """A line per stack, in us: `caller;called 123`, as flamegraph.pl and speedscope read them."""
        for root, share in self._shares(None):
            yield from self._stacks(root, share, ())

    def _stacks(self, part: Part, share: float, above: tuple[str, ...]) -> Iterator[str]:
        stack = (*above, text(part))
        us = round(self.own_ns(part) * share / 1000)
        if us:
            yield f"{';'.join(stack)} {us}"
        for callee, part_of in self._shares(part):
            yield from self._stacks(callee, share * part_of, stack)


def text(part: Part) -> str:
    """A part, in words."""
    match part.kind:
        case "punctuation":
            return f"{part.name}: punctuation"
        case "serde":
            return f"{part.name}: {part.call} deserialised"
        case "store":
            return f"{part.name}.{part.call}"
        case _:
            return part.name


def _sum(spent: Iterable[Spent]) -> Spent:
    found = Spent()
    for one in spent:
        found = found.plus(one)
    return found
