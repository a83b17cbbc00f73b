"""`Timings` computes two times for each part of a profile: the part's own time, and its time with everything it called.

*Guarantees*: the own times of all parts add up to the whole time. The time that the profile itself took, as measured at
its start, is subtracted.
*Assumes*: no part of a task calls itself through another part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from time import perf_counter_ns
from typing import NamedTuple

from milestones.common.task.profile import Edges, Part, Spent, Stopwatch

LEAST_WATCHED_NS = 1_000_000
"""If CPU time was measured for less than this, it says nothing about the rest of the part's time."""

ROUNDS, CALLS = 20, 500


class Cost(NamedTuple):
    """The time (ns) that timing one call takes: `within` lies between the two readings of the clock, `around` outside.
    """

    within: float = 0.0
    around: float = 0.0


class Costs(NamedTuple):
    """The cost of timing a node's call, and that of timing any other call."""

    node: Cost = Cost()
    call: Cost = Cost()

    def of(self, part: Part) -> Cost:
        return self.node if part.kind == "node" else self.call


def measured_costs() -> Costs:
    """Measure the cost of timing calls on this machine, as the best of several rounds. Takes about 20 ms."""
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
            if caller != part:  # a call within a call of the same part: its time is in the outer call's
                self._into.setdefault(part, {})[caller] = spent
                self._out.setdefault(caller, {})[part] = spent

    @property
    def parts(self) -> Mapping[Part, object]:
        """All parts that were called."""
        return self._into

    def called_by(self, caller: Part | None) -> list[Part]:
        """Return the parts that `caller` called."""
        return [*self._out.get(caller, ())]

    def given(self, part: Part) -> Spent:
        """Return the sum of all calls of the part."""
        return _sum(self._into.get(part, {}).values())

    def _made(self, part: Part) -> Spent:
        return _sum(self._out.get(part, {}).values())

    def own_ns(self, part: Part) -> float:
        """Return the part's time without that of the parts it called."""
        given, made = self.given(part), self._out.get(part, {})
        around = sum(spent.calls * self._costs.of(callee).around for callee, spent in made.items())
        return max(0.0, given.ns - _sum(made.values()).ns - given.calls * self._costs.of(part).within - around)

    def total_ns(self, part: Part) -> float:
        """Return the part's time with that of the parts it called. If several parts call the same one, its time is
        divided among them in proportion."""
        if part not in self._totals:
            below = sum(self.total_ns(callee) * share for callee, share in self._shares(part))
            self._totals[part] = self.own_ns(part) + below
        return self._totals[part]

    def _shares(self, caller: Part | None) -> Iterator[tuple[Part, float]]:
        for callee, spent in self._out.get(caller, {}).items():
            all_ns = self.given(callee).ns
            yield callee, spent.ns / all_ns if all_ns else 0.0

    def on_cpu(self, part: Part) -> float | None:
        """Return the share (0 to 1) of the part's own time in which its thread was on a CPU. None if too little was
        measured."""
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
        """The CPU time of the outermost calls for which it was measured."""
        return sum(spent.cpu_ns for spent in self._out.get(None, {}).values())

    @property
    def cost_ns(self) -> float:
        """The approximate time that the profile itself took. The other times don't contain it."""
        return sum(self.given(part).calls * sum(self._costs.of(part)) for part in self._into)

    def stacks(self) -> Iterator[str]:
        """Yield a line per stack, in us: `caller;called 123`. flamegraph.pl and speedscope can read these lines."""
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
    """Return the name of a part for people."""
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
