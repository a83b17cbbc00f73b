"""Operators and stores that decide by the time that they have seen: what is late, what closes, what is gone.

*Guarantees*: one sub-topology; all results go to `out`, the operator's name before the key. Of one partition, what is
written is a function of the input, whatever restarts or batches are between its records.
*Assumes*: times of records are positive.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from compat_tests.harness.feed import Sent
from milestones import (
    JoinWindows,
    KStream,
    KTable,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Windowed,
    serdes,
    stores,
)
from milestones.testing import TopologyTestDriver

TEXT = serdes.STRING
SIZE_MS, TTL_MS = 10, 100
FAR_MS = 1_000
"""Beyond all windows, graces and times to live."""


class Remembered(Processor[str, str, str, str]):
    """The value that a key had before, for the time that it lives: looked up first, then put."""

    def process(self, record: Record[str, str]) -> None:
        store: Any = self.context.get_state_store("lives")
        self.context.forward(record.with_value(str(store.get(record.key))))
        store.put(record.key, record.value)


def times(app: str) -> StreamsBuilder:
    """Windows of each kind, by update, on close, suppressed; updates kept back; joins of streams; a time to live."""
    builder = StreamsBuilder().add_state_store(stores.key_value("lives", TEXT, TEXT, ttl=TTL_MS))
    stream = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    grouped, tumbling = stream.group_by_key(), TimeWindows(SIZE_MS, grace=0)

    def out(name: str) -> Callable[[KStream[Any, Any]], object]:
        def to(results: KStream[Any, Any]) -> None:
            named = results.select_key(lambda key, _: f"{name} {shown(key)}").map_values(str)
            named.to(f"{app}-out", key=TEXT, value=TEXT)

        return to

    def table(name: str, rows: KTable[Any, Any]) -> None:
        out(name)(rows.to_stream())

    table("tumbling", grouped.windowed_by(tumbling, on_late=out("late")).count("tumbling"))
    table("hopping", grouped.windowed_by(TimeWindows(SIZE_MS, advance=4, grace=3)).count("hopping"))
    table("sliding", grouped.windowed_by(SlidingWindows(SIZE_MS, grace=0)).count("sliding"))
    table("session", grouped.windowed_by(SessionWindows(SIZE_MS, grace=0)).count("session"))
    on_close = grouped.windowed_by(tumbling, emit="on_close", on_late=out("late for a close"))
    table("on-close", on_close.reduce(lambda one, other: f"{one}{other}", "on-close", value=TEXT))
    table("closed session", grouped.windowed_by(SessionWindows(SIZE_MS, grace=0), emit="on_close").count("closed"))
    counts = grouped.windowed_by(tumbling).count("suppressed")
    table("suppressed", counts.suppress(until="window_closes", name="held"))
    table("kept back", stream.to_table("rows", key=TEXT, value=TEXT).suppress(after=100, name="held-rows"))
    some = stream.filter(lambda _, value: "2" not in value)
    joined: dict[str, Any] = {"key": TEXT, "value": TEXT, "other_value": TEXT}
    pair = "{}+{}".format
    out("left")(stream.left_join(some, pair, within=JoinWindows(3, grace=0), store="left", **joined))
    out("outer")(stream.outer_join(some, pair, within=JoinWindows(3, grace=20), store="outer", **joined))
    out("inner")(stream.join(some, pair, within=JoinWindows(5, grace=5), store="inner", **joined))
    out("lives")(stream.process(Remembered, "lives"))
    return builder


def shown(key: Any) -> str:
    return f"{key.key}@{key.start}" if isinstance(key, Windowed) else str(key)


def late_records(now: int) -> list[list[Sent]]:
    """Two windows' worth, a record that closes them, two that are late for them, and so on: what comes at once."""
    close, far = now + FAR_MS // 2, now + 3 * FAR_MS
    rounds = [
        [("a", "1", now + 1), ("a", "2", now + 2)],
        [("z", "closes", close)],
        [("a", "late", now + 3)],
        [("a", "late, too", now + 5), ("b", "late", now + 4), ("z", "goes on", close + FAR_MS)],
        [("a", "late again", now + 6), ("z", "ends", far)],
    ]
    return [[Sent(key.encode(), value.encode(), time) for key, value, time in some] for some in rounds]


def random_records(rng: random.Random, now: int, count: int = 12) -> list[Sent]:
    """Of few keys, mostly forward in time, often late by less or more than windows and graces are wide."""
    made = []
    for number in range(count):
        now += rng.choice([0, 1, 2, 5, 12, 40, 150])
        time = now - rng.choice([0, 0, 0, 2, 6, 15, 60, 200])
        made.append(Sent(rng.choice([b"a", b"b"]), b"%d" % number, time))
    return made


def expected(records: list[Sent]) -> list[tuple[bytes | None, bytes | None, int]]:
    """What a single process writes of these records, in order."""
    with TopologyTestDriver(times("app")) as driver:
        for sent in records:
            driver.pipe("app-in", sent.key, sent.value, sent.timestamp)
        return [(one.key, one.value, one.timestamp) for one in driver.produced()["app-out"]]
