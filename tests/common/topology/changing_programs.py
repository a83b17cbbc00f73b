"""Random topologies whose functions change what they are given, or, `pure`, change copies of it.

`python -m tests.common.topology.changing_programs --runs 1000` compares both, each time of another topology, on each
stage in turn, with a cache and without one, in memory and on disk. It prints how many runs each had, which operators
were in them, and the runs that differed; with any of these its exit code is 1.

*Guarantees*: the same seed gives the same topology and the same records, pure or not.
"""

from __future__ import annotations

import argparse
import copy
import logging
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from milestones import (
    FixedKeyProcessor,
    JoinWindows,
    KStream,
    KTable,
    Processor,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    ValueTransformer,
)
from milestones.common.records import Output
from milestones.flags import STAGES
from milestones.testing import TopologyTestDriver

Functions = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What is made of a function that changes its arguments."""


def impure(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def pure(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` on copies of its arguments."""
    return lambda *arguments: function(*copy.deepcopy(arguments))


def add(_key: str, value: dict, total: dict) -> dict:
    total["x"] = total.get("x", 0) + value.get("x", 0)
    total.setdefault("seen", []).append(value.get("x", 0))
    value["x"] = -1000
    return total


def subtract(_key: str, value: dict, total: dict) -> dict:
    total["x"] = total.get("x", 0) - value.get("x", 0)
    total.setdefault("gone", []).append(value.get("x", 0))
    value["x"] = -2000
    return total


def merge(_key: str, one: dict, other: dict) -> dict:
    one["x"] = one.get("x", 0) + other.get("x", 0)
    one.setdefault("seen", []).extend(other.get("seen", []))
    other["x"] = -3000
    return one


def plus(total: dict, value: dict) -> dict:
    total["x"] = total.get("x", 0) + value.get("x", 0)
    value["x"] = -4000
    return total


def minus(total: dict, value: dict) -> dict:
    total["x"] = total.get("x", 0) - value.get("x", 0)
    value["x"] = -5000
    return total


def mark(value: dict) -> dict:
    value["x"] = value.get("x", 0) + 1
    value.setdefault("marks", []).append(len(value))
    return value


def mark_two(value: dict) -> list[dict]:
    value["x"] = value.get("x", 0) + 2
    return [value, value]


def join(left: dict | None, right: dict | None) -> dict:
    joined = {"x": 0} if left is None else left
    joined["x"] = joined.get("x", 0) + (0 if right is None else right.get("x", 0))
    if right is not None:
        right["x"] = -6000
    return joined


def join_into_right(left: dict | None, right: dict | None) -> dict:
    return join(right, left)


class Forwarding(Processor):
    """Sends a value twice, and changes it afterwards."""

    def process(self, record: Any) -> None:
        self.context.forward(record)
        self.context.forward(record.with_timestamp(record.timestamp + 1))


def _processors(of: Functions) -> Callable[[], Any]:
    changed = of(mark)

    class Sending(FixedKeyProcessor):
        """Sends what it has made of a value, twice."""

        def process(self, record: Any) -> None:
            made = changed(record.value)
            self.context.forward(record.with_value(made))
            self.context.forward(record.with_value(made))

    return Sending


def _transformers(of: Functions) -> Callable[[], Any]:
    changed = of(mark)

    class Marking(ValueTransformer):
        def transform(self, key: Any, value: Any) -> Any:
            return None if value is None else changed(value)

    return Marking


class Program:
    """One random topology."""

    def __init__(self, seed: int, of: Functions) -> None:
        self.choose, self.of, self.builder = random.Random(seed), of, StreamsBuilder()
        self._number = 0
        stream = self.builder.stream("i", key=str, value=dict)
        self.streams: list[KStream] = [stream, self.builder.stream("j", key=str, value=dict)]
        self.tables: list[KTable] = [self.builder.table("t", key=str, value=dict)]
        self.versioned = self.builder.table("v", "versions", key=str, value=dict, history=1_000)
        self.everywhere = self.builder.global_table("g", "everywhere", key=str, value=dict)
        steps = [self.on_stream, self.on_table, self.aggregated, self.joined_streams, self.joined_tables,
                 self.joined_table, self.joined_versions, self.joined_everywhere, self.grouped_table]  # fmt: skip
        for _ in range(self.choose.randint(3, 7)):
            self.choose.choice(steps)()
        for stream in self.streams:
            self.sink(stream)
        for table in self.tables:
            self.sink(table.to_stream())

    def name(self, what: str = "s") -> str:
        self._number += 1
        return f"{what}{self._number}"

    def sink(self, stream: KStream) -> None:
        stream.to(self.name("out"), key=str, value=dict)

    def store(self) -> dict[str, Any]:
        return {"store": self.name(), "key": str, "value": dict} if self.choose.random() < 0.5 else {}

    def stream(self) -> KStream:
        return self.choose.choice(self.streams)

    def table(self) -> KTable:
        return self.choose.choice(self.tables)

    def on_stream(self) -> None:
        of, stream = self.of, self.stream()
        self.streams.append(self.choose.choice([
            lambda: stream.map_values(of(mark)),
            lambda: stream.map(of(lambda key, value: (key, mark(value)))),
            lambda: stream.flat_map_values(of(mark_two)),
            lambda: stream.flat_map(of(lambda key, value: [(key, each) for each in mark_two(value)])),
            lambda: stream.process(Forwarding),
            lambda: stream.process_values(_processors(of)),
            lambda: self.branches(stream),
            lambda: stream.filter(lambda _, value: value.get("x", 0) % 3),
            lambda: stream.merge(self.stream()),
            lambda: stream.select_key(lambda key, value: f"{key}{value.get('x', 0) % 2}").repartition(
                key=str, value=dict),
        ])())  # fmt: skip

    def branches(self, stream: KStream) -> KStream:
        name = self.name("split")
        by_name = stream.split(name=name).branch(lambda _, value: value.get("x", 0) % 2, name="odd").default_branch()
        odd, other = by_name.values()
        self.streams.append(odd.map_values(self.of(mark)))
        return other

    def on_table(self) -> None:
        of, table, store = self.of, self.table(), self.store()
        self.tables.append(self.choose.choice([
            lambda: table.map_values(of(mark), **store),
            lambda: table.filter(lambda _, value: value.get("x", 0) % 3, **store),
            lambda: table.transform_values(_transformers(of), **store),
            lambda: table.suppress(after=20, name=self.name("suppressed")),
            lambda: table.to_stream().to_table(self.name(), key=str, value=dict),
        ])())  # fmt: skip

    def grouped_stream(self) -> Any:
        stream = self.stream()
        if self.choose.random() < 0.3:
            return stream.group_by(lambda key, value: f"{key}-", name=self.name("by"), key=str, value=dict)
        return stream.group_by_key(name=self.name("by"), key=str, value=dict)

    def aggregated(self) -> None:
        of, grouped, store = self.of, self.grouped_stream(), self.name()
        windows: Any = self.choose.choice([
            TimeWindows(20, grace=30), TimeWindows(20, advance=7, grace=30), SlidingWindows(20, grace=30),
            SessionWindows(9, grace=30),
        ])  # fmt: skip
        merger = {"merger": of(merge)} if isinstance(windows, SessionWindows) else {}
        emit = self.choose.choice(["on_update", "on_update", "on_close"])

        def windowed() -> KTable:
            table = grouped.windowed_by(windows, emit=emit).aggregate(
                dict, of(add), store=store, value=dict, caching=emit == "on_update", **merger
            )
            if emit == "on_update" and self.choose.random() < 0.3:
                table = table.suppress(until="window_closes", name=self.name("suppressed"))
            return self.flat(table)

        self.tables.append(self.choose.choice([
            lambda: grouped.aggregate(dict, of(add), store, value=dict),
            lambda: grouped.reduce(of(plus), store, value=dict),
            lambda: grouped.cogroup(of(add)).cogroup(self.grouped_stream(), of(add)).aggregate(
                dict, store, key=str, value=dict),
            lambda: self.flat(grouped.windowed_by(windows, emit=emit).reduce(of(plus), store, value=dict)),
            lambda: self.flat(grouped.cogroup(of(add)).cogroup(self.grouped_stream(), of(add)).windowed_by(
                windows).aggregate(dict, store=store, key=str, value=dict, **merger)),
            windowed, windowed, windowed,
        ])())  # fmt: skip

    def flat(self, windows: KTable) -> KTable:
        """The windows by one key each."""
        return windows.group_by(
            lambda window, value: (f"{window.key}@{window.start}", value), name=self.name("by"), key=str, value=dict
        ).reduce(self.of(plus), self.of(minus), self.name(), key=str, value=dict)

    def grouped_table(self) -> None:
        of, store = self.of, self.name()
        grouped = self.table().group_by(
            of(lambda key, value: (key[:1], mark(value) and {"x": value.get("x", 0)})), name=self.name("by"), key=str,
            value=dict,
        )  # fmt: skip
        self.tables.append(self.choose.choice([
            lambda: grouped.aggregate(dict, of(add), of(subtract), store, value=dict),
            lambda: grouped.reduce(of(plus), of(minus), store, value=dict),
        ])())  # fmt: skip

    def joined_streams(self) -> None:
        left, right, of = self.stream(), self.stream(), self.of
        how = self.choose.choice(["join", "left_join", "outer_join"])
        joiner = of(self.choose.choice([join, join_into_right]))
        within = JoinWindows(15, grace=self.choose.choice([0, 30]))
        for_left = left.select_key(lambda key, _: key).repartition(key=str, value=dict, name=self.name("r"))
        for_right = right.select_key(lambda key, _: key).repartition(key=str, value=dict, name=self.name("r"))
        if self.choose.random() < 0.3:
            for_right = for_left
        self.streams.append(getattr(for_left, how)(for_right, joiner, within=within, name=self.name("join")))

    def joined_table(self) -> None:
        stream = self.stream().select_key(lambda key, _: key).repartition(key=str, value=dict, name=self.name("r"))
        how = self.choose.choice(["join", "left_join"])
        self.streams.append(getattr(stream, how)(self.table(), self.of(self.choose.choice([join, join_into_right]))))

    def joined_versions(self) -> None:
        """With the row of a record's time; with a `grace`, records wait for it."""
        stream = self.stream().select_key(lambda key, _: key).repartition(key=str, value=dict, name=self.name("r"))
        how, grace = self.choose.choice(["join", "left_join"]), self.choose.choice([{}, {"grace": 20}])
        joiner = self.of(self.choose.choice([join, join_into_right]))
        self.streams.append(getattr(stream, how)(self.versioned, joiner, name=self.name("join"), **grace))

    def joined_everywhere(self) -> None:
        how, joiner = self.choose.choice(["join", "left_join"]), self.choose.choice([join, join_into_right])
        of = self.of
        self.streams.append(getattr(self.stream(), how)(self.everywhere, of(joiner), on=lambda key, _: key[:1]))

    def joined_tables(self) -> None:
        left, right, of, store = self.table(), self.table(), self.of, self.store()
        joiner = of(self.choose.choice([join, join_into_right]))
        if self.choose.random() < 0.4:
            by = of(lambda key, value: f"{key[:1]}" if mark(value)["x"] % 5 else None)
            how = self.choose.choice(["join", "left_join"])
            self.tables.append(getattr(left, how)(right, joiner, foreign_key=by, name=self.name("fk"), **store))
        else:
            how = self.choose.choice(["join", "left_join", "outer_join"])
            self.tables.append(getattr(left, how)(right, joiner, **store))


def outputs(
    seed: int, of: Functions, *, cache: int, persistent: bool, records: int = 24, stage: str = "baseline"
) -> dict[str, list[Output]]:
    """All that a topology writes, changelogs included, for records that are in order of time or not."""
    choose = random.Random(f"records {seed}")
    with TopologyTestDriver(
        Program(seed, of).builder, statestore_cache_max_bytes=cache, persistent=persistent, milestones=stage
    ) as driver:
        time = 1000
        for _ in range(records):
            time += choose.randint(-12, 18)
            topic, key = choose.choice("iijjttvg"), choose.choice("ab")
            value = None if topic in "tvg" and choose.random() < 0.1 else {"x": choose.randint(1, 9)}
            driver.create_input_topic(topic, key=str, value=dict).pipe(key, value, timestamp=max(time, 1))
        return driver.produced()


OPERATOR = re.compile(
    r"(?:Processor|Sink|Source): (?:((?:KSTREAM|KTABLE)-[A-Z-]+?)-?\d{10}|(fk|join|split|suppressed)\d)"
)
CACHES = 0, 10_000_000


def operators(seed: int) -> set[str]:
    """The operators of a topology, by the names that Kafka Streams generates for them, or by those that they have."""
    described = str(Program(seed, impure).builder.build().describe())
    return {generated or given for generated, given in OPERATOR.findall(described)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Functions that change their arguments, beside some that don't.")
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first run")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    ways = [(stage.name, cache) for cache in CACHES for stage in STAGES]
    ran, seen, differ = Counter[tuple[str, int]](), Counter[str](), list[int]()
    for seed in range(asked.first, asked.first + asked.runs):
        stage, cache = way = ways[seed % len(ways)]
        how: dict[str, Any] = {"cache": cache, "persistent": seed % 8 == 7, "stage": stage}
        if outputs(seed, impure, **how) != outputs(seed, pure, **how):
            differ.append(seed)
        ran[way] += 1
        seen.update(operators(seed))
    for (stage, cache), count in ran.items():
        print(f"{stage}, cache of {cache} bytes: {count} runs")
    print("runs with each operator: " + ", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
    print(f"{asked.runs} runs, {len(differ)} differ{f': seeds {differ}' if differ else ''}")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
