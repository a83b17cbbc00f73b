"""The metadata of a committed offset holds stream time and the number of the commit, in Kafka Streams' own encoding.

    base64( version (1 byte) | stream time of the partition (8) | entries )
    entries: count (4) | count x ( length of the name (4) | name, UTF-8 | value (8) )      all big-endian

Version 1 has no entries. In version 2, Kafka Streams stores one long per name. This program stores these entries:

| name of the entry | value | purpose |
|---|---|---|
| contains the transactional id | number of the commit | shows whether a commit was made |
| a digest of the partition's topic | Kafka's id of the topic | shows that a topic was deleted and created anew |
| a list of the internal topics that the task writes to, with their ids (`written_mark`) | 0 | shows that one is gone |
| that of a kept cell (`state/cells.py`), short for times (`state/times.py`) | of the cell | keeps it over restarts |
| a digest of the partition's topic, with another prefix | the offset of this metadata | shows later foreign commits |

Entries of other programs are committed once more, with the highest value of each name, as Kafka Streams merges them.
The highest value is right for times, as times only rise. The last row's entry names the offset that the metadata was
written for. If the committed offset is another one, Kafka Streams has committed since then, and has copied the older
times. If times share entries, the last row's entry is left out, as shared values are lower than the times of that
commit.

Kafka Streams, and releases that don't know the entries about topics, copy them to the task's other partitions, too.
Brokers delete a topic's committed offsets together with the topic. So an entry about the topic in the metadata of
another partition may be about a deleted topic of the same name. If metadata has entries about several topics, none of
them counts.

*Guarantees*: the length of the text depends on the names only. So metadata that fits when a task starts fits at each of
its commits, and no entry is left out. Unreadable metadata counts as empty.
*Assumes*: the broker's `offset.metadata.max.bytes` isn't below its default.
*Why this way*: the encoding is Kafka Streams' own, so that an application can move between both programs
([0004](../../docs/decisions/0004-own-request-for-offsets.md)). Committed times decide which rows have expired
([0009](../../docs/decisions/0009-committed-times.md)), and topic ids show that an offset belongs to another topic of
the same name ([0011](../../docs/decisions/0011-topics-by-id.md)).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

from milestones.common.errors import MilestonesError
from milestones.common.records import UNKNOWN_TIMESTAMP, OffsetAndMetadata, TopicPartition
from milestones.common.state.times import NAME_BYTES

log: Final = logging.getLogger(__name__)

MAX_BYTES: Final = 4096
"""The longest metadata that brokers accept, in bytes (`offset.metadata.max.bytes`). This program's own entry needs less
than 600 bytes."""

COMMIT_PREFIX: Final = "milestones.commit:"
"""The beginning of the name of the entry about the commit. The transactional id follows."""

TOPIC_PREFIX: Final = "milestones.topic:"
"""The beginning of the name of an entry about a topic. A digest of the topic's name follows."""

OFFSET_PREFIX: Final = "milestones.offset:"
"""The beginning of the name of the entry with the offset that the metadata was written for. A digest of the topic's
name follows."""

WRITTEN_PREFIX: Final = "milestones.written:"
"""The beginning of the name of the entry about the internal topics that the task writes to. The topics' marks follow.
"""

MARK_LENGTH: Final = 8

ANY_ID: Final = "...."
"""Stands in a mark in place of the topic's id, if the topic may have any id."""

_VERSION: Final = 2
_HEAD: Final = struct.Struct(">bq")
_COUNT: Final = struct.Struct(">i")
_VALUE: Final = struct.Struct(">q")
_TIME_BYTES: Final = _COUNT.size + NAME_BYTES + _VALUE.size


class OffsetMetadataError(MilestonesError):
    """The metadata of a committed offset would be longer than Kafka accepts. The message says what to do."""

    exit_code = 2


@dataclass(frozen=True)
class OffsetMetadata:
    """The content of a committed offset's metadata.

    `stream_time` is that of the partition (ms, -1 if unknown). `commit` and `transactional_id` name the commit (0 and
    "" if unknown). `others` has the entries of other programs and the kept cells. `topics`: the ids (`number_of`) of
    topics, by `topic_entry`. `offsets`: the offsets that the metadata was written for, by `offset_entry`. `written`:
    the marks of the internal topics that the task writes to.
    """

    stream_time: int = UNKNOWN_TIMESTAMP
    commit: int = 0
    transactional_id: str = ""
    others: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)
    written: frozenset[str] = frozenset()

    def encode(self) -> str:
        """Return the metadata as the text that Kafka stores."""
        own = {COMMIT_PREFIX + self.transactional_id: self.commit} if self.commit else {}
        written = {WRITTEN_PREFIX + "".join(sorted(self.written)): 0} if self.written else {}
        return _encode(self.stream_time, {**self.others, **self.topics, **self.offsets, **written, **own})

    def topic_id(self, topic: str) -> int | None:
        """Return the id (`number_of`) of the topic of that name to which the offset belongs. None if it isn't known."""
        return self.topics.get(topic_entry(topic)) if len(self.topics) == 1 else None

    def is_of(self, topic: str, offset: int) -> bool:
        """True if the metadata was written for exactly this offset of a partition of the topic."""
        return self.offsets.get(offset_entry(topic)) == offset

    def room(self) -> int:
        """Return how many more entries fit if their names are as long as those of times."""
        return max(0, MAX_BYTES // 4 * 3 - len(base64.b64decode(self.encode()))) // _TIME_BYTES

    def check(self) -> None:
        """Raise `OffsetMetadataError` if the text is longer than Kafka accepts."""
        size = len(self.encode())
        if size > MAX_BYTES:
            raise OffsetMetadataError(
                f"the committed offsets carry {len(self.others)} entries of processors ({_some(self.others)}), "
                f"{size} bytes together with the number of our commit; Kafka takes {MAX_BYTES}. Leaving an entry out "
                "would make its window or suppression emit again what was emitted, and a stream join lose records of "
                "one key and time. Name the stores of the application that wrote the entries shorter and let it commit "
                "once more; or, if neither does harm, set the group to the same offsets without metadata "
                "(kafka-consumer-groups.sh --reset-offsets --to-current)"
            )

    @classmethod
    def decode(cls, text: str) -> OffsetMetadata:
        """Return the metadata in `text`. All fields are unknown if the text is empty, foreign or damaged."""
        if not text:
            return cls()
        try:
            data = base64.b64decode(text, validate=True)
            version, stream_time = _HEAD.unpack_from(data)
            entries = _decode_entries(data[_HEAD.size :]) if version == _VERSION else {}
        except (binascii.Error, struct.error, ValueError) as error:
            log.warning("the metadata %.40r of a committed offset isn't ours: %s", text, error)
            return cls()
        if version not in (1, _VERSION):
            log.warning("the metadata of a committed offset has version %d, this program knows 1 and 2", version)
            return cls()
        commits, topics, offsets, written = (
            {name: value for name, value in entries.items() if name.startswith(prefix)}
            for prefix in (COMMIT_PREFIX, TOPIC_PREFIX, OFFSET_PREFIX, WRITTEN_PREFIX)
        )
        known = {*commits, *topics, *offsets, *written}
        others = {name: value for name, value in entries.items() if name not in known}
        name, commit = max(commits.items(), key=lambda item: item[1], default=(COMMIT_PREFIX, 0))
        marks = frozenset().union(*(_marks(name.removeprefix(WRITTEN_PREFIX)) for name in written))
        return cls(stream_time, commit, name.removeprefix(COMMIT_PREFIX), others, topics, offsets, marks)


NOT_COMMITTED: Final = OffsetAndMetadata(0, "")
"""Stands for the committed offset of a partition that has none."""


class CommittedNumbers(NamedTuple):
    """The kept numbers of a task's last commit, by name.

    `exact`: True if the numbers are exactly those of that commit. Otherwise a program that keeps no times made the
    commit, or the offsets were set by hand, or times share entries. Then the task's rows may know later times.
    """

    numbers: Mapping[str, int]
    exact: bool


NOTHING_COMMITTED: Final = CommittedNumbers({}, exact=True)
"""The numbers of a task without committed offsets."""


def committed_numbers(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> CommittedNumbers:
    """Return the kept numbers in the committed offsets of a task's input. Without committed offsets the result is empty
    and `exact`."""
    found = {partition: OffsetMetadata.decode(at.metadata) for partition, at in committed.items()}
    exact = all(metadata.is_of(at.topic, committed[at].offset) for at, metadata in found.items())
    return CommittedNumbers(highest(metadata.others for metadata in found.values()), exact)


def highest(maps: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Merge the entries of all maps, with the highest value of each name. Kafka Streams merges processors' metadata
    like this."""
    merged: dict[str, int] = {}
    for entries in maps:
        for name, value in entries.items():
            merged[name] = max(value, merged.get(name, value))
    return merged


@cache
def topic_entry(topic: str) -> str:
    """Return the name of the entry about a topic. All such names have the same length."""
    return TOPIC_PREFIX + _stands_for(topic)


@cache
def offset_entry(topic: str) -> str:
    """Return the name of the entry about the offset of a partition of the topic. Each topic has a name of its own, as
    Kafka Streams keeps only the highest value of each name."""
    return OFFSET_PREFIX + _stands_for(topic)


def _stands_for(topic: str) -> str:
    """Return a digest of the topic's name, in six characters."""
    digest = hashlib.blake2b(topic.encode(), digest_size=6).digest()
    return base64.urlsafe_b64encode(digest)[:6].decode()


def written_mark(topic: str, number: int | None) -> str:
    """Return the mark of a topic that a task writes to. `number`: the topic's id (`number_of`). None stands for any id.
    It is used when the application deletes the topic and creates a new one."""
    return _topic_mark(topic) + (ANY_ID if number is None else _short(number.to_bytes(8, "big", signed=True)))


def written_ids(topic: str, marks: Iterable[str]) -> frozenset[str]:
    """Return the marks that are about this topic."""
    return frozenset(mark for mark in marks if mark.startswith(_topic_mark(topic)))


@cache
def _topic_mark(topic: str) -> str:
    return _short(topic.encode())


def _short(data: bytes) -> str:
    """Return a digest of four characters."""
    return base64.urlsafe_b64encode(hashlib.blake2b(data, digest_size=3).digest()).decode()


def _marks(text: str) -> frozenset[str]:
    return frozenset(text[at : at + MARK_LENGTH] for at in range(0, len(text), MARK_LENGTH))


def _some(names: Iterable[str]) -> str:
    first = list(islice(names, 3))
    return ", ".join(first) + (", ..." if len(first) == 3 else "")


def _encode(stream_time: int, entries: Mapping[str, int]) -> str:
    parts = [_HEAD.pack(_VERSION, stream_time)]
    if entries:
        parts.append(_COUNT.pack(len(entries)))
    for name, value in entries.items():
        encoded = name.encode()
        parts += (_COUNT.pack(len(encoded)), encoded, _VALUE.pack(value))
    return base64.b64encode(b"".join(parts)).decode()


def _decode_entries(data: bytes) -> dict[str, int]:
    entries: dict[str, int] = {}
    if not data:
        return entries
    (count,) = _COUNT.unpack_from(data)
    position = _COUNT.size
    for _ in range(count):
        (length,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        if length < 0:
            raise ValueError(f"a name of {length} bytes")
        name = data[position : position + length].decode()
        position += length
        (entries[name],) = _VALUE.unpack_from(data, position)
        position += _VALUE.size
    return entries
