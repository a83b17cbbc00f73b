"""Small topologies as data: what `program.py` makes into a topology and `interpretation.py` into reference flows.

In text a plan is JSON, so that it can be printed, kept, and handed to a process:

    {"sources": [3], "paths": [{"steps": ["swap"], "end": "count", "partitions": 2}]}

*Guarantees*: `Plan.parse(plan.text()) == plan`; a plan that can't work is refused with what is wrong in it.
*Assumes*: keys and values are text, or missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path as File
from typing import Any

from compat_tests.random_topologies.shapes import (
    HOPPING,
    HOWS,
    JOINED,
    KINDS,
    MOST,
    SHAPED,
    STREAMS,
    TABLES,
    TO_TABLE,
    WINDOWED,
    Join,
    Windows,
)

VALUE_STEPS = ("drop-keyless", "erase-empty", "keep-short", "letters", "tag")
KEY_STEPS = ("by-value", "swap")
"""Steps that change keys: what keeps state by key behind them goes through a repartition topic."""
STEPS = (*VALUE_STEPS, *KEY_STEPS)
STATEFUL = ("count", "join-texts", "latest", "marked", "slots", "table")
NEED_VALUES = (*(end for end in STATEFUL if end != "table"), MOST)
"""Ends that pass records without a value over. Of windows it depends on their kind."""
ENDS = ("copy", *STATEFUL, *SHAPED)

CALLED = 7
FAN_OUT = 16
"""More than the outputs that any one step makes of a record: ordinals are numbers to this base."""


class PlanError(ValueError):
    """A plan that can't work, or text that isn't one."""


@dataclass(frozen=True)
class Path:
    """From some sources, merged, through `steps` to an output topic of its own, of `partitions` partitions.

    `again`: behind the steps through a repartition topic of so many partitions; 0: not. `more`: steps behind it.
    `end`: what is done with the records there. `in_memory`: the store of an end that has one. `windows`, `join`: of an
    end that needs them, and of no other.
    """

    steps: tuple[str, ...]
    end: str
    sources: tuple[int, ...] = (0,)
    again: int = 0
    more: tuple[str, ...] = ()
    in_memory: bool = False
    partitions: int = 1
    windows: Windows | None = None
    join: Join | None = None

    @property
    def stateful(self) -> bool:
        return self.end in (*STATEFUL, *SHAPED)

    @property
    def shaped(self) -> bool:
        """Whether its end looks at time, or at another source."""
        return self.end in SHAPED

    @property
    def keyless(self) -> bool:
        """Whether records without a key come to its end, through a repartition topic too (KIP-962): those of a stream
        that needs no partner."""
        return self.join is not None and self.join.left_alone and self.end != TABLES

    @property
    def rekeyed(self) -> bool:
        """Whether it needs a repartition topic that the plan doesn't name: that of the group, if it groups."""
        return self.stateful and not self.again and any(step in KEY_STEPS for step in self.steps)


@dataclass(frozen=True)
class Plan:
    """Paths side by side. The n-th reads topics of `in0`, `in1`, ..., of as many partitions as `sources` says, writes
    `out<n>` and keeps its state in `store<n>`. `calls`: behind its source each path waits up to so many ms, for one
    value in `CALLED`."""

    paths: tuple[Path, ...]
    sources: tuple[int, ...] = (1,)
    calls: int = 0

    def __post_init__(self) -> None:
        need(bool(self.paths), "a plan needs a path")
        need(bool(self.sources) and min(self.sources) > 0, f"sources have partitions, not {self.sources}")
        need(self.calls >= 0, f"calls take {self.calls} ms")
        for number, path in enumerate(self.paths):
            _check(path, f"path {number}", self.sources)

    @property
    def used(self) -> tuple[int, ...]:
        """The sources that any path reads."""
        joined = {path.join.other for path in self.paths if path.join is not None}
        return tuple(sorted(joined.union(*(path.sources for path in self.paths))))

    @property
    def shaped(self) -> bool:
        """Whether any path is: its inputs come in rounds then (see `running.py`)."""
        return any(path.shaped for path in self.paths)

    def repartitions(self) -> list[str]:
        """The repartition topics, without the application's name."""
        named = {number: "again" if path.again else "group" for number, path in enumerate(self.paths)}
        return [
            f"{named[number]}{number}-repartition"
            for number, path in enumerate(self.paths)
            if path.again or path.rekeyed
        ]

    def text(self) -> str:
        """As JSON, in one line; what is as always is left out."""
        return json.dumps(as_data(self))

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Of JSON, or of a file of it."""
        return cls.of(_load(text))

    @classmethod
    def of(cls, data: Any) -> Plan:
        """Of JSON's own types."""
        given = known_fields(cls, data)
        need(isinstance(given.get("paths"), (list, tuple)), f"a plan has a list of paths, not {given.get('paths')!r}")
        return cls(**{**_tuples(given), "paths": tuple(_path_of(path) for path in given["paths"])})


def _path_of(data: Any) -> Path:
    given = _tuples(known_fields(Path, data))
    shapes = {name: kind(**known_fields(kind, given[name])) for name, kind in _SHAPES.items() if given.get(name)}
    return Path(**{**given, **shapes})


_SHAPES: Mapping[str, Any] = {"windows": Windows, "join": Join}


def need(right: bool, otherwise: str) -> None:
    """Raise `PlanError` unless `right`."""
    if not right:
        raise PlanError(otherwise)


def as_data(part: Any) -> dict[str, Any]:
    """A frozen dataclass of plans as JSON's own types, without fields that have their defaults."""
    defaults = {field.name: field.default for field in fields(part) if field.default is not MISSING}
    kept = {name: getattr(part, name) for name in asdict(part)}
    return {name: _plain(value) for name, value in kept.items() if name not in defaults or value != defaults[name]}


def known_fields(kind: Any, data: Any) -> dict[str, Any]:
    """`data` as arguments of the dataclass `kind`; `PlanError` for what it doesn't have or lacks."""
    need(isinstance(data, Mapping), f"a {kind.__name__} is an object, not {data!r:.80}")
    names = {field.name for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    unknown, missing = sorted(data.keys() - names), sorted(needed - data.keys())
    need(not unknown, f"a {kind.__name__} has no {', '.join(unknown)}; it has {', '.join(sorted(names))}")
    need(not missing, f"a {kind.__name__} needs {', '.join(missing)}")
    return dict(data)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return as_data(value) if hasattr(value, "__dataclass_fields__") else value


def _tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _load(text: str) -> Any:
    try:
        return json.loads(text if text.lstrip().startswith("{") else File(text).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise PlanError(f"no JSON, and no file of it: {text!r:.80}: {error}") from error


def _check(path: Path, where: str, sources: tuple[int, ...]) -> None:
    for step in (*path.steps, *path.more):
        need(step in STEPS, f"{where}: no step {step!r}; there are {', '.join(STEPS)}")
    need(path.end in ENDS, f"{where}: no end {path.end!r}; there are {', '.join(ENDS)}")
    need(len(set(path.sources)) == len(path.sources) > 0, f"{where}: sources {path.sources}: some, none twice")
    need(all(0 <= source < len(sources) for source in path.sources), f"{where}: there are {len(sources)} sources")
    need(path.partitions > 0, f"{where}: its output has {path.partitions} partitions")
    need(path.again >= 0, f"{where}: a repartition topic of {path.again} partitions")
    need(bool(path.again) or not path.more, f"{where}: steps behind a repartition that isn't there")
    # One key's records of one input partition would take two ways, and the order of two ways is chance.
    need(not set(path.more) & set(KEY_STEPS), f"{where}: keys can't be changed again behind a repartition")
    counts = {sources[source] for source in path.sources}
    _check_shapes(path, where, sources)
    co_partitioned = len(counts) == 1 or bool(path.again) or path.rekeyed or not path.stateful
    need(co_partitioned, f"{where}: state by key over topics of {sorted(counts)} partitions")


def _check_shapes(path: Path, where: str, sources: tuple[int, ...]) -> None:
    need((path.end in WINDOWED) == (path.windows is not None), f"{where}: windows, if and only if its end needs them")
    need((path.end in JOINED) == (path.join is not None), f"{where}: a join, if and only if its end is one")
    if path.windows is not None:
        _check_windows(path.windows, where)
    if path.join is not None:
        _check_join(path, path.join, where, sources)


def _check_windows(windows: Windows, where: str) -> None:
    kind, size, advance = windows.kind, windows.size, windows.advance
    need(kind in KINDS, f"{where}: no windows {kind!r}; there are {', '.join(KINDS)}")
    need(size > 0 <= windows.grace, f"{where}: windows of {size} ms with a grace of {windows.grace} ms")
    hops = 0 < advance <= size if kind == HOPPING else advance == 0
    need(hops, f"{where}: {kind} windows of {size} ms advance by {advance} ms")


def _check_join(path: Path, join: Join, where: str, sources: tuple[int, ...]) -> None:
    need(join.how in HOWS, f"{where}: no join {join.how!r}; there are {', '.join(HOWS)}")
    need(0 <= join.other < len(sources), f"{where}: there are {len(sources)} sources")
    need(join.other not in path.sources, f"{where}: a source is joined with another one")
    timed = path.end == STREAMS
    times = join.before + join.after >= 0 <= join.grace if timed else not (join.before or join.after or join.grace)
    need(times, f"{where}: a {path.end} of records from {-join.before} to {join.after} ms apart")
    need(path.end != TO_TABLE or not join.right_alone, f"{where}: a stream has no outer join with a table")
    # What a step makes a key of lies in no partition of the other source's.
    counts = {path.again} if path.again else {sources[source] for source in path.sources}
    need(counts == {sources[join.other]}, f"{where}: joins {sorted(counts)} and {sources[join.other]} partitions")
    rekeyed = any(step in KEY_STEPS for step in path.steps) and not path.again
    need(not rekeyed, f"{where}: keys that were changed are joined behind a repartition only")
    # The last row of a key is chance where its updates come from several partitions.
    one_lane = len(path.sources) == 1 and not any(step in KEY_STEPS for step in path.steps)
    need(path.end != TABLES or one_lane, f"{where}: a table of updates that come several ways")
