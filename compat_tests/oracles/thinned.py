"""Outputs behind a cache, or of an upsert sink: only some of a key's changes, never a wrong one, always the last.

Which changes are left is chance, so what is judged is what is there: each output comes from an input, once, in order;
and what a key ends with. Values are judged where a key's inputs come from one partition, and so in a known order; a
count's last value always. What no input accounts for, and wrong keys and partitions, are found as in `outputs`.

| kind | what was found |
|---|---|
| lost | a key without an output, or whose last change isn't there |
| duplicate | an output that is there more than once |
| order | outputs of one key and upstream partition that are not in their inputs' order |
| wrong-value | another value or timestamp than the reference interpreter's |
| too-low | a last count below the number of inputs |

*Guarantees*: pure.
*Assumes*: the topic was read to its end, under read committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.flows import Entry, Expected, Flow, Interpreter, expected, table_in_order
from compat_tests.oracles.outputs import attributed, keys_and_places
from compat_tests.oracles.rows import Origin, Place, Row


def thinned(
    flow: Flow,
    inputs: Iterable[Row],
    outputs: Sequence[Row],
    partitions: int,
    *,
    exact: bool = True,
    zombies: bool = False,
) -> Findings:
    """`exact`: nothing was repeated. Else only what a key ends with is judged, and of values only counts, which may be
    too high. `zombies`: as in `outputs.at_least_once`; what a key ends with may be old then."""
    wanted = expected(flow, inputs)
    known, findings = attributed(wanted, outputs)
    by_key: defaultdict[bytes | None, list[tuple[Origin, Row]]] = defaultdict(list)
    for origin, row in sorted(known, key=lambda item: (item[1].partition, item[1].offset)):
        by_key[row.key].append((origin, row))
    findings += keys_and_places(wanted, known, partitions)
    if exact:
        findings += _once_in_order(by_key)
    return findings if findings or zombies else [*_ends(flow, wanted, by_key, exact)]


def table(flow: Flow, inputs: Iterable[Row]) -> Mapping[bytes, Entry] | None:
    """What the state must end as; None where that depends on the order in which partitions were merged."""
    wanted = expected(flow, inputs)
    if not flow.counts and any(len(lanes) > 1 for lanes in _lanes(wanted).values()):
        return None
    return table_in_order(flow, wanted)


def _lanes(wanted: Mapping[Origin, Expected]) -> dict[bytes | None, set[Place]]:
    lanes: defaultdict[bytes | None, set[Place]] = defaultdict(set)
    for origin, record in wanted.items():
        lanes[record.key].add(origin.place)
    return lanes


def _once_in_order(by_key: Mapping[bytes | None, list[tuple[Origin, Row]]]) -> Iterator[Finding]:
    for some in by_key.values():
        for origin, count in Counter(origin for origin, _ in some).items():
            if count > 1:
                yield Finding("duplicate", f"{origin} is there {count} times")
        highest: dict[Place, Origin] = {}
        for origin, row in some:
            if origin < highest.get(origin.place, origin):
                yield Finding("order", f"{row} comes from {origin}, after {highest[origin.place]}")
            highest[origin.place] = max(origin, highest.get(origin.place, origin))


def _ends(
    flow: Flow,
    wanted: Mapping[Origin, Expected],
    by_key: Mapping[bytes | None, list[tuple[Origin, Row]]],
    exact: bool,
) -> Iterator[Finding]:
    """What each key ends with. A key that was deleted before anybody saw it may have no output."""
    interpreter, lanes = Interpreter(flow), _lanes(wanted)
    results = {origin: interpreter.process(wanted[origin]) for origin in sorted(wanted)}
    last_of = {(record.key, origin.place): origin for origin, record in sorted(wanted.items())}
    for key, end in {wanted[origin].key: origin for origin in sorted(wanted)}.items():
        (value, timestamp), sure = results[end], len(lanes[key]) == 1
        deleted = any(wanted[last_of[key, place]].payload is None for place in lanes[key])
        if key not in by_key:
            if not deleted:
                yield Finding("lost", f"the key {key!r:.60} has no output; its last comes from {end}")
            continue
        origin, row = by_key[key][-1]
        if last_of[key, origin.place] != origin and not (deleted and row.value is None):
            yield Finding("lost", f"the key {key!r:.60} ends with {row}, which comes from {origin}, not from {end}")
        elif flow.counts and (row.value or b"") < (value or b""):
            yield Finding("too-low", f"{row} should be {value!r}")
        elif exact and flow.counts and (row.value, row.timestamp) != (value, timestamp):
            yield Finding("wrong-value", f"{row} at {row.timestamp} should be {value!r:.80} at {timestamp}")
        if exact and sure:
            wrong = [(o, r) for o, r in by_key[key] if (r.value, r.timestamp) != results[o]]
            yield from (Finding("wrong-value", f"{r} comes from {o}, which gives {results[o]!r:.80}") for o, r in wrong)
