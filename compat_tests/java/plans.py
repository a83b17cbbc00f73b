"""Random plans: topologies as data, which Java (src/Plans.java) and ours (`plan_program.py`) both interpret.

A plan is a list of operations. Each has its name in `op`, the numbers of the operations whose results it takes in `of`
and `with`, and its choices: names of functions, of stores, windows, options. In text it is JSON.

*Guarantees*: the same seed gives the same plan; every result leads to a sink, so that everything is compared.
*Assumes*: both interpreters know every operation and every function of these tables.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Op: TypeAlias = "dict[str, Any]"

MAPPERS: Final = ("loud", "known", "unless_empty", "first")
"""Value -> value."""
PREDICATES: Final = ("has_value", "not_b", "key_a")
KEYS: Final = ("value", "letter", "both")
"""Key and value -> key."""
PAIRS: Final = ("swapped", "by_letter")
"""Key and value -> key and value."""
EXTRACTORS: Final = ("earlier", "partition_time")

STREAM, TABLE, GROUPED, WINDOWED, ROWS, COUNTS, OF_WINDOWS, EVERYWHERE, BRANCHES = (
    "stream", "table", "grouped", "windowed", "grouped rows", "counts", "table of windows", "global", "branches"
)  # fmt: skip
"""The kinds of results."""

LONG_MS: Final = 10**12
SIZES: Final = (5, 10, 20)
GRACES: Final = (0, 5, 30)


@dataclass
class Draft:
    """A plan in the making. `kinds`: of the results so far; `used`: those that lead somewhere."""

    rng: random.Random
    ops: list[Op] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    used: set[int] = field(default_factory=set)

    def add(self, kind: str, op: str, *of: int, **choices: Any) -> int:
        """One more operation; its number."""
        number = len(self.ops)
        operands = dict(zip(("of", "with"), of, strict=False))
        self.ops.append({"op": op, **operands, **{name: value for name, value in choices.items() if value is not None}})
        self.kinds.append(kind)
        self.used.update(of)
        return number

    def any_of(self, *kinds: str) -> int | None:
        """The number of a result of one of these kinds, rather a late one."""
        found = [number for number, kind in enumerate(self.kinds) if kind in kinds]
        return max(self.rng.choices(found, k=2)) if found else None

    def maybe(self, value: Any, chance: float = 0.5) -> Any:
        return value if self.rng.random() < chance else None

    def name(self, prefix: str) -> str:
        return f"{prefix}{len(self.ops)}"

    def options(self) -> dict[str, Any]:
        """How a table is kept."""
        if self.rng.random() < 0.5:
            return {}
        keep = self.rng.choice([None, None, "uncached", "unlogged", "in_memory"])
        return {"store": self.name("store-"), "keep": keep}


def random_plan(rng: random.Random, most: int = 10) -> str:
    """A plan, as text."""
    draft = Draft(rng)
    topics = [f"in{number}" for number in range(rng.randint(1, 3))]
    for topic in topics:
        if rng.random() < 0.7:
            draft.add(STREAM, "stream", topic=topic, extractor=draft.maybe(rng.choice(EXTRACTORS), 0.15))
        else:
            draft.add(TABLE, "table", topic=topic, **draft.options())
    if rng.random() < 0.2:
        draft.add(EVERYWHERE, "global", topic="everywhere")
    for _ in range(rng.randint(2, most)):
        rng.choice(_STEPS)(draft)
    for number in range(len(draft.ops)):
        if number not in draft.used:
            _end(draft, number)
    settings = {"dsl_store_format": "headers"} if rng.random() < 0.2 else {}
    return text_of({"ops": draft.ops, "settings": settings})


def random_plan_of(seed: object, number: int) -> str:
    """A plan, the same for the same seed and number."""
    return random_plan(random.Random(f"{seed} {number}"))


def text_of(plan: Mapping[str, Any]) -> str:
    """A plan as text, always the same."""
    return json.dumps(plan, sort_keys=True, separators=(",", ":"))


def is_plan(name: str) -> bool:
    """Whether the name of a topology is a plan."""
    return name.startswith("{")


def topics_of(plan: Mapping[str, Any]) -> list[str]:
    """The input topics."""
    return sorted({op["topic"] for op in plan["ops"] if op["op"] in ("stream", "table", "global")})


# ---- the steps; each does nothing where there is nothing to take


def _simple(draft: Draft) -> None:
    """An operator that a stream and a table have."""
    of = draft.any_of(STREAM, TABLE)
    if of is None:
        return
    kind, rng = draft.kinds[of], draft.rng
    kept = draft.options() if kind == TABLE and rng.random() < 0.4 else {}
    op = rng.choice(["filter", "filter_not", "map_values", "map_values_with_key"])
    function = rng.choice(PREDICATES if "filter" in op else MAPPERS)
    draft.add(kind, op, of, f=None if op == "map_values_with_key" else function, **kept)


def _of_stream(draft: Draft) -> None:
    of, rng = draft.any_of(STREAM), draft.rng
    if of is None:
        return
    choices: dict[str, Callable[[], Any]] = {
        "map": lambda: draft.add(STREAM, "map", of, f=rng.choice(PAIRS)),
        "select_key": lambda: draft.add(STREAM, "select_key", of, f=rng.choice(KEYS)),
        "flat_map_values": lambda: draft.add(STREAM, "flat_map_values", of),
        "repartition": lambda: draft.add(STREAM, "repartition", of, name=draft.maybe(draft.name("again-"))),
        "to_table": lambda: draft.add(TABLE, "to_table", of, **draft.options()),
        "process": lambda: draft.add(STREAM, "process", of, store=draft.name("seen-")),
        "process_values": lambda: draft.add(STREAM, "process_values", of, store=draft.name("seen-")),
    }
    rng.choice([*choices.values()])()


def _merge(draft: Draft) -> None:
    one, other = draft.any_of(STREAM), draft.any_of(STREAM)
    if one is not None and other is not None and one != other:
        draft.add(STREAM, "merge", one, other)


def _split(draft: Draft) -> None:
    of = draft.any_of(STREAM)
    if of is None:
        return
    predicates = draft.rng.sample(PREDICATES, draft.rng.randint(1, 2))
    split = draft.add(BRANCHES, "split", of, predicates=predicates, name=draft.name("split-"))
    for number in range(len(predicates) + 1):
        draft.add(STREAM, "branch", split, n=number)


def _group(draft: Draft) -> None:
    of, rng = draft.any_of(STREAM, TABLE), draft.rng
    if of is None:
        return None
    if draft.kinds[of] == TABLE:
        rows = draft.add(ROWS, "group_rows", of, name=draft.maybe(draft.name("rows-"), 0.3))
        return _aggregate(draft, rows)
    if rng.random() < 0.5:
        grouped = draft.add(GROUPED, "group_by_key", of, name=draft.maybe(draft.name("by-key-"), 0.3))
    else:
        grouped = draft.add(GROUPED, "group_by", of, f=rng.choice(KEYS), name=draft.maybe(draft.name("by-"), 0.3))
    if rng.random() < 0.4:
        return _windows(draft, grouped)
    return _aggregate(draft, grouped)


def _aggregate(draft: Draft, of: int) -> None:
    op = draft.rng.choice(["count", "reduce", "aggregate"])
    made = draft.add(COUNTS if op == "count" else TABLE, op, of, **draft.options())
    if op == "count":
        draft.add(TABLE, "numbers", made)


def _windows(draft: Draft, grouped: int) -> None:
    rng = draft.rng
    kind = rng.choice(["tumbling", "hopping", "sliding", "session"])
    closing = draft.maybe("on_close", 0.3)
    windows = draft.add(
        WINDOWED, "windowed", grouped, shape=kind, size=rng.choice(SIZES), grace=rng.choice(GRACES), emit=closing
    )
    suppressed = closing is None and rng.random() < 0.3
    table = draft.add(
        OF_WINDOWS, rng.choice(["count", "reduce", "aggregate"]), windows, **draft.options(),
        retention=LONG_MS if closing or suppressed else draft.maybe(LONG_MS, 0.3),
    )  # fmt: skip
    if suppressed:
        table = draft.add(OF_WINDOWS, "suppress_windows", table)
    draft.add(STREAM, "to_texts", table)


def _join(draft: Draft) -> None:
    rng, left = draft.rng, draft.any_of(STREAM)
    other = draft.any_of(STREAM, TABLE, EVERYWHERE)
    if left is None or other is None:
        return
    how = rng.choice(["inner", "left"])
    if draft.kinds[other] == EVERYWHERE:
        draft.add(STREAM, "join_global", left, other, how=how, f=rng.choice(KEYS))
    elif draft.kinds[other] == TABLE:
        draft.add(STREAM, "join_table", left, other, how=how)
    else:
        store = draft.maybe(draft.name("joined-"))
        after = rng.choice([0, 7, 10])  # windows of 0 ms without grace differ on purpose
        draft.add(
            STREAM, "join_streams", left, other, how=rng.choice(["inner", "left", "outer"]), store=store,
            before=rng.choice([0, 3, 10]) if after else rng.choice([3, 10]), after=after, grace=rng.choice(GRACES),
        )  # fmt: skip


def _join_tables(draft: Draft) -> None:
    rng, left, right = draft.rng, draft.any_of(TABLE), draft.any_of(TABLE)
    if left is None or right is None or left == right:
        return
    if rng.random() < 0.4:
        draft.add(TABLE, "join_foreign", left, right, how=rng.choice(["inner", "left"]), **draft.options())
    else:
        draft.add(TABLE, "join_tables", left, right, how=rng.choice(["inner", "left", "outer"]), **draft.options())


def _of_table(draft: Draft) -> None:
    of = draft.any_of(TABLE)
    if of is None:
        return
    if draft.rng.random() < 0.3:
        draft.add(TABLE, "suppress_time", of)
    else:
        draft.add(STREAM, "to_stream", of)


_STEPS: Final[Sequence[Callable[[Draft], None]]] = (
    _simple, _simple, _of_stream, _of_stream, _of_stream, _merge, _split, _group, _group, _group, _join, _join,
    _join_tables, _of_table,
)  # fmt: skip


def _end(draft: Draft, number: int) -> None:
    """A sink for the result."""
    if draft.kinds[number] in (EVERYWHERE, BRANCHES):
        return
    if draft.kinds[number] == TABLE:
        number = draft.add(STREAM, "to_stream", number)
    draft.add("nothing", "to", number, topic=f"out{number}")
