"""The parts of the application: our half of each, and its input. `src/Parts.java` has Java's half under the same name.

*Guarantees*: the topology follows from the text that `Application` writes; inputs from the seed.
*Assumes*: input topics are `<inputs>-<part>-<suffix>`, the output topic is `<application_id>-<part>`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from compat_tests.harness.feed import Sent
from compat_tests.takeover.brake import Brake
from milestones import (
    JoinWindows,
    KGroupedStream,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    Record,
    SessionWindows,
    StoreSpec,
    StreamsBuilder,
    TimeWindows,
    Windowed,
    serdes,
)

TEXT, LONG = serdes.STRING, serdes.LONG

HOUR_MS = 3_600_000
WINDOWS = TimeWindows(200, grace=100)
SESSIONS = SessionWindows(100, grace=100)
NEAR = JoinWindows(50, grace=50)

STEP_MS, SHUFFLED = 3, 4
"""Records are so far apart, and so many of them in a row are out of order: less than any grace together."""
KEYS = 300
CLOSERS, CLOSER_MS = 3, 10_000
"""The last records of each partition, and how far ahead each of them is."""


class Topics(NamedTuple):
    """The topics of a part, and how long its brakes take for a record."""

    inputs: str
    application: str
    part: str
    pause_us: int

    def source(self, suffix: str) -> str:
        return f"{self.inputs}-{self.part}-{suffix}"

    @property
    def out(self) -> str:
        return f"{self.application}-{self.part}"


Input: TypeAlias = "Iterable[tuple[str, Sent]]"
"""Suffixes of topics and records."""
Repeats: TypeAlias = Literal["last", "at-least", "keys"]


@dataclass(frozen=True)
class Part:
    """A part of the application. `inputs`: the suffixes of its topics. `tables`: stores whose changelogs end with the
    same rows whatever is processed twice; `on_disk`: timestamped key-value stores on our disk. `repeats`: what holds
    for each key of the output when records were processed twice:

    | | |
    |---|---|
    | `last` | the last record is the same |
    | `at-least` | the last value, a number, is no lower |
    | `keys` | there is a record |

    `everywhere`: suffixes of topics of global tables, which get one record of each key before anybody starts.
    `borrowed`: headers come from whichever record a result is sent by; `raced`: its time does, too: a row of a right
    table that comes second sends its own, a row of the left one that does the later one of both. `continued` False:
    Java doesn't go on with it as it has begun, not even by itself. `records(rng, count, first_ms)`: the input."""

    build: Callable[[StreamsBuilder, Topics], None]
    inputs: tuple[str, ...] = ("in",)
    repeats: Repeats = "keys"
    tables: tuple[str, ...] = ()
    on_disk: tuple[str, ...] = ()
    everywhere: tuple[str, ...] = ()
    borrowed: bool = False
    raced: bool = False
    continued: bool = True
    records: Callable[[Part, random.Random, int, int], Input] | None = None

    def input(self, rng: random.Random, count: int, first_ms: int, partitions: int, portions: int) -> Sequence[Input]:
        """Portions of records, each in the order in which it is sent: a later one has later records."""
        made = [*(self.records or mixed)(self, rng, count, first_ms)]
        size = -(-len(made) // portions // SHUFFLED) * SHUFFLED
        found = [[*_shuffled(rng, made[at : at + size])] for at in range(0, len(made), size)]
        last_ms = first_ms + len(made) * STEP_MS
        for number in range(CLOSERS):
            for partition in range(partitions):
                time_ms = last_ms + (number + 1) * CLOSER_MS + partition
                key, value = b"closer-%d-%d" % (number, partition), b"c%d" % number
                found[-1].append((self.inputs[0], Sent(key, value, time_ms, partition)))
        return found


def rows_of_global_tables(first_ms: int) -> Iterable[Sent]:
    """Of a half of the keys."""
    return [Sent(b"k%d" % key, b"everywhere %d" % key, first_ms - KEYS + key) for key in range(0, KEYS, 2)]


def _shuffled(rng: random.Random, records: Sequence[tuple[str, Sent]]) -> Input:
    for at in range(0, len(records), SHUFFLED):
        yield from rng.sample(block := records[at : at + SHUFFLED], len(block))


def mixed(part: Part, rng: random.Random, count: int, first_ms: int) -> Input:
    """Records of random keys in random topics of the part; those of tables delete at times."""
    for number in range(count):
        suffix = rng.choice(part.inputs)
        deletes = suffix != "in" and rng.random() < 0.15
        value = None if deletes else b"v%d" % number
        yield suffix, Sent(b"k%d" % rng.randrange(KEYS), value, first_ms + number * STEP_MS)


SIDES = ("left", "right")
MEETINGS = ("LR", "RL", "L", "R", "LLR", "RRL", "LLRR")
"""Which sides have records of a key, one soon after the other."""
LONG_APART_MS = 4 * (NEAR.before_ms + NEAR.grace_ms)


def meetings(_: Part, rng: random.Random, count: int, first_ms: int) -> Input:
    """Few records of one key, and then none for a long time."""
    number, meeting, keys = 0, 0, max(KEYS, 2 * LONG_APART_MS // STEP_MS)
    while number < count:
        for side in rng.choice(MEETINGS):
            suffix = "left" if side == "L" else "right"
            yield suffix, Sent(b"k%d" % (meeting % keys), b"v%d" % number, first_ms + number * STEP_MS)
            number += 1
        meeting += 1


PER_ROW = 5
"""How many left rows refer to one right row, at most."""


def references(_: Part, rng: random.Random, count: int, first_ms: int) -> Input:
    """Each row once: what is sent of two changes that meet on their ways depends on which way is longer."""
    rights = max(1, count // (PER_ROW + 1))
    rows = [("right", b"r%d" % number, b"w%d" % number) for number in range(rights)]
    for number in range(count - rights):
        rows.append(("left", b"k%d" % number, b"r%d-v%d" % (rng.randrange(rights), number)))
    rng.shuffle(rows)
    for number, (suffix, key, value) in enumerate(rows):
        yield suffix, Sent(key, value, first_ms + number * STEP_MS)


def braked(builder: StreamsBuilder, topics: Topics, suffix: str = "in") -> KStream:
    source = builder.stream(topics.source(suffix), key=TEXT, value=TEXT)
    return source.process_values(lambda: Brake(topics.pause_us))


def grouped(builder: StreamsBuilder, topics: Topics) -> KGroupedStream:
    return braked(builder, topics).group_by_key(key=TEXT, value=TEXT)


def out(stream: KStream, topics: Topics) -> None:
    stream.to(topics.out, key=TEXT, value=TEXT)


def windowed(table: KTable, topics: Topics) -> None:
    """Updates under the key without its window, so that their order is that of one key."""

    def shown(key: Windowed[str], count: int | None) -> tuple[str, str]:
        return key.key, f"{key.start}/{key.end}={'null' if count is None else count}"

    out(table.to_stream().map(shown), topics)


def both(left: str | None, right: str | None) -> str:
    return f"{_text(left)}&{_text(right)}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def last(text: str) -> str:
    return text[-30:]


def windows(builder: StreamsBuilder, topics: Topics) -> None:
    counts = grouped(builder, topics).windowed_by(WINDOWS, emit="on_close").count("per-window", retention=HOUR_MS)
    windowed(counts, topics)


def sessions(builder: StreamsBuilder, topics: Topics) -> None:
    windowed(grouped(builder, topics).windowed_by(SESSIONS).count("per-session", retention=HOUR_MS), topics)


def closed_sessions(builder: StreamsBuilder, topics: Topics) -> None:
    counts = grouped(builder, topics).windowed_by(SESSIONS, emit="on_close").count(
        key=TEXT, value=LONG, retention=HOUR_MS
    )
    windowed(counts, topics)


def outer_join(builder: StreamsBuilder, topics: Topics) -> None:
    left = braked(builder, topics, "left")
    out(left.outer_join(braked(builder, topics, "right"), both, within=NEAR), topics)


def table_join(builder: StreamsBuilder, topics: Topics) -> None:
    table = builder.table(topics.source("table"), key=TEXT, value=TEXT)
    out(braked(builder, topics).left_join(table, both), topics)


def tables(builder: StreamsBuilder, topics: Topics) -> None:
    left = builder.table(topics.source("left"), key=TEXT, value=TEXT)
    right = builder.table(topics.source("right"), key=TEXT, value=TEXT)
    out(left.outer_join(right, both).to_stream(), topics)


def aggregate(builder: StreamsBuilder, topics: Topics) -> None:
    by_digit = braked(builder, topics).group_by(lambda key, value: f"{key}/{value[-1]}", key=TEXT, value=TEXT)
    texts = by_digit.aggregate(str, lambda _, value, text: last(text) + value, key=TEXT, value=TEXT)
    out(texts.to_stream(), topics)


def regrouped(builder: StreamsBuilder, topics: Topics) -> None:
    rows = builder.table(topics.source("table"), "rows", key=TEXT, value=TEXT)
    by_digit = rows.group_by(lambda key, value: (f"{key}/{value[-1]}", value), name="by-digit", key=TEXT, value=TEXT)
    by_digit.count("per-digit").to_stream().to(topics.out, key=TEXT, value=LONG)


def reduced(builder: StreamsBuilder, topics: Topics) -> None:
    texts = grouped(builder, topics).reduce(lambda text, value: last(text) + value, "texts", in_memory=True)
    out(texts.to_stream(), topics)


def suppressed(builder: StreamsBuilder, topics: Topics) -> None:
    counts = grouped(builder, topics).windowed_by(WINDOWS).count("held-per-window", retention=HOUR_MS)
    windowed(counts.suppress(until="window_closes"), topics)


def held(builder: StreamsBuilder, topics: Topics) -> None:
    rows = builder.table(topics.source("table"), key=TEXT, value=TEXT)
    out(rows.suppress(after=300, name="held").to_stream(), topics)


def cogrouped(builder: StreamsBuilder, topics: Topics) -> None:
    def append(_: str, value: str, text: str) -> str:
        return last(text) + value

    left, right = (
        braked(builder, topics, side).group_by_key(key=TEXT, value=TEXT) for side in SIDES
    )
    texts = left.cogroup(append).cogroup(right, lambda key, value, text: append(key, "r" + value, text))
    out(texts.aggregate(str, "cogrouped", key=TEXT, value=TEXT).to_stream(), topics)


def global_join(builder: StreamsBuilder, topics: Topics) -> None:
    table = builder.global_table(topics.source("table"), "everywhere", key=TEXT, value=TEXT)
    out(braked(builder, topics).left_join(table, both, on=lambda key, _: key), topics)


def versioned_join(builder: StreamsBuilder, topics: Topics) -> None:
    table = builder.table(topics.source("table"), "versions", history=HOUR_MS, key=TEXT, value=TEXT)
    out(braked(builder, topics).left_join(table, both), topics)


def waiting_join(builder: StreamsBuilder, topics: Topics) -> None:
    table = builder.table(topics.source("table"), "awaited", history=HOUR_MS, key=TEXT, value=TEXT)
    joined = braked(builder, topics).left_join(table, both, grace=50, key=TEXT, value=TEXT, other_value=TEXT)
    out(joined, topics)


def foreign_key(builder: StreamsBuilder, topics: Topics) -> None:
    left = builder.table(topics.source("left"), key=TEXT, value=TEXT)
    right = builder.table(topics.source("right"), key=TEXT, value=TEXT)
    out(left.join(right, both, foreign_key=lambda _, value: value.split("-")[0]).to_stream(), topics)


class Seen(Processor):
    """Forwards what was seen of the key; a value that ends with 0 has it forgotten."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._seen: Any = context.get_state_store("seen")

    def process(self, record: Record) -> None:
        before = self._seen.get(record.key)
        self.context.forward(record.with_value(f"{_text(before)}+{record.value}"))
        if record.value.endswith("0"):
            self._seen.delete(record.key)
        else:
            self._seen.put(record.key, last(before or "") + record.value)


def processor(builder: StreamsBuilder, topics: Topics) -> None:
    builder.add_state_store(StoreSpec("seen", key_serde=TEXT, value_serde=TEXT))
    out(braked(builder, topics).process(Seen, "seen"), topics)


PARTS: Mapping[str, Part] = {
    "windows": Part(windows),
    "sessions": Part(sessions),
    "closed-sessions": Part(closed_sessions),
    "outer-join": Part(outer_join, SIDES, borrowed=True, records=meetings),
    "table-join": Part(table_join, ("in", "table")),
    "tables": Part(tables, SIDES, "last"),
    "aggregate": Part(aggregate),
    "regrouped": Part(regrouped, ("table",), tables=("rows",), on_disk=("rows", "per-digit")),
    "reduced": Part(reduced),
    "processor": Part(processor),
    "suppressed": Part(suppressed),
    "cogrouped": Part(cogrouped, SIDES),
    "global-join": Part(global_join, everywhere=("table",)),
    "versioned-join": Part(versioned_join, ("in", "table")),
    "foreign-key": Part(foreign_key, SIDES, "last", borrowed=True, raced=True, records=references),
    # Java restores an update with the time of an earlier one, sent before the same commit: it is sent too early.
    "held": Part(held, ("table",), continued=False),
    # Java's buffer doesn't count the records that it has restored: they are sent late, or never.
    "waiting-join": Part(waiting_join, ("in", "table"), continued=False),
}

CONTINUED = tuple(name for name, part in PARTS.items() if part.continued)

NAME = "take-over:"
"""What the name of the application begins with; its text as JSON follows."""


@dataclass(frozen=True)
class Application:
    """Which parts, from which topics, how slowly. `inputs`: what the names of their topics begin with."""

    inputs: str
    parts: Sequence[str] = CONTINUED
    pause_us: int = 0

    def __str__(self) -> str:
        """Its name for `python -m compat_tests.apps`."""
        return NAME + json.dumps({"inputs": self.inputs, "parts": [*self.parts], "pause_us": self.pause_us})

    @classmethod
    def parse(cls, name: str) -> Application:
        """The application of that name; `ValueError` when it is none."""
        try:
            made = cls(**json.loads(name.removeprefix(NAME)))
        except TypeError as error:
            raise ValueError(f"{name} doesn't name parts of the take-over: {error}") from None
        if unknown := set(made.parts) - PARTS.keys():
            raise ValueError(f"no parts {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
        return made

    def topology(self, application_id: str) -> StreamsBuilder:
        """Our half."""
        builder = StreamsBuilder()
        for name in self.parts:
            PARTS[name].build(builder, Topics(self.inputs, application_id, name, self.pause_us))
        return builder
