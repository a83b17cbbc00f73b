"""A plan as flows of the reference interpreter: what it must do, in plain Python.

*Guarantees*: uses nothing of the runtime.
*Assumes*: `program.py` says the same, as a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from compat_tests.cases.flows import SLOTS, as_long, plus_one
from compat_tests.oracles.flows import Entry, Flow
from compat_tests.oracles.rows import Row
from compat_tests.random_topologies.plans import FAN_OUT, NEED_VALUES, Path, Plan

Pair = tuple[bytes | None, bytes | None]
Numbered = tuple[bytes | None, bytes | None, int]


STEPS: Mapping[str, Callable[[bytes | None, bytes | None], list[Pair]]] = {
    "drop-keyless": lambda key, value: [] if key is None else [(key, value)],
    "erase-empty": lambda key, value: [(key, value or None)],
    "keep-short": lambda key, value: [(key, value)] if len(value or b"") < 3 else [],
    "letters": lambda key, value: [(key, (value or b"")[at : at + 1]) for at in range(len(value or b""))],
    "tag": lambda key, value: [(key, (value or b"") + b"!")],
    "by-value": lambda key, value: [(value, value)],
    "swap": lambda key, value: [(value, key)],
}
SEVERAL = ("letters",)
"""Steps that make several outputs of one record, and number them."""


def flows(plan: Plan, thinned: bool = False) -> list[Flow]:
    """What the plan must do, path by path; of paths that look at time or at another source `shaped_judgement.py` says
    it. `thinned`: behind a cache that leaves out changes of tables."""
    return [*numbered_flows(plan, thinned).values()]


def numbered_flows(plan: Plan, thinned: bool = False) -> dict[int, Flow]:
    """The flows, by the numbers of their paths."""
    return {
        number: replace(_flow(path, number), thinned=thinned and path.stateful and path.end != "slots")
        for number, path in enumerate(plan.paths)
        if not path.shaped
    }


def _flow(path: Path, number: int) -> Flow:
    names = tuple(f"in{source}" for source in path.sources)
    output, store, expand = f"out{number}", None if path.in_memory else f"store{number}", expansion(path)
    match path.end:
        case "copy":
            return Flow(names, output, expand)
        case "count":
            return Flow(names, output, expand, as_long, plus_one, store)
        case "join-texts":
            text = Flow(names, output, expand, step=lambda text, value: (text or b"")[-9:] + value, store=store)
        case "latest":
            text = Flow(names, output, expand, step=lambda _, value: value, store=store)
        case "marked":
            text = Flow(names, output, expand, step=lambda _, value: value, store=store, rows=_marked)
        case "slots":
            text = replace(SLOTS, sources=names, output=output, expand=_timed(expand), store=store)
        case _:
            text = Flow(names, output, expand, step=lambda _, value: value, store=store, later=lambda _, now: now)
    return replace(text, counts=False)


def expansion(path: Path) -> Callable[[Row], Iterable[Numbered]]:
    """One input as the payloads that the path's end gets of it."""
    names = (*path.steps, *path.more)
    needs_key = (path.stateful or path.again > 0) if path.join is None else path.again > 0 and not path.keyless
    needs_value = path.end in NEED_VALUES

    def expand(row: Row) -> Iterable[Numbered]:
        found: list[Numbered] = [(row.key, row.value, 0)]
        for name in names:
            found = [out for one in found for out in _apply(name, *one)]
        return [
            (key, value, ordinal)
            for key, value, ordinal in found
            if not (needs_key and key is None) and not (needs_value and value is None)
        ]

    return expand


def _marked(key: bytes, value: bytes, timestamp: int) -> Iterable[tuple[bytes, Entry]]:
    """What `Marks` leaves of a row."""
    return [(key, Entry(timestamp, value + b"'"))]


def _timed(expand: Callable[[Row], Iterable[Numbered]]) -> Callable[[Row], Iterable[tuple[bytes | None, Any, int]]]:
    """With the record's timestamp beside each value."""
    return lambda row: [(key, (value, row.timestamp), ordinal) for key, value, ordinal in expand(row)]


def _apply(name: str, key: bytes | None, value: bytes | None, ordinal: int) -> list[Numbered]:
    pairs = STEPS[name](key, value)
    if name not in SEVERAL:
        return [(*pair, ordinal) for pair in pairs]
    return [(*pair, ordinal * FAN_OUT + at) for at, pair in enumerate(pairs)]
