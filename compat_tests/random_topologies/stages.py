"""One case on two stages: what they committed must be the same, wherever chance has no say.

| kind | what was found |
|---|---|
| missing | an output of the first stage isn't there in the second |
| extra | an output of the second stage isn't there in the first |
| differs | an output, or what a key ends with, isn't the same |

Chance says in what order a task merges several upstream partitions. So values and timestamps are compared for keys
whose inputs come from one partition, and for flows without state; of counts, what each key ends with, always. Where a
cache leaves out outputs of either stage, only what keys end with is compared.

*Guarantees*: either stage may be `INTERPRETER`: the reference interpreter in its place.
*Assumes*: nothing was repeated: exactly once, or a case in which nobody dies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from compat_tests.harness.brokers import Broker
from compat_tests.harness.emitting import thins_out
from compat_tests.harness.world import World, new_world
from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.flows import Flow, Interpreter, expected
from compat_tests.oracles.rows import Origin, Place, Row, origin_of
from compat_tests.random_topologies.cases import Case
from compat_tests.random_topologies.interpretation import flows
from compat_tests.random_topologies.plans import Plan, need
from compat_tests.random_topologies.running import run_in

INTERPRETER = "interpreter"


class Outcome(NamedTuple):
    """One output, apart from where it lies."""

    key: bytes | None
    value: bytes | None
    timestamp: int


Committed = dict[str, dict[Origin, Outcome]]
"""By output topic, in the order of its partitions. No names have the application's prefix."""


def compare(broker: Broker, case: Case, one: str, other: str, directory: Path) -> Findings:
    """Run the case on two stages and compare what they committed."""
    need(one != INTERPRETER, "the first stage is a real one: it has the inputs")
    need(case.guarantee == "exactly_once_v2" or not case.repeats, "at least once repeats outputs after these faults")
    inputs, first = run_on(broker, case, one, directory / "one")
    if other == INTERPRETER:
        second = interpreted(case.plan, inputs)
    else:
        again, second = run_on(broker, case, other, directory / "other")
        assert again == inputs, "a case decides its inputs"
    stages = [stage for stage in (one, other) if stage != INTERPRETER]
    return differences(case, first, second, thinned=thins_out(case.cache, *stages))


def run_on(broker: Broker, case: Case, stage: str, directory: Path) -> tuple[list[Row], Committed]:
    """Inputs, and what the stage made of them; judged by the oracles too."""
    directory.mkdir(parents=True)
    with new_world(broker, f"random-{case.seed}", stage, case.guarantee, case.seed, directory) as world:
        run_in(world, case)
        inputs = [plain(world, row)._replace(headers=()) for feed in world.feeds.values() for row in feed.rows]
        return sorted(inputs), committed(world, case.plan)


def committed(world: World, plan: Plan) -> Committed:
    """What lies in the output topics."""
    found: Committed = {}
    for flow in flows(plan):
        rows = [plain(world, row) for row in world.cluster.read(world.topic(flow.output))]
        origins = [(origin_of(row), row) for row in rows]
        found[flow.output] = {
            origin._replace(topic=without_prefix(world, origin.topic)): Outcome(row.key, row.value, row.timestamp)
            for origin, row in origins
            if origin is not None
        }
    return found


def plain(world: World, row: Row) -> Row:
    """With the name of its topic as plans have it."""
    return row._replace(topic=without_prefix(world, row.topic))


def without_prefix(world: World, topic: str) -> str:
    return topic.removeprefix(f"{world.application_id}-")


def interpreted(plan: Plan, inputs: Iterable[Row]) -> Committed:
    """What the reference interpreter makes of the inputs, partition after partition."""
    rows, found = list(inputs), Committed()
    for flow in flows(plan):
        interpreter = Interpreter(flow)
        wanted = expected(flow, [row for row in rows if row.topic in flow.sources])
        found[flow.output] = {
            origin: Outcome(wanted[origin].key, *interpreter.process(wanted[origin])) for origin in sorted(wanted)
        }
    return found


def differences(case: Case, one: Committed, other: Committed, *, thinned: bool = False) -> Findings:
    """What isn't the same, output by output. `thinned`: a cache leaves out some of either's."""
    findings: Findings = []
    for flow in flows(case.plan, thinned):
        first, second = one[flow.output], other[flow.output]
        if not flow.thinned:
            findings += _presence(flow, first, second)
            findings += _each(flow, first, second)
        if flow.step is not None:
            findings += _ends(flow, first, second)
    return findings


_Outcomes = Mapping[Origin, Outcome]


def _presence(flow: Flow, one: _Outcomes, other: _Outcomes) -> Iterator[Finding]:
    for kind, has, lacks in (("missing", one, other), ("extra", other, one)):
        yield from (Finding(kind, f"{flow.output}: {at}, {has[at]}") for at in sorted(has.keys() - lacks.keys()))


def _each(flow: Flow, one: _Outcomes, other: _Outcomes) -> Iterator[Finding]:
    sure = _sure(one, other)
    for origin in sorted(one.keys() & other.keys()):
        first, second = one[origin], other[origin]
        same = first == second if flow.step is None or first.key in sure else first.key == second.key
        if not same:
            yield Finding("differs", f"{flow.output}: {origin} gives {first} and {second}")


def _ends(flow: Flow, one: _Outcomes, other: _Outcomes) -> Iterator[Finding]:
    sure, first, second = _sure(one, other), _last(one), _last(other)
    for key in sorted(first.keys() | second.keys()):
        ends = first.get(key), second.get(key)
        gone = all(end is None or end.value is None for end in ends)
        if (flow.counts or key in sure) and ends[0] != ends[1] and not gone:
            yield Finding("differs", f"{flow.output}: key {key!r:.60} ends with {ends[0]} and {ends[1]}")


def _sure(*outcomes: _Outcomes) -> set[bytes | None]:
    """Keys whose inputs come from one partition, as far as the outputs show it."""
    places: defaultdict[bytes | None, set[Place]] = defaultdict(set)
    for some in outcomes:
        for origin, outcome in some.items():
            places[outcome.key].add(origin.place)
    return {key for key, its in places.items() if len(its) == 1}


def _last(outcomes: _Outcomes) -> dict[bytes, Outcome]:
    """By key; records without one have no end."""
    return {outcome.key: outcome for outcome in outcomes.values() if outcome.key is not None}
