"""Outputs against the inputs: nothing lost, nothing twice, nothing out of order, every value right.

The order in which several upstream partitions are merged is free, so values that depend on it are judged by replaying
the inputs in the order that the output itself shows, once that order was found to be a legal one.

| kind | what was found |
|---|---|
| unknown | an output that no input accounts for |
| lost | an input whose output isn't there |
| duplicate | an output that is there more than once |
| misplaced | an output in another partition than its key's |
| wrong-key | an output with another key than its input gives |
| order | outputs of one key and upstream partition that are not in their inputs' order |
| wrong-value | another value than the reference interpreter's |
| too-low | at least once: a last count below the number of inputs |
| wrong-timestamp | another timestamp than the reference interpreter's |

*Guarantees*: pure.
*Assumes*: the topic was read to its end, under read committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.flows import Entry, Expected, Flow, Interpreter, expected, states_in_order, table_in_order
from compat_tests.oracles.placement import partition_of
from compat_tests.oracles.rows import Origin, Place, Row, origin_of

COUNT_BYTES = 8


def exact(flow: Flow, inputs: Iterable[Row], outputs: Sequence[Row], partitions: int) -> Findings:
    """Exactly once: every output once, in a legal order, with the right value. `partitions`: of the output topic."""
    wanted = expected(flow, inputs)
    known, findings = attributed(wanted, outputs)
    findings += _multiplicity(wanted, known, duplicates_allowed=False)
    findings += keys_and_places(wanted, known, partitions)
    findings += _order(wanted, known, lambda highest, comes: comes > highest)
    if not findings:
        findings += _values(flow, wanted, known)
    return findings


def at_least_once(
    flow: Flow, inputs: Iterable[Row], outputs: Sequence[Row], partitions: int, *, zombies: bool = False
) -> Findings:
    """At least once: every output is there, and an upstream partition is only ever repeated from an earlier offset,
    never skipped forward. Values of flows without state are exact; a count may be too high, never too low.

    `zombies`: an instance was given up and came back; nothing fences what it still sends, a changelog's old values
    among it, so nothing is said about the values of flows with state.
    """
    wanted = expected(flow, inputs)
    known, findings = attributed(wanted, outputs)
    findings += _multiplicity(wanted, known, duplicates_allowed=True)
    findings += keys_and_places(wanted, known, partitions)
    if not flow.kept_back:
        findings += _order(wanted, known, lambda highest, comes: comes <= highest + 1)
    if not findings and flow.step is None:
        findings += _values(flow, wanted, known)
    elif not findings and not zombies and flow.counts:
        findings += _not_too_low(flow, wanted, known)
    return findings


def in_order(outputs: Sequence[Row], order: Mapping[Place, Sequence[Origin]]) -> Findings:
    """The whole order of each output partition, for topologies that leave none to chance."""
    seen: defaultdict[Place, list[Origin | None]] = defaultdict(list)
    for row in outputs:
        seen[row.place].append(origin_of(row))
    findings = []
    for place in sorted(order.keys() | seen.keys()):
        want, have = list(order.get(place, ())), seen[place]
        for at, (one, other) in enumerate(zip(want, have, strict=False)):
            if one != other:
                findings.append(Finding("order", f"output {at} of {place} should come from {one}, comes from {other}"))
                break
        else:
            if len(want) != len(have):
                findings.append(Finding("order", f"{place} should have {len(want)} outputs, has {len(have)}"))
    return findings


def table(flow: Flow, inputs: Iterable[Row], outputs: Sequence[Row]) -> Mapping[bytes, Entry]:
    """The table that the state must be in after `outputs`, which were found exact."""
    interpreter = Interpreter(flow)
    for record in _in_their_order(flow, inputs, outputs):
        interpreter.process(record)
    return interpreter.table()


def states(flow: Flow, inputs: Iterable[Row], outputs: Sequence[Row]) -> dict[bytes, list[Entry | None]]:
    """All that each key's row has been, by `outputs` that were found exact."""
    return states_in_order(flow, _in_their_order(flow, inputs, outputs))


def _in_their_order(flow: Flow, inputs: Iterable[Row], outputs: Sequence[Row]) -> Iterator[Expected]:
    wanted = expected(flow, inputs)
    for row in sorted(outputs, key=lambda row: (row.partition, row.offset)):
        origin = origin_of(row)
        assert origin is not None
        yield wanted[origin]


Known = list[tuple[Origin, Row]]


def attributed(wanted: Mapping[Origin, Expected], outputs: Iterable[Row]) -> tuple[Known, Findings]:
    """The outputs that come from inputs, with their origins."""
    known: Known = []
    findings = []
    for row in outputs:
        origin = origin_of(row)
        if origin is None:
            findings.append(Finding("unknown", f"{row} has no origin: {row.headers!r:.100}"))
        elif origin not in wanted:
            findings.append(Finding("unknown", f"{row} says that it comes from {origin}, which gives no output"))
        else:
            known.append((origin, row))
    return known, findings


def _multiplicity(wanted: Mapping[Origin, Expected], known: Known, *, duplicates_allowed: bool) -> Findings:
    counts = Counter(origin for origin, _ in known)
    findings = [Finding("lost", f"the output of {origin} is missing") for origin in wanted if origin not in counts]
    if not duplicates_allowed:
        twice = {origin for origin, count in counts.items() if count > 1}
        where: defaultdict[Origin, list[str]] = defaultdict(list)
        for origin, row in known:
            if origin in twice:
                where[origin].append(f"{row.place}@{row.offset}")
        findings += [Finding("duplicate", f"{origin} is at {', '.join(at)}") for origin, at in where.items()]
    return findings


def keys_and_places(wanted: Mapping[Origin, Expected], known: Known, partitions: int) -> Iterator[Finding]:
    for origin, row in known:
        key = wanted[origin].key
        if row.key != key:
            yield Finding("wrong-key", f"{row} comes from {origin} and should have the key {key!r}")
        elif key is not None and row.partition != (right := partition_of(key, partitions)):
            yield Finding("misplaced", f"{row} belongs into partition {right} of {partitions}")


def _order(
    wanted: Mapping[Origin, Expected], known: Known, legal: Callable[[int, int], bool]
) -> Iterator[Finding]:
    """Within each key and upstream partition. `legal`: by the highest index so far, and the one that comes. The rows of
    one key are in one output partition, in offset order; rows without a key may be anywhere: nothing is said."""
    right: defaultdict[tuple[bytes | None, Place], list[tuple[int, int]]] = defaultdict(list)
    for origin in sorted(wanted):
        right[wanted[origin].key, origin.place].append((origin.offset, origin.ordinal))
    index = {lane: {at: number for number, at in enumerate(sequence)} for lane, sequence in right.items()}
    highest: dict[tuple[bytes | None, Place], int] = {}
    for origin, row in sorted(known, key=lambda item: (item[1].partition, item[1].offset)):
        lane = wanted[origin].key, origin.place
        if row.key is None:
            continue
        comes, before = index[lane][origin.offset, origin.ordinal], highest.get(lane, -1)
        if not legal(before, comes):
            last = right[lane][before] if before >= 0 else "nothing"
            yield Finding("order", f"{row} comes from {origin}, after {last} of the same key and partition")
        highest[lane] = max(before, comes)


def _values(flow: Flow, wanted: Mapping[Origin, Expected], known: Known) -> Iterator[Finding]:
    interpreter = Interpreter(flow)
    for origin, row in sorted(known, key=lambda item: (item[1].partition, item[1].offset)):
        value, timestamp = interpreter.process(wanted[origin])
        if row.value != value:
            yield Finding("wrong-value", f"{row} comes from {origin} and should have the value {value!r:.80}")
        elif row.timestamp != timestamp:
            yield Finding("wrong-timestamp", f"{row} has the timestamp {row.timestamp}, should have {timestamp}")


def least(flow: Flow, wanted: Mapping[Origin, Expected]) -> dict[bytes, int]:
    """What each count (8 bytes, big-endian) must end as at least: repeated records count again, none is forgotten."""
    table = table_in_order(flow, wanted) if flow.counts else {}
    return {key: int.from_bytes(entry.value) for key, entry in table.items() if len(entry.value) == COUNT_BYTES}


def _not_too_low(flow: Flow, wanted: Mapping[Origin, Expected], known: Known) -> Iterator[Finding]:
    last = {row.key: row for _, row in sorted(known, key=lambda item: (item[1].partition, item[1].offset))}
    for key, count in least(flow, wanted).items():
        if int.from_bytes(last[key].value or b"") < count:
            yield Finding("too-low", f"{last[key]} should be at least {count}")
