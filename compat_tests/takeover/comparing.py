"""What came of a take-over against what came of Java alone.

| kind | what was found |
|---|---|
| output | the records of a key differ, or one is missing or too much |
| changelog | the last rows of a changelog differ, or the records of one that is a log |
| metadata | the metadata of a committed offset differs |
| topics | an internal topic was made, deleted, or altered in more than its limits |
| read-again | a leg doesn't begin with the committed offset |

*Guarantees*: pure. The encoding of the metadata is read by a reader of its own.
*Assumes*: topics were read to their ends, under read committed.
"""

from __future__ import annotations

import base64
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from compat_tests.harness.cluster import TopicDetails
from compat_tests.oracles.changelog import fold
from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.rows import Place, Row
from compat_tests.takeover.parts import Part, Repeats
from milestones.common.task.metadata import OFFSET_PREFIX, TOPIC_PREFIX, offset_entry, topic_entry

OURS = "milestones."
"""What our own entries in the metadata begin with. Java hands them on."""
TIMES = ":"
"""What the entries of our operators' and stores' times begin with. Java hands them on, too."""
SEQUENCE_BYTES = 4
"""Of the number at the end of the key of a record that is joined, or waits: it begins anew with the process."""

UNLIMITED = frozenset({"-1", str((1 << 63) - 1)})
LIMITS = (
    "retention.ms", "retention.bytes", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
    "min.compaction.lag.ms", "max.compaction.lag.ms",
)  # fmt: skip
"""Settings of internal topics that we raise: brokers delete and compact nothing by their clock, and take records of all
times."""

SUPPRESSED = "v"
"""The header of rows that wait in a suppression."""

ByKey: TypeAlias = "Mapping[bytes | None, list[Row]]"


# ---- outputs


def by_key(rows: Iterable[Row]) -> dict[bytes | None, list[Row]]:
    """The rows of each key, in their order."""
    found: defaultdict[bytes | None, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
        found[row.key].append(row)
    return dict(found)


def same_outputs(name: str, part: Part, alone: Iterable[Row], found: Iterable[Row]) -> Findings:
    """Record for record per key."""

    def shown(row: Row) -> tuple[Any, ...]:
        time = 0 if part.raced else row.timestamp
        return row.partition, row.value, time, () if part.borrowed else row.headers

    return [
        Finding("output", f"{name}, key {key!r}: {_first_difference(wanted, has)}")
        for key, wanted, has in _both(by_key(alone), by_key(found))
        if [*map(shown, wanted)] != [*map(shown, has)]
    ]


def repeated_outputs(name: str, part: Part, alone: Iterable[Row], found: Iterable[Row]) -> Findings:
    """What holds although records were processed twice: `Part.repeats`."""
    return [
        Finding("output", f"{name}, key {key!r}: {_ends(wanted)} when Java is alone, {_ends(has)} here")
        for key, wanted, has in _both(by_key(alone), by_key(found))
        if not has or not _HOLDS[part.repeats](wanted, has)
    ]


_HOLDS: Mapping[Repeats, Callable[[Sequence[Row], Sequence[Row]], bool]] = {
    "keys": lambda wanted, has: True,
    "last": lambda wanted, has: [*wanted, None][-1:] == has[-1:] or wanted[-1].value == has[-1].value,
    "at-least": lambda wanted, has: (has[-1].value or b"") >= (wanted[-1].value or b""),
}


def _both(alone: ByKey, found: ByKey) -> Iterable[tuple[bytes | None, list[Row], list[Row]]]:
    for key in alone.keys() | found.keys():
        yield key, alone.get(key, []), found.get(key, [])


def _first_difference(wanted: Sequence[Row], has: Sequence[Row]) -> str:
    at = next(
        (at for at, (one, other) in enumerate(zip(wanted, has, strict=False)) if _told(one) != _told(other)),
        min(len(wanted), len(has)),
    )
    return f"record {at} is {_at(wanted, at)} when Java is alone, {_at(has, at)} here ({len(wanted)}, {len(has)} all)"


def _told(row: Row) -> tuple[Any, ...]:
    return row.value, row.timestamp, row.headers


def _at(rows: Sequence[Row], at: int) -> str:
    return f"{rows[at].value!r} at {rows[at].timestamp} {rows[at].headers!r:.90}" if at < len(rows) else "missing"


def _ends(rows: Sequence[Row]) -> str:
    return f"{len(rows)} records, the last {rows[-1].value!r}" if rows else "nothing"


# ---- changelogs


def same_changelog(topic: str, alone: Iterable[Row], found: Iterable[Row]) -> Findings:
    """The last row of each key, by partition; without the time of a row that waits in a suppression, which has none of
    its own: the producer gives it one."""
    return _same_rows(topic, _folded(alone), _folded(found))


def same_log(topic: str, alone: Iterable[Row], found: Iterable[Row]) -> Findings:
    """The records of a changelog of joined records, but for the numbers that tell equal ones apart, and for records
    that its store doesn't take: Kafka Streams logs those without a value too."""
    return _same_rows(topic, _logged(alone), _logged(found))


def same_buffer(topic: str, alone: Iterable[Row], found: Iterable[Row]) -> Findings:
    """The last rows, as `same_changelog`, without the numbers at the ends of their keys."""
    return _same_rows(topic, _unnumbered(alone), _unnumbered(found))


def _unnumbered(rows: Iterable[Row]) -> Counter[Any]:
    return Counter(
        (partition, key[:-SEQUENCE_BYTES], entry.value) for (partition, key), entry in _folded(rows).items()
    )


def _folded(rows: Iterable[Row]) -> dict[tuple[int, bytes], Any]:
    partitions: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        timeless = any(name == SUPPRESSED for name, _ in row.headers)
        partitions[row.partition].append(row._replace(timestamp=0) if timeless else row)
    return {
        (partition, key): entry
        for partition, own in partitions.items()
        for key, entry in fold(own).items()
    }


def _logged(rows: Iterable[Row]) -> Counter[Any]:
    return Counter(
        (row.partition, (row.key or b"")[:-SEQUENCE_BYTES], row.value, row.timestamp)
        for row in rows
        if row.value is not None
    )


def _same_rows(topic: str, wanted: Mapping[Any, Any], has: Mapping[Any, Any]) -> Findings:
    return [
        Finding("changelog", f"{topic}, {key}: {wanted.get(key)} when Java is alone, {has.get(key)} here")
        for key in wanted.keys() | has.keys()
        if wanted.get(key) != has.get(key)
    ]


# ---- committed offsets


class Metadata(NamedTuple):
    """What a committed offset carries. `numbers`: by the names that processors gave them."""

    time: int
    numbers: Mapping[str, int]

    @classmethod
    def read(cls, text: str) -> Metadata:
        """`ValueError`, `struct.error` when the text is none."""
        data = base64.b64decode(text, validate=True)
        version, time = struct.unpack_from(">bq", data)
        if version not in (1, 2):
            raise ValueError(f"version {version}")
        at, numbers = 9, dict[str, int]()
        for _ in range(struct.unpack_from(">i", data, at)[0] if len(data) > at else 0):
            at += 0 if numbers else 4
            (length,) = struct.unpack_from(">i", data, at)
            name = data[at + 4 : at + 4 + length].decode()
            (numbers[name],) = struct.unpack_from(">q", data, at + 4 + length)
            at += 12 + length
        return cls(time, numbers)

    @property
    def theirs(self) -> Mapping[str, int]:
        """The processors' numbers, without our own."""
        return {name: number for name, number in self.numbers.items() if not name.startswith((OURS, TIMES))}


def same_metadata(alone: Mapping[Place, Metadata], found: Mapping[Place, Metadata]) -> Findings:
    """Of input topics, which both have in common."""
    return [
        Finding("metadata", f"{place}: {alone.get(place)} when Java is alone, {found.get(place)} here")
        for place in alone.keys() | found.keys()
        if _compared(alone.get(place)) != _compared(found.get(place))
    ]


def _compared(metadata: Metadata | None) -> object:
    return None if metadata is None else (metadata.time, metadata.theirs)


def metadata_kept(before: Mapping[Place, Metadata], after: Mapping[Place, Metadata]) -> Findings:
    """No leg puts a time or a number back, or forgets one. Left out are the time of what waits first, which is no
    higher for being newer, and what Kafka Streams copies to a partition about topics that aren't its own."""
    findings: Findings = []
    for place, had in before.items():
        has, copied = after.get(place, Metadata(-1, {})), _of_other_topics(place, had)
        numbers = {
            name: number for name, number in had.numbers.items() if not name.startswith(TIMES) and name not in copied
        }
        lost = {name: number for name, number in numbers.items() if has.numbers.get(name, -1) < number}
        if has.time < had.time or lost:
            findings.append(Finding("metadata", f"{place} had {had}, has {has}"))
    return findings


def _of_other_topics(place: Place, metadata: Metadata) -> frozenset[str]:
    own = topic_entry(place.topic), offset_entry(place.topic)
    return frozenset(
        name for name in metadata.numbers if name.startswith((TOPIC_PREFIX, OFFSET_PREFIX)) and name not in own
    )


# ---- topics and positions


def same_topics(before: Mapping[str, TopicDetails], after: Mapping[str, TopicDetails]) -> Findings:
    """Names, ids, partition counts and settings; except that limits of age, size and times may be raised."""
    return [
        Finding("topics", f"{topic}: was {before.get(topic)}, is {after.get(topic)}")
        for topic in before.keys() | after.keys()
        if topic not in before or topic not in after or not _same_or_wider(before[topic], after[topic])
    ]


def _same_or_wider(before: TopicDetails, after: TopicDetails) -> bool:
    lower = any(_limit(after, name) < _limit(before, name) for name in LIMITS)
    return not lower and _without_limits(before) == _without_limits(after)


def _limit(topic: TopicDetails, name: str) -> float:
    limit = topic.settings.get(name, "-1")
    return float("inf") if limit in UNLIMITED else int(limit)


def _without_limits(topic: TopicDetails) -> TopicDetails:
    return topic._replace(settings={name: to for name, to in topic.settings.items() if name not in LIMITS})


def begins_there(committed: Mapping[Place, int], begun: Mapping[Place, int]) -> Findings:
    """The first record that is read of each partition has the committed offset, or one after it: a transaction that was
    to be committed when its producer died may end later. Whether a record is lost is told by the outputs."""
    return [
        Finding("read-again", f"{place} is committed at {committed.get(place, 0)}, and is read from {offset} on")
        for place, offset in begun.items()
        if offset < committed.get(place, 0)
    ]
