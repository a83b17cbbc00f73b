"""What the campaign's windows and its second sub-topology make of their input: a simple model of both, and how they are
held against it.

    in -> again (repartition) -> totals: the count per key, of all partitions
       +-> windows -> closed (suppressed until the window closes), final (emitted on close)
       +-> sessions: every update, and deletions of those that grew
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from struct import pack
from typing import TYPE_CHECKING, Any

from milestones.common.records import OffsetAndMetadata, Output, TopicPartition

if TYPE_CHECKING:
    from tests.milestones.chaos.campaign import Chaos

AGAIN, PARTITIONS = "app-again-repartition", 2
WINDOW_MS, GRACE_MS, GAP_MS = 200, 100, 60
CLOSED, FINAL, SESSIONS, TOTALS, TOTALS_LOG = "closed", "final", "sessions", "totals", "app-totals-changelog"
TAILS = {CLOSED: 8, FINAL: 8, "app-held-store-changelog": 8, SESSIONS: 16, "app-sessions-changelog": 16}
TAILS |= {"app-windowed-changelog": 12, "app-finals-changelog": 12}
"""By topic: the bytes of a key after the record's own."""

Closed = tuple[bytes, int, int]
"""Key, start and count of a window."""


def partition_of(_: str, key: str, __: Any, ___: int) -> int:
    return int(key[-1]) % PARTITIONS


def total_of(value: str) -> str:
    """The key in `totals` that a value counts for."""
    return f"q{int(value[1:]) % 3}"


def closed_windows(messages: Sequence[Any]) -> list[Closed]:
    """The windows that these records close, in order."""
    counts: dict[tuple[int, bytes], int] = {}
    closed: list[Closed] = []
    time = -1
    for message in messages:
        at = message.timestamp()[1]
        time, start = max(time, at), at // WINDOW_MS * WINDOW_MS
        if start + WINDOW_MS + GRACE_MS > time:
            counts[start, message.key()] = counts.get((start, message.key()), 0) + 1
        over = sorted(window for window in counts if window[0] + WINDOW_MS + GRACE_MS <= time)
        closed += [(key, start, counts.pop((start, key))) for start, key in over]
    return closed


def sessions(messages: Sequence[Any]) -> dict[bytes, int]:
    """By key of a session, as in a topic, how many of these records are in it."""
    times: dict[bytes, list[int]] = {}
    for message in messages:
        times.setdefault(message.key(), []).append(message.timestamp()[1])
    counts: dict[bytes, int] = {}
    for key, of_key in times.items():
        begin = 0
        of_key.sort()
        for at, time in enumerate(of_key, 1):
            if at == len(of_key) or of_key[at] > time + GAP_MS:
                counts[key + pack(">qq", time, of_key[begin])] = at - begin
                begin = at
    return counts


def read(record: Any) -> Closed:
    """The window that an output tells of, or a message."""
    key, value = (record.key, record.value) if isinstance(record, Output) else (record.key(), record.value())
    return key[:-8], int.from_bytes(key[-8:], "big"), int.from_bytes(value, "big")


def messages(chaos: Chaos, topic: str) -> Iterator[Any]:
    """What readers of the topic see."""
    for at, log in chaos.world.logs.items():
        if at.topic == topic:
            yield from (entry for entry in log.entries if entry is not None)


def inner_key(record: Output) -> bytes:
    """The key without its window."""
    tail, key = TAILS.get(record.topic, 0), record.key or b""
    return key[: len(key) - tail]


def check_windows(
    chaos: Chaos, records: Sequence[Output], at: TopicPartition, begin: int, end: int
) -> None:
    """A transaction from `begin` to `end` of an input has the windows that its records close, and gives them on."""
    entries: list[Any] = chaos.world.logs[at].entries
    keys, values = {message.key() for message in entries}, Counter(message.value() for message in entries[begin:end])
    wanted = Counter(closed_windows(entries[:end])) - Counter(closed_windows(entries[:begin]))
    found = Counter(read(record) for record in records if record.topic == CLOSED and inner_key(record) in keys)
    if found != wanted:
        chaos.world.wrong.append(f"{at} from {begin} to {end} closes {wanted}, told was {found}")
    mine = {message.value() for message in entries}
    given = Counter(record.value for record in records if record.topic == AGAIN and record.value in mine)
    if given != values:
        chaos.world.wrong.append(f"{at} from {begin} to {end} gives {values} on, found was {given}")
    chaos.happened["windows closed"] += sum(wanted.values())


def check_totals(
    chaos: Chaos, records: Sequence[Output], at: TopicPartition, begin: int, end: int
) -> None:
    """A transaction from `begin` to `end` of the repartition topic has the totals of its records."""
    entries: list[Any] = chaos.world.logs[at].entries
    counts, wanted = Counter[bytes](), dict[bytes, list[int]]()
    for offset, message in enumerate(entries[:end]):
        if message is not None:
            counts[message.key()] += 1
            if offset >= begin:
                wanted.setdefault(message.key(), []).append(counts[message.key()])
    for topic in (TOTALS, TOTALS_LOG):
        found: dict[bytes, list[int]] = {}
        for record in records:
            if record.topic == topic and record.key is not None and record.key in {m.key() for m in entries if m}:
                found.setdefault(record.key, []).append(int.from_bytes(record.value or b"", "big"))
        thin = chaos.keeps and topic == TOTALS_LOG
        of_all = {key: some[-1:] if thin else some for key, some in wanted.items()}
        if found != of_all:
            chaos.world.wrong.append(f"{at} from {begin} to {end}: {topic} has {found} of {wanted}")
    chaos.happened["totals"] += sum(map(len, wanted.values()))


def own_keys(chaos: Chaos, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> set[bytes]:
    """The keys of the inputs that a transaction has offsets of."""
    logs = chaos.world.logs
    return {message.key() for at in offsets for message in logs[at].entries if message is not None}  # type: ignore[misc]


def check_sessions(chaos: Chaos, inputs: Sequence[Sequence[Any]]) -> None:
    """The topic, as a table, has the sessions of all records."""
    table = {message.key(): message.value() for message in messages(chaos, SESSIONS)}
    found = {key: int.from_bytes(value, "big") for key, value in table.items() if value is not None}
    wanted = {key: count for entries in inputs for key, count in sessions(entries).items()}
    assert found == wanted, f"sessions: {found.items() ^ wanted.items()}"


def check_results(chaos: Chaos) -> None:
    """Each window that is over is told of: once, or at least once and with no count too low; so are all totals."""
    inputs = [chaos.world.logs[TopicPartition("in", partition)].entries for partition in range(4)]
    wanted = Counter(window for entries in inputs for window in closed_windows(entries))
    for topic in (CLOSED, FINAL):
        found = Counter(map(read, messages(chaos, topic)))
        if chaos.exactly_once:
            assert not found - wanted, f"{topic}: {found - wanted} are too many of {wanted}"
            assert topic == FINAL or found == wanted, f"{topic}: {wanted - found} are lost"
        elif topic == CLOSED:
            highest: dict[tuple[bytes, int], int] = {}
            for key, start, count in found:
                highest[key, start] = max(count, highest.get((key, start), 0))
            lost = [one for one in wanted if highest.get(one[:2], 0) < one[2]]
            assert not lost, f"{topic}: {lost} are lost, told was {highest}"
    if chaos.exactly_once:
        check_sessions(chaos, inputs)
    totals = Counter(total_of(message.value().decode()) for entries in inputs for message in entries)  # type: ignore[union-attr]
    for key, total in totals.items():
        counts = [count for other, count in chaos.world.out(TOTALS) if other == key]
        if chaos.exactly_once:
            assert counts == [*range(1, total + 1)], (TOTALS, key, counts)
        else:
            assert max(counts) >= total, f"{TOTALS}: of {key} are {max(counts)} of {total}"
    if chaos.exactly_once and chaos.keeps and not chaos.excused:
        twice = [value for value, count in Counter(chaos.world.totalled).items() if count > 1]
        assert not twice, f"records were totalled more than once: {twice}"
