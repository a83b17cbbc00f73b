"""Inputs for any topology under test, and what is known of what it must do.

*Guarantees*: topics follow from the topology alone, so that a new one needs nothing here to be compared; `FLOWS` adds
what the oracles can judge by.
*Assumes*: values and keys are text, topics are named after the application.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Any

from compat_tests.apps.topologies import named
from compat_tests.cases import flows
from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.oracles.flows import Flow
from compat_tests.random_topologies.interpretation import flows as flows_of_plan
from compat_tests.random_topologies.plans import Path, Plan
from milestones import StreamsBuilder

PARTITIONS = {"in": 3, "other": 3, "asks": 3}
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "the", "end"]

FLOWS: Mapping[str, tuple[Flow, ...]] = {
    "copy": (flows.COPY,),
    "count": (flows.COUNT,),
    "count-in-memory": (flows.COUNT_IN_MEMORY,),
    "count-by-value": (flows.COUNT_BY_VALUE,),
    "words": (flows.WORDS,),
    "two": (flows.COPY, flows.COUNT_OF_OTHER),
    "several": (flows.SEVERAL,),
    "fragile": (flows.COPY, flows.FRAGILE_COUNT),
    "unwritable": (flows.COPY,),
    "slots": (flows.SLOTS,),
}
"""By topology; one that isn't here is only compared with live stages."""

Alike = Callable[[Sequence[Any], Sequence[Any]], bool]
"""Whether two executions wrote the same of a key."""

CLOCKED: Mapping[tuple[str, str], Alike] = {
    ("later", "out"): lambda one, other: all(map(eq, one, other)),  # one has come further
    ("ticks", "ticks"): lambda _, __: True,
    ("foreign-keys", "matched"): lambda _, __: True,  # which of the former rows stay: docs/table-joins.md
    ("lookups", "out"): lambda one, other: len(one) == len(other),  # a row may come before a record or after it
}
"""By topology and output, where the clock decides: how much there is (a batch may end before it strikes), or all."""

LAST_VALUES: frozenset[tuple[str, str]] = frozenset({
    ("foreign-keys", "out"),  # tasks that write to one another take turns by chance
    ("upserts", "out"), ("upserts", "last"),  # thinned from M5 on
})  # fmt: skip
"""Topologies and outputs of which only the last value of a key is sure."""

CHOSEN: Mapping[str, frozenset[str]] = {"elsewhere": frozenset({"app-out"})}
"""By topology, the topics that its sinks choose by the record."""

BY_PATTERN: Mapping[str, frozenset[str]] = {"count-by-pattern": frozenset({"in"})}
"""By topology, the suffixes of topics that its pattern matches: a topology that isn't bound to any tells none."""


@dataclass(frozen=True)
class Shape:
    """The topics of a topology, by their suffixes: `inputs` and `outputs`, and its repartition topics. `merges`: tasks
    read several topics. `plan`: of a random one."""

    topology: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    repartitions: tuple[str, ...]
    flows: tuple[Flow, ...]
    merges: bool
    plan: Plan | None = None

    def partitions(self, suffix: str) -> int:
        """Of an input. A plan says how many: what it joins must have as many."""
        if self.plan is not None:
            return self.plan.sources[int(suffix.removeprefix("in"))]
        return PARTITIONS.get(suffix, 2)

    @property
    def shaped(self) -> tuple[int, ...]:
        """The numbers of the plan's paths that look at time or at another source: they have definitions to be held to,
        as chance has a say in what they put out."""
        return () if self.plan is None else tuple(at for at, path in enumerate(self.plan.paths) if path.shaped)

    @property
    def compared(self) -> tuple[str, ...]:
        """The outputs that any two executions write alike: not those of texts that are joined in the order in which a
        task merges several partitions."""
        paths = () if self.plan is None else self.plan.paths
        chance = {f"out{number}" for number, path in enumerate(paths) if path.shaped or _joins_by_chance(path)}
        return tuple(topic for topic in self.outputs if topic not in chance)

    def alike(self, output: str) -> Alike:
        return CLOCKED.get((self.topology, output), eq)


def _joins_by_chance(path: Path) -> bool:
    return path.end == "join-texts" and (path.again > 0 or path.rekeyed or len(path.sources) > 1)


def shape_of(topology: str) -> Shape:
    """Of a name that `apps.topologies` knows."""
    made = named(topology)("app")
    topology_ = made.build() if isinstance(made, StreamsBuilder) else made
    subs, everyone = topology_.resolve("app"), topology_.resolve_global()
    owned = {topic for sub in subs for topic in sub.repartition_topics}
    sources = {topic for sub in subs for topic in sub.source_topics} - owned | BY_PATTERN.get(topology, frozenset())
    sources |= set() if everyone is None else set(everyone.source_topics)
    sinks = {topic for sub in subs for topic in sub.sink_topics} - owned | CHOSEN.get(topology, frozenset())
    text = topology.removeprefix("plan:")
    plan = None if text == topology else Plan.parse(text)
    known = FLOWS.get(topology, ()) if plan is None else tuple(flows_of_plan(plan))
    inputs, outputs, repartitions = (
        tuple(sorted(topic.removeprefix("app-") for topic in topics)) for topics in (sources, sinks, owned)
    )
    merges = any(len(sub.source_topics) > 1 for sub in subs)
    return Shape(topology, inputs, outputs, repartitions, known, merges, plan)


def records(shape: Shape, rng: random.Random, count: int) -> dict[str, list[Sent]]:
    """Records for each input, one millisecond apart over all of them: few keys, values of some words. Of today where
    windows may be restored: brokers forget older ones."""
    first = FIRST_TIMESTAMP if not shape.shaped else int(time.time() * 1_000) - count
    found: dict[str, list[Sent]] = {suffix: [] for suffix in shape.inputs}
    for number in range(count):
        suffix = rng.choice(shape.inputs)
        key = b"k%d" % rng.randrange(40)
        value = " ".join(rng.choices(WORDS, k=rng.randint(1, 4))).encode()
        found[suffix].append(Sent(key, value, first + number))
    return found
