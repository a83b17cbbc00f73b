"""The group's own history, as the broker wrote it down: generations, who had what, what was committed.

| kind | what was found |
|---|---|
| two-owners | a partition was given to two members in one generation |
| too-early | a partition was given to a member while another one still said that it has it |
| unassigned | a stable generation leaves a partition to nobody |
| rebalanced | more generations than this case allows |
| together | two copies of one task (active, standby, warm-up) were given to one process |
| ghost | an instance has more members in a generation than threads that poll |
| warming | more warm-ups at once than `max_warmup_replicas` |

*Guarantees*: pure. The formats (`GroupMetadataKey/Value`, `OffsetCommitKey/Value`, `ConsumerProtocol*`) are read with
a reader of their own; of the runtime's user data in them only a few keys, as JSON.
*Assumes*: the classic protocol, with assignments and subscriptions in Kafka's own consumer format.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.rows import Place, Row


@dataclass(frozen=True)
class Member:
    """One member of one generation. `owned`: what it said it still had, when it joined; `process`, `reason`, `tags`:
    what else it said. `active`, `standby`, `warmup`: the tasks that it was given, by name."""

    id: str
    client_id: str
    assigned: frozenset[Place]
    owned: frozenset[Place]
    process: str = ""
    reason: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    active: frozenset[str] = frozenset()
    standby: frozenset[str] = frozenset()
    warmup: frozenset[str] = frozenset()

    @property
    def copies(self) -> list[str]:
        """Each task once per copy."""
        return [*self.active, *self.standby, *self.warmup]


@dataclass(frozen=True)
class Generation:
    """`protocol`: the one that the broker chose."""

    number: int
    members: tuple[Member, ...]
    protocol: str = ""


@dataclass
class History:
    """Generations and commits of one group, in the broker's order. An offset without metadata isn't a commit: a
    transaction has each offset once without, once with metadata (`transaction_offsets.py`)."""

    generations: list[Generation] = field(default_factory=list)
    commits: list[tuple[Place, int]] = field(default_factory=list)


class Reader:
    """Kafka's primitive types, big-endian; texts and blobs as they were before flexible versions."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(kind, self._data, self._at)
        self._at += struct.calcsize(kind)
        return int(value)

    def text(self) -> str:
        length = self.number(">h")
        return self.take(length).decode() if length >= 0 else ""

    def blob(self) -> bytes:
        length = self.number(">i")
        return self.take(length) if length >= 0 else b""

    def varint(self) -> int:
        """An unsigned number of 7 bits per byte, of flexible versions."""
        number = shift = 0
        while True:
            byte = self.number(">B")
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def take(self, length: int) -> bytes:
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
            offset, metadata = _committed(Reader(row.value))
            if metadata:
                found.commits.append((place, offset))
    return found


def _committed(reader: Reader) -> tuple[int, bytes]:
    """Offset and metadata of an OffsetCommitValue."""
    version, offset = reader.number(">h"), reader.number(">q")
    if version >= 3:
        reader.number(">i")
    return offset, reader.take(reader.varint() - 1 if version >= 4 else reader.number(">h"))


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
    said, owned = _subscription(reader.blob())
    given, assigned = _assignment(reader.blob())
    return Member(
        id,
        client_id,
        owned=owned,
        assigned=assigned,
        process=said.get("process", ""),
        reason=said.get("reason", ""),
        tags=said.get("tags", {}),
        active=_tasks(given, "active"),
        standby=_tasks(given, "standby"),
        warmup=_tasks(given, "warmup"),
    )


def _subscription(data: bytes) -> tuple[dict[str, Any], frozenset[Place]]:
    """Of a `ConsumerProtocolSubscription` the user data, nothing of another program's, and what the member still owned
    (version 1 and up have it)."""
    reader = Reader(data)
    version = reader.number(">h") if data else -1
    if version < 0:
        return {}, frozenset()
    for _ in range(reader.number(">i")):
        reader.text()
    return _json(reader.blob()), _places(reader) if version >= 1 else frozenset()


def _assignment(data: bytes) -> tuple[dict[str, Any], frozenset[Place]]:
    """Of a `ConsumerProtocolAssignment` the user data and the partitions."""
    reader = Reader(data)
    if not data or reader.number(">h") < 0:
        return {}, frozenset()
    places = _places(reader)
    return _json(reader.blob()), places


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _tasks(given: Mapping[str, Any], role: str) -> frozenset[str]:
    """`{"0": [1, 2]}` are the tasks 0_1 and 0_2."""
    return frozenset(f"{sub}_{number}" for sub, numbers in given.get(role, {}).items() for number in numbers)


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


def no_ghosts(generations: Iterable[Generation], instance: str, threads: int) -> Findings:
    """No generation has more members of an instance than it has threads that poll; the members' client ids begin with
    the instance's name."""
    findings = []
    for generation in generations:
        members = [member.client_id for member in generation.members if member.client_id.startswith(f"{instance}-")]
        if len(members) > threads:
            text = f"generation {generation.number} has {', '.join(sorted(members))}, of {threads} threads"
            findings.append(Finding("ghost", text))
    return findings


def copies_apart(generations: Iterable[Generation]) -> Findings:
    """No process has two copies of one task, whatever their roles and on whichever of its members."""
    findings = []
    for generation in generations:
        copies = Counter((member.process, task) for member in generation.members for task in member.copies)
        text = f"generation {generation.number} gives process"
        findings += [
            Finding("together", f"{text} {process} {count} copies of {task}")
            for (process, task), count in copies.items()
            if count > 1
        ]
    return findings


def at_most_warming(generations: Iterable[Generation], most: int, *, standbys: int = 0) -> Findings:
    """No generation has more warm-ups than `max_warmup_replicas`; `standbys`: `num_standby_replicas`, of each task.

    A warm-up that is one of the standbys a task has anyway costs none. Nor does what the next owner of a task keeps
    open of it, until the last one has released it."""
    findings = []
    for generation in generations:
        members = generation.members
        wanted = min(standbys, len({member.process for member in members}) - 1)
        running = {task for member in members for task in member.active}
        warming = Counter(task for member in members for task in member.warmup)
        copies = warming + Counter(task for member in members for task in member.standby)
        extra = {task: min(warming[task], copies[task] - wanted - (task not in running)) for task in sorted(warming)}
        if sum(max(0, count) for count in extra.values()) > most:
            text = f"generation {generation.number} warms up {', '.join(extra)}, at most {most} at once expected"
            findings.append(Finding("warming", text + (f" beside {standbys} standbys each" if standbys else "")))
    return findings
