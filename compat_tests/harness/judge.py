"""The judgement over an application that has ended: everything that Kafka, its disks and its processes say.

*Guarantees*: each check of `oracles/` that applies is made, and all findings are reported together.
*Assumes*: all instances have ended, all inputs were processed before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from compat_tests.harness.stores import dumps
from compat_tests.harness.world import World
from compat_tests.oracles import changelog, group, logged, offsets, outputs, thinned, transactions
from compat_tests.oracles.findings import Finding, Findings, hold
from compat_tests.oracles.flows import Entry, Flow, expected
from compat_tests.oracles.rows import Place, Row
from compat_tests.oracles.zombies import Asleep, fallen, judge_outputs, without

LEFT = ("a producer didn't close within", "a producer hangs in a transactional call and is left behind")
"""What the log says of a client that is left to itself: librdkafka's calls don't all keep their time."""


def judge(
    world: World,
    *flows: Flow,
    crashed: bool = False,
    zombies: bool = False,
    repartitions: Sequence[str] = (),
    poisoned: frozenset[bytes] = frozenset(),
    asleep: Collection[Asleep] = (),
    scratch: bool = False,
    timed_out: bool = False,
) -> None:
    """Hold the application to what is promised. `crashed`: a process died or lost its membership, so that at least
    once may repeat. `zombies`: one that was given up came back, as in `outputs.at_least_once`: what it still writes
    into a changelog is in no other's store; `asleep` says what it had in work, so that counts are judged all the same
    (see `zombies.py`). `poisoned`: values of inputs that a handler was to skip. `scratch`: an attempt on Spark that
    found its task's disk taken restored on another one, which is gone: none need have all of a changelog. `timed_out`:
    a transaction was held until it was too old."""
    exact = world.exactly_once or not crashed
    findings: Findings = []
    for flow in flows:
        findings += judge_flow(
            world, flow, exact=exact, zombies=zombies, poisoned=poisoned, asleep=asleep, scratch=scratch
        )
    findings += judge_offsets(world, repartitions)
    findings += judge_history(world) + judge_transactions(world, exact=not crashed and not timed_out)
    findings += [found for one in world.instances for found in one.disk_use()]
    hold(findings + judge_leftovers(world, exact=not crashed))


def end_and_judge(world: World, *flows: Flow, repartitions: Sequence[str] = (), **judged: Any) -> None:
    """Wait until all inputs and `repartitions` are processed, end all instances at once, and `judge`."""
    world.finish(*world.instances, repartitions=repartitions)
    judge(world, *flows, repartitions=repartitions, **judged)


def judge_leftovers(world: World, *, exact: bool) -> Findings:
    """What those still had that have ended cleanly. Where something happened to them, a client whose call hangs is left
    to itself, with all that it holds: nothing is said about an instance that says so."""
    ended = [one for one in world.instances if one.exit_code == 0]
    judged = [one for one in ended if exact or not any(text in one.log() for text in LEFT)]
    return [found for one in judged for found in one.leftovers()]


def judge_history(world: World) -> Findings:
    """What the broker wrote down about the group; nothing at all is no history of an application that did anything."""
    past = world.history()
    findings = [] if past.generations else [Finding("no-history", f"no generation of {world.application_id} is known")]
    if not past.commits and any(feed.rows for feed in world.feeds.values()):
        findings.append(Finding("no-history", f"no commit of {world.application_id} is known"))
    findings += offsets.never_back(past.commits) + group.one_owner(past.generations)
    return findings + group.copies_apart(past.generations)


def judge_transactions(world: World, *, exact: bool) -> Findings:
    """Instances that have ended cleanly leave none open; and where nothing happened to anybody, none times out."""
    if not world.exactly_once:
        return []
    past = world.transactions()
    clean = all(one.exit_code == 0 for one in world.instances if one.starts)
    findings = transactions.none_timed_out(past) if exact else []
    return findings + (transactions.none_left_open(past) if clean else [])


def judge_flow(
    world: World,
    flow: Flow,
    *,
    exact: bool,
    zombies: bool,
    poisoned: frozenset[bytes],
    asleep: Collection[Asleep] = (),
    scratch: bool = False,
) -> Findings:
    """Outputs, then the changelog and the stores behind them."""
    inputs = [row for source in flow.sources for row in world.feeds[source].rows if row.value not in poisoned]
    topic = world.topic(flow.output)
    found, partitions = world.cluster.read(topic), world.cluster.topics()[topic]
    if asleep and not exact:
        return judge_after_sleep(world, flow, inputs, found, partitions, asleep)
    if flow.thinned:
        findings = thinned.thinned(flow, inputs, found, partitions, exact=exact, zombies=zombies)
    elif exact:
        findings = outputs.exact(flow, inputs, found, partitions)
    else:
        findings = outputs.at_least_once(flow, inputs, found, partitions, zombies=zombies)
    if flow.store is not None and not findings and (exact or not zombies):
        table = table_of(flow, inputs, found) if exact else None
        least = {} if exact else outputs.least(flow, expected(flow, inputs))
        findings += judge_store(world, flow.store, table, least=least, scratch=scratch, undisturbed=exact)
        if exact and flow.step and not (flow.thinned or flow.rows):
            states, again = outputs.states(flow, inputs, found), not world.exactly_once
            findings += logged.each_was_a_state(_logged(world, flow.store), states, again=again)
    return findings


def judge_after_sleep(
    world: World, flow: Flow, inputs: Sequence[Row], found: Sequence[Row], partitions: int, asleep: Collection[Asleep]
) -> Findings:
    """At least once, a count whose owner was given up and came back: see `zombies.py`."""
    assert flow.store is not None
    spoilt = frozenset(fallen(found) | fallen(world.cluster.read(world.topic(f"{flow.store}-changelog"))))
    findings = judge_outputs(flow, inputs, found, partitions, asleep, spoilt)
    least = outputs.least(flow, expected(flow, inputs))
    sound = {key: count for key, count in least.items() if key not in spoilt}
    return findings or judge_store(world, flow.store, None, spoilt, least=sound)


def table_of(flow: Flow, inputs: Sequence[Row], found: Sequence[Row]) -> Mapping[bytes, Entry] | None:
    """What the state must end as, where that is known; `found`: the outputs, which are exact."""
    return thinned.table(flow, inputs) if flow.thinned else outputs.table(flow, inputs, found)


def judge_store(
    world: World,
    store: str,
    table: Mapping[bytes, Entry] | None,
    spoilt: frozenset[bytes] = frozenset(),
    *,
    least: Mapping[bytes, int] = MappingProxyType({}),
    scratch: bool = False,
    undisturbed: bool = False,
    form: changelog.Form = changelog.TIMED,
) -> Findings:
    """The changelog against the table (when it is known) or the `least` counts, every store on every disk against the
    changelog, and for each task at least one store that has all of it, but for `scratch`. `spoilt`: keys that nothing
    is said about. `undisturbed`: nothing was rolled back, or nothing is seen of it."""
    found, rows = judge_disks(world, store, spoilt, form), _logged(world, store, spoilt)
    if table is not None:
        found += changelog.changelog_equals_table(rows, table)
    found += changelog.counts_at_least(rows, least)
    if world.logs_at_commits and not form.history:
        found += judge_commits_of(world, rows, undisturbed=undisturbed)
    if scratch:
        return found
    by_task: defaultdict[int, list[changelog.StoreDump]] = defaultdict(list)
    for dump in _dumps(world, store):
        by_task[_partition(dump)].append(dump)
    for place in world.cluster.places([world.topic(f"{store}-changelog")]):
        own = [row for row in rows if row.place == place]
        found += changelog.somebody_has_it_all(place, by_task[place.partition], own)
    return found


def judge_commits_of(world: World, changelog: Sequence[Row], *, undisturbed: bool) -> Findings:
    """Of an application that logs at commits: a key once per commit."""
    if world.exactly_once:
        return logged.once_per_transaction(changelog)
    past = world.history()
    return logged.once_per_commit(changelog, past.commits, len(past.generations)) if undisturbed else []


def judge_disks(
    world: World, store: str, spoilt: frozenset[bytes] = frozenset(), form: changelog.Form = changelog.TIMED
) -> Findings:
    """Every store on every disk, of active tasks, of standbys or left behind, against its changelog: after any crash
    too."""
    topic = world.topic(f"{store}-changelog")
    rows, ends = _logged(world, store, spoilt), world.cluster.ends(world.cluster.places([topic]))
    committed = {(row.place, row.offset) for row in rows}
    everything = world.cluster.read(topic, uncommitted=True) if world.exactly_once else []
    aborted = [row for row in everything if (row.place, row.offset) not in committed]
    findings: Findings = []
    for dump in _dumps(world, store):
        place = Place(topic, _partition(dump))
        own, dropped = ([row for row in some if row.place == place] for some in (rows, aborted))
        findings += changelog.store_equals_changelog(without(spoilt, dump), own, ends[place], dropped, form)
    return findings


def _logged(world: World, store: str, spoilt: frozenset[bytes] = frozenset()) -> list[Row]:
    return [row for row in world.cluster.read(world.topic(f"{store}-changelog")) if row.key not in spoilt]


def _partition(dump: changelog.StoreDump) -> int:
    return int(dump.task.partition("_")[2])


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
    for row in world.cluster.read(*internal) if internal else ():
        by_topic[row.topic].append(row)
    for topic in internal:
        ends = world.cluster.ends(world.cluster.places([topic]))
        findings += offsets.at_the_end(committed, ends, by_topic[topic])
    return findings
