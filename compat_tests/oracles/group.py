"""The group's own history, as the broker wrote it down: generations, who had what, what was committed.

| kind | what was found |
|---|---|
| two-owners | a partition was given to two members in one generation |
| too-early | a partition was given to a member while another one still said that it has it |
| unassigned | a stable generation leaves a partition to nobody |
| rebalanced | more generations than this case allows |

*Guarantees*: pure. The formats (`GroupMetadataKey/Value`, `OffsetCommitKey/Value`, `ConsumerProtocol*`) are read with
a reader of their own.
*Assumes*: the classic protocol, with assignments and subscriptions in Kafka's own consumer format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.rows import Place, Row


@dataclass(frozen=True)
class Member:
    """One member of one generation. `owned`: what it said it still had, when it joined."""

    id: str
    client_id: str
    assigned: frozenset[Place]
    owned: frozenset[Place]


@dataclass(frozen=True)
class Generation:
    """`protocol`: the one that the broker chose."""

    number: int
    members: tuple[Member, ...]
    protocol: str = ""


@dataclass
class History:
    """Generations and commits of one group, in the broker's order."""

    generations: list[Generation] = field(default_factory=list)
    commits: list[tuple[Place, int]] = field(default_factory=list)


class Reader:
    """Kafka's primitive types, big-endian, as they were before flexible versions."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(kind, self._data, self._at)
        self._at += struct.calcsize(kind)
        return int(value)

    def text(self) -> str:
        length = self.number(">h")
        return self._take(length).decode() if length >= 0 else ""

    def blob(self) -> bytes:
        length = self.number(">i")
        return self._take(length) if length >= 0 else b""

    def _take(self, length: int) -> bytes:
        data = self._data[self._at : self._at + length]
        self._at += length
        return data


def history(group: str, rows: Iterable[Row]) -> History:
    """What the rows of `__consumer_offsets` say about `group`."""
    found = History()
    for row in rows:
        if row.key is None:
            continue
        key = Reader(row.key)
        kind = key.number(">h")
        if kind not in (0, 1, 2) or key.text() != group or row.value is None:
            continue
        if kind == 2:
            generation = _generation(Reader(row.value))
            if generation.members:
                found.generations.append(generation)
        else:
            place = Place(key.text(), key.number(">i"))
            value = Reader(row.value)
            value.number(">h")
            found.commits.append((place, value.number(">q")))
    return found


def _generation(reader: Reader) -> Generation:
    version = reader.number(">h")
    if not 2 <= version <= 3:
        raise ValueError(f"GroupMetadataValue has version {version}; this reader knows 2 and 3")
    reader.text()
    number, protocol = reader.number(">i"), reader.text()
    reader.text()
    reader.number(">q")
    return Generation(number, tuple(_member(reader, version) for _ in range(reader.number(">i"))), protocol)


def _member(reader: Reader, version: int) -> Member:
    id = reader.text()
    if version >= 3:
        reader.text()
    client_id = reader.text()
    reader.text()
    reader.number(">i")
    reader.number(">i")
    return Member(id, client_id, owned=owned_partitions(reader.blob()), assigned=assigned_partitions(reader.blob()))


def assigned_partitions(data: bytes) -> frozenset[Place]:
    """Of a `ConsumerProtocolAssignment`."""
    reader = Reader(data)
    return _places(reader) if data and reader.number(">h") >= 0 else frozenset()


def owned_partitions(data: bytes) -> frozenset[Place]:
    """Of a `ConsumerProtocolSubscription` (version 1 and up have them)."""
    reader = Reader(data)
    if not data or reader.number(">h") < 1:
        return frozenset()
    for _ in range(reader.number(">i")):
        reader.text()
    reader.blob()
    return _places(reader)


def _places(reader: Reader) -> frozenset[Place]:
    places: set[Place] = set()
    for _ in range(reader.number(">i")):
        topic = reader.text()
        places |= {Place(topic, reader.number(">i")) for _ in range(reader.number(">i"))}
    return frozenset(places)


def one_owner(generations: Iterable[Generation]) -> Findings:
    """No partition has two owners, and none is given away before its owner has let it go."""
    findings = []
    for generation in generations:
        owner: dict[Place, Member] = {}
        for member in generation.members:
            for place in member.assigned:
                if place in owner:
                    text = f"generation {generation.number} gives {place} to {owner[place].id} and {member.id}"
                    findings.append(Finding("two-owners", text))
                owner[place] = member
        for member in generation.members:
            for place in member.owned - member.assigned:
                if place in owner:
                    text = f"generation {generation.number} gives {place} to {owner[place].id} while {member.id} has it"
                    findings.append(Finding("too-early", text))
    return findings


def all_owned(generations: Sequence[Generation], places: Iterable[Place]) -> Findings:
    """The last generation leaves no partition to nobody."""
    owned = {place for member in generations[-1].members for place in member.assigned} if generations else set()
    return [Finding("unassigned", f"{place} belongs to nobody") for place in sorted(set(places) - owned)]


def at_most_generations(generations: Iterable[Generation], most: int) -> Findings:
    """Quiet: nothing but members that come and go makes a new generation."""
    numbers = sorted({generation.number for generation in generations})
    if len(numbers) <= most:
        return []
    text = f"{len(numbers)} generations ({numbers[0]} to {numbers[-1]}), at most {most} expected"
    return [Finding("rebalanced", text)]
