"""Ends of paths that look at time or at another source, as programs of ours.

An output of windows has the key `key@start/end`, one of a join the value `left+right`, with `?` for none.

*Guarantees*: the topology follows from the path and its number alone.
*Assumes*: `windows_by_definition.py` and `joins_by_definition.py` say the same, in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compat_tests.random_topologies.plans import Path
from compat_tests.random_topologies.shapes import (
    COUNT,
    HOPPING,
    LETTERS,
    MOST,
    SESSION,
    SLIDING,
    STREAMS,
    TO_TABLE,
    TUMBLING,
    Join,
    Windows,
)
from milestones import JoinWindows, KStream, KTable, SessionWindows, SlidingWindows, TimeWindows, Windowed, serdes

TEXT = serdes.STRING

WINDOWS: Mapping[str, Callable[[Windows], TimeWindows | SlidingWindows | SessionWindows]] = {
    TUMBLING: lambda windows: TimeWindows(windows.size, grace=windows.grace),
    HOPPING: lambda windows: TimeWindows(windows.size, grace=windows.grace, advance=windows.advance),
    SLIDING: lambda windows: SlidingWindows(windows.size, grace=windows.grace),
    SESSION: lambda windows: SessionWindows(windows.size, grace=windows.grace),
}


def windowed(stream: KStream, path: Path, windows: Windows, number: int, output: str) -> None:
    """What is made of windows, to the output topic."""
    if path.end == MOST:
        stream = stream.filter_not(lambda _, value: value is None)
    grouped = stream.group_by_key(name=f"group{number}", key=TEXT, value=TEXT)
    made = grouped.windowed_by(WINDOWS[windows.kind](windows), emit="on_close" if windows.on_close else "on_update")
    store, in_memory = f"store{number}", path.in_memory
    merger = _merged if windows.kind == SESSION else None
    tables: Mapping[str, Callable[[], KTable]] = {
        COUNT: lambda: made.count(store, in_memory=in_memory),
        MOST: lambda: made.reduce(max, store, in_memory=in_memory),
        LETTERS: lambda: made.aggregate(str, _more, merger, store, value=TEXT, in_memory=in_memory),
    }
    named = tables[path.end]().to_stream(_named)
    named.map_values(lambda value: None if value is None else str(value)).to(output, key=TEXT, value=TEXT)


def _named(windowed: Windowed[str], _: object) -> str:
    return f"{windowed.key}@{windowed.start}/{windowed.end}"


def _more(_: str, value: str | None, letters: str) -> str:
    return "".join(sorted(letters + (value or "")))


def _merged(_: str, one: str, other: str) -> str:
    return "".join(sorted(one + other))


def joined(stream: KStream, other: KStream, path: Path, join: Join, number: int, output: str) -> None:
    """The join with the other source, to the output topic."""
    if path.end == STREAMS:
        made = _of_streams(stream, other, path, join, number)
    elif path.end == TO_TABLE:
        table = other.to_table(f"store{number}", key=TEXT, value=TEXT, in_memory=path.in_memory)
        join_to = stream.left_join if join.left_alone else stream.join
        made = join_to(table, both, name=f"join{number}", key=TEXT, value=TEXT)
    else:
        made = _of_tables(stream, other, path, join, number)
    made.to(output, key=TEXT, value=TEXT)


def _of_streams(stream: KStream, other: KStream, path: Path, join: Join, number: int) -> KStream:
    within, name = JoinWindows(join.before, join.after, grace=join.grace), f"join{number}"
    calls: Mapping[str, Callable[..., KStream]]
    calls = {"inner": stream.join, "left": stream.left_join, "outer": stream.outer_join}
    return calls[join.how](
        other, both, within=within, name=name, store=name, in_memory=path.in_memory, key=TEXT, value=TEXT,
        other_value=TEXT,
    )  # fmt: skip


def _of_tables(stream: KStream, other: KStream, path: Path, join: Join, number: int) -> KStream:
    left = stream.to_table(f"left{number}", key=TEXT, value=TEXT, in_memory=path.in_memory)
    right = other.to_table(f"right{number}", key=TEXT, value=TEXT)
    calls: Mapping[str, Callable[..., KTable]]
    calls = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}
    return calls[join.how](right, both, f"store{number}", in_memory=path.in_memory, key=TEXT, value=TEXT).to_stream()


def both(left: str | None, right: str | None) -> str:
    """What a join makes of two values."""
    return f"{'?' if left is None else left}+{'?' if right is None else right}"
