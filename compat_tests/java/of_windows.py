"""Windowed aggregations, as src/OfWindows.java has them: windows of 10 ms, that hop by 4, and close 5 ms after their
end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.java.of_streams import LONG, TEXT, aggregate, append, by_value, initial
from compat_tests.java.of_streams import text as text_of
from compat_tests.java.registry import Registry
from milestones.common.topology import KGroupedStream, KTable, StreamsBuilder
from milestones.common.topology.windowed_stream import Emit, WindowedKStream, Windows
from milestones.common.topology.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from milestones.common.windowed import Windowed

ENTRIES = Registry()

SIZE, GRACE = 10, 5
LONG_MS = 10**12
"""A retention beyond all inputs: Kafka Streams never emits a window whose retention is over when it closes."""
TUMBLING = TimeWindows(SIZE, grace=GRACE)
HOPPING = TimeWindows(SIZE, grace=GRACE, advance=4)
SLIDING = SlidingWindows(SIZE, grace=GRACE)
SESSION = SessionWindows(SIZE, grace=GRACE)

KINDS: dict[str, tuple[Windows, Emit]] = {
    "tumbling": (TUMBLING, "on_update"),
    "hopping": (HOPPING, "on_update"),
    "sliding": (SLIDING, "on_update"),
    "unlimited": (UnlimitedWindows(), "on_update"),
    "tumbling_no_grace": (TimeWindows(SIZE, grace=0), "on_update"),
    "tumbling_on_close": (TUMBLING, "on_close"),
    "hopping_on_close": (HOPPING, "on_close"),
    "sliding_on_close": (SLIDING, "on_close"),
    "session": (SESSION, "on_update"),
    "session_on_close": (SESSION, "on_close"),
}


def keyed(builder: StreamsBuilder) -> KGroupedStream:
    return builder.stream("in").group_by_key()


def merge(key: str, one: str, two: str) -> str | None:
    return append(one, two)


def text(key: Windowed[str], value: Any) -> str:
    """`key@start/end`."""
    return f"{key.key}@{key.start}/{key.end}"


def texts(table: KTable) -> None:
    """Updates with keys as text and values as text."""
    table.to_stream(text).map_values(lambda v: None if v is None else str(v)).to("out", key=TEXT, value=TEXT)


def concatenated(so_far: str, value: str | None) -> str | None:
    return append(so_far, text_of(value))


def aggregated(windowed: WindowedKStream, windows: Windows, options: Any) -> KTable:
    merger = merge if isinstance(windows, SessionWindows) else None
    return windowed.aggregate(initial, aggregate, merger, **options)


def enter(kind: str, windows: Windows, emit: Emit) -> None:
    """`windows_KIND_count`, `_reduce` and `_aggregate`."""
    options: Any = {"retention": LONG_MS} if emit == "on_close" else {}
    ways: dict[str, Callable[[WindowedKStream], KTable]] = {
        "count": lambda windowed: windowed.count(**options),
        "reduce": lambda windowed: windowed.reduce(concatenated, **options),
        "aggregate": lambda windowed: aggregated(windowed, windows, options),
    }
    for name, way in ways.items():

        def program(
            builder: StreamsBuilder, way: Callable[[WindowedKStream], KTable] = way
        ) -> None:
            texts(way(keyed(builder).windowed_by(windows, emit=emit)))

        ENTRIES.dsl(f"windows_{kind}_{name}")(program)


for _kind, (_windows, _emit) in KINDS.items():
    enter(_kind, _windows, _emit)


@ENTRIES.dsl("windows_unlimited_from_20")
def unlimited_from_20(builder: StreamsBuilder) -> None:
    texts(keyed(builder).windowed_by(UnlimitedWindows(20)).count())


@ENTRIES.dsl("windows_tumbling_windowed_keys")
def windowed_keys(builder: StreamsBuilder) -> None:
    keyed(builder).windowed_by(TUMBLING).count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("windows_session_windowed_keys")
def session_keys(builder: StreamsBuilder) -> None:
    keyed(builder).windowed_by(SESSION).count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("windows_tumbling_options")
def options(builder: StreamsBuilder) -> None:
    grouped = keyed(builder)
    texts(grouped.windowed_by(TUMBLING).count("counts", name="counting", retention=180_000))
    texts(grouped.windowed_by(SESSION).count("sessions", name="sessions", caching=False))
    texts(grouped.windowed_by(HOPPING).reduce(concatenated, "unlogged", logging=False))


@ENTRIES.dsl("windows_hopping_in_memory")
def in_memory(builder: StreamsBuilder) -> None:
    texts(keyed(builder).windowed_by(HOPPING).count("counts", in_memory=True))
    texts(keyed(builder).windowed_by(SESSION).count("sessions", in_memory=True))


@ENTRIES.dsl("windows_tumbling_rekeyed")
def rekeyed(builder: StreamsBuilder) -> None:
    texts(builder.stream("in").group_by(by_value, name="by-value").windowed_by(TUMBLING).count())


@ENTRIES.dsl("windows_tumbling_regrouped")
def regrouped(builder: StreamsBuilder) -> None:
    (
        keyed(builder)
        .windowed_by(TUMBLING)
        .count()
        .group_by(lambda k, v: (k.key, v), key=TEXT, value=LONG)
        .reduce(lambda a, v: a + v, lambda a, v: a - v)
        .to_stream()
        .to("out", value=LONG)
    )


@ENTRIES.dsl("windows_tumbling_filtered")
def filtered(builder: StreamsBuilder) -> None:
    counts = keyed(builder).windowed_by(TUMBLING).count()
    texts(counts.filter(lambda k, v: v % 2 == 0).map_values(lambda v: f"n{v}"))
