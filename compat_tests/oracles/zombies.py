"""What a process may spoil that its group has given up while it stood still, and that wakes up: under at least once.

Nothing fences a producer without transactions. What the process had handed to its client when it stopped is sent when
it wakes, behind what the tasks' new owners have written since: an old count of a key becomes the last one, in the
output or in the changelog, and whoever restores from there goes on from it. So a count falls back, visibly, and:

| kind | what was found |
|---|---|
| fell-back | a count of a key fell back that the sleeper had no input of in work |
| too-low | a count fell back to less than it was when the sleeper stopped, or is too low and never fell back |

*Guarantees*: pure. All other keys are held to what holds without sleepers.
*Assumes*: counts, 8 bytes big-endian; the sleepers' tasks had processed all inputs again before they woke.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from compat_tests.oracles import outputs
from compat_tests.oracles.changelog import StoreDump
from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.rows import Place, Row


@dataclass(frozen=True)
class Asleep:
    """One process that stood still. Of each input partition that it had then: what was `committed`, up to where it may
    have handed its outputs to its client when it `stopped`, and where the partition ended when it `woke`."""

    committed: Mapping[Place, int]
    stopped: Mapping[Place, int]
    woke: Mapping[Place, int]

    def in_work(self, inputs: Iterable[Row]) -> list[Row]:
        """What it may have processed without a commit."""
        return between(self.committed, self.stopped, inputs)

    def missed(self, inputs: Iterable[Row]) -> list[Row]:
        """What an old count of its may lack: all that may have been counted since the count was made."""
        return between(self.committed, self.woke, inputs)


def between(first: Mapping[Place, int], end: Mapping[Place, int], rows: Iterable[Row]) -> list[Row]:
    """The rows of these partitions between these offsets."""
    return [row for row in rows if first.get(row.place, 0) <= row.offset < end.get(row.place, 0)]


def fallen(rows: Iterable[Row]) -> set[bytes]:
    """Keys with a count below an earlier one. `rows`: of a topic, in order."""
    highest: dict[bytes, int] = {}
    found = set()
    for row in rows:
        if row.key is None or row.value is None:
            continue
        count = int.from_bytes(row.value)
        if count < highest.get(row.key, 0):
            found.add(row.key)
        highest[row.key] = max(count, highest.get(row.key, 0))
    return found


def judge_outputs(
    flow: Flow,
    inputs: Sequence[Row],
    found: Sequence[Row],
    partitions: int,
    asleep: Collection[Asleep],
    spoilt: Collection[bytes],
) -> Findings:
    """The outputs of a count. `spoilt`: keys whose count fell back, in the output or in the changelog."""
    findings = outputs.at_least_once(flow, inputs, found, partitions, zombies=True)
    sound = replace(flow, expand=lambda row: [pair for pair in flow.expand(row) if pair[0] not in spoilt])
    its_inputs = [row for row in inputs if row.key not in spoilt]
    findings += outputs.at_least_once(sound, its_inputs, [row for row in found if row.key not in spoilt], partitions)
    return findings + fallen_too_far(inputs, found, asleep, spoilt)


def fallen_too_far(
    inputs: Sequence[Row], found: Sequence[Row], asleep: Collection[Asleep], spoilt: Collection[bytes]
) -> Findings:
    """Each `spoilt` key had inputs in work, and its last count lacks nothing but what was counted while they slept."""
    in_work = {row.key for one in asleep for row in one.in_work(inputs)}
    findings = [Finding("fell-back", f"{key!r} fell back; no sleeper had it in work") for key in set(spoilt) - in_work]
    counts = Counter(row.key for row in inputs)
    missed = Counter(row.key for one in asleep for row in one.missed(inputs))
    last = {row.key: int.from_bytes(row.value or b"") for row in found}
    for key in spoilt:
        least = counts[key] - missed[key]
        if last.get(key, 0) < least:
            findings.append(Finding("too-low", f"{key!r} fell back to {last.get(key, 0)}, was {least} before the stop"))
    return findings


def without(spoilt: Collection[bytes], dump: StoreDump) -> StoreDump:
    """A store as if it had never had these keys."""
    return replace(dump, entries={key: value for key, value in dump.entries.items() if key not in spoilt})
