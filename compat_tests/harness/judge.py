"""The judgement over an application that has ended: everything that Kafka, its disks and its processes say.

*Guarantees*: each check of `oracles/` that applies is made, and all findings are reported together.
*Assumes*: all instances have ended, all inputs were processed before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from compat_tests.harness.stores import dumps
from compat_tests.harness.world import World
from compat_tests.oracles import changelog, group, offsets, outputs
from compat_tests.oracles.findings import Finding, Findings, hold
from compat_tests.oracles.flows import Entry, Flow
from compat_tests.oracles.rows import Place, Row


def judge(
    world: World,
    *flows: Flow,
    crashed: bool = False,
    zombies: bool = False,
    repartitions: Sequence[str] = (),
    poisoned: frozenset[bytes] = frozenset(),
) -> None:
    """Hold the application to what is promised. `crashed`: a process died or lost its membership, so that at least
    once may repeat. `zombies`: one that was given up came back, as in `outputs.at_least_once`: what it still writes
    into a changelog is in no other's store. `poisoned`: values of inputs that a handler was to skip."""
    exact = world.exactly_once or not crashed
    findings: Findings = []
    for flow in flows:
        findings += judge_flow(world, flow, exact=exact, zombies=zombies, poisoned=poisoned)
    findings += judge_offsets(world, repartitions)
    past = world.history()
    findings += offsets.never_back(past.commits)
    findings += group.one_owner(past.generations)
    hold(findings)


def judge_flow(world: World, flow: Flow, *, exact: bool, zombies: bool, poisoned: frozenset[bytes]) -> Findings:
    """Outputs, then the changelog and the stores behind them."""
    inputs = [row for source in flow.sources for row in world.feeds[source].rows if row.value not in poisoned]
    topic = world.topic(flow.output)
    found, partitions = world.cluster.read([topic]), world.cluster.topics()[topic]
    if exact:
        findings = outputs.exact(flow, inputs, found, partitions)
    else:
        findings = outputs.at_least_once(flow, inputs, found, partitions, zombies=zombies)
    if flow.store is not None and not findings and (exact or not zombies):
        table = outputs.table(flow, inputs, found) if exact else None
        findings += judge_store(world, flow.store, table)
    return findings


def judge_store(world: World, store: str, table: Mapping[bytes, Entry] | None) -> Findings:
    """The changelog against the table (when it is known), every store on every disk against the changelog, and for
    each task at least one store that has all of it."""
    topic = world.topic(f"{store}-changelog")
    rows = world.cluster.read([topic])
    places = world.cluster.places([topic])
    ends = world.cluster.ends(places)
    findings = changelog.changelog_equals_table(rows, table) if table is not None else []
    by_partition = {place: [row for row in rows if row.place == place] for place in places}
    lacking: dict[Place, Findings] = {}
    for dump in _dumps(world, store):
        place = Place(topic, int(dump.task.partition("_")[2]))
        findings += changelog.store_equals_changelog(dump, by_partition[place], ends[place])
        behind = changelog.store_is_complete(dump, by_partition[place])
        if lacking.get(place) != []:
            lacking[place] = behind
    for place, its_rows in by_partition.items():
        nowhere = [Finding("missing", f"no instance has store {store} of {place}")] if its_rows else []
        findings += lacking.get(place, nowhere)
    return findings


def _dumps(world: World, store: str) -> Iterable[changelog.StoreDump]:
    for instance in world.instances:
        for dump in dumps(instance.state_dir, world.application_id, world.directory):
            if dump.store == store:
                yield dump


def judge_offsets(world: World, repartitions: Sequence[str]) -> Findings:
    """Every input at its very end; every repartition topic with nothing but control records left."""
    committed = world.committed()
    by_topic: defaultdict[str, list[Row]] = defaultdict(list)
    findings: Findings = []
    for feed in world.feeds.values():
        findings += offsets.exactly_the_end(committed, world.cluster.ends(world.cluster.places([feed.topic])))
    internal = [world.topic(suffix) for suffix in repartitions]
    for row in world.cluster.read(internal) if internal else ():
        by_topic[row.topic].append(row)
    for topic in internal:
        ends = world.cluster.ends(world.cluster.places([topic]))
        findings += offsets.at_the_end(committed, ends, by_topic[topic])
    return findings
