"""What a record of a work costs, by part, on each stage; and how that differs from the numbers that are kept in
`kept.json`.

*Guarantees*: needs no broker. A stage is measured in a process of its own, always on the same records.
*Assumes*: kept numbers are compared with those of the same build of Python only: another compiler makes other
instructions of the same source.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

from rich.table import Table

from benchmarks.errors import BenchmarkError
from benchmarks.instructions.counters import Kind, counted, wrapped
from benchmarks.instructions.job import PARTS, Plan
from benchmarks.report import columns

Place = tuple[str, str, Kind]
"""Work, stage and counter."""

KEPT = Path(__file__).with_name("kept.json")
TOLD = 0.03
"""A change of more than that is told."""
LIMIT_S = 1_800
ALL = "all"


@dataclass(frozen=True)
class Cost:
    """Of a work on one stage: per record, by part, in instructions or nanoseconds."""

    work: str
    stage: str
    kind: Kind
    parts: Mapping[str, float]

    @property
    def all(self) -> float:
        """Of all parts."""
        return sum(self.parts.values())

    def of(self, part: str) -> float:
        """Of one part, or of `ALL`."""
        return self.all if part == ALL else self.parts.get(part, 0.0)


def measure(
    works: Sequence[str], stages: Sequence[str], kind: Kind, log: Callable[[str], None], **sizes: int
) -> list[Cost]:
    """One after the other. `sizes`: as in `Plan`."""
    found = []
    for work, stage in product(works, stages):
        cost = _measured(Plan(stage, work, kind, **sizes))
        log(f"{work}, {stage}: {cost.all:,.0f} {_unit(kind)} per record")
        found.append(cost)
    return found


def _measured(plan: Plan) -> Cost:
    with tempfile.TemporaryDirectory(prefix="milestones-bench-") as directory:
        counts, state = Path(directory, "counts"), Path(directory, "state")
        counts.mkdir()
        state.mkdir()
        job = [sys.executable, "-m", "benchmarks.instructions.job", plan.text(), str(state)]
        ran = subprocess.run(
            wrapped(plan.kind, job, counts), capture_output=True, text=True, timeout=LIMIT_S, check=False,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # else dictionaries have other collisions each time
        )  # fmt: skip
        if ran.returncode:
            raise BenchmarkError(f"{plan.work}, {plan.stage}: exit code {ran.returncode}\n{ran.stderr[-2000:]}")
        spent = counted(plan.kind, json.loads(ran.stdout.splitlines()[-1]), counts)
    records = {"consume": plan.total}
    per_record = {part: spent.get(part, 0) / records.get(part, plan.total - plan.records) for part in PARTS}
    return Cost(plan.work, plan.stage, plan.kind, per_record)


def _unit(kind: Kind) -> str:
    return "instructions" if kind == "instructions" else "ns of CPU"


def tables(costs: Sequence[Cost]) -> list[Table]:
    """One per work, with a column per stage."""
    works = dict.fromkeys(cost.work for cost in costs)
    return [_table(work, [cost for cost in costs if cost.work == work]) for work in works]


def _table(work: str, costs: Sequence[Cost]) -> Table:
    title = f"{work}: {_unit(costs[0].kind)} per record"
    shown = columns(title, "part", *[cost.stage for cost in costs], left=1)
    for part in (*PARTS, ALL):
        if part == ALL:
            shown.add_section()
        shown.add_row(part, *[f"{cost.of(part):,.0f}" for cost in costs])
    return shown


# -- what is kept


def build() -> str:
    """Which Python this is, as far as its instructions go."""
    options = crc32(str(sysconfig.get_config_var("CONFIG_ARGS")).encode())
    return f"{sys.version.split()[0]}, {sysconfig.get_config_var('CC')}, {options:08x}"


def keep(costs: Sequence[Cost], sizes: Mapping[str, int], file: Path = KEPT) -> None:
    """Keep these numbers: in place of the same works' on the same stages, beside the others of the same Python and
    sizes."""
    kept = _kept(file)
    merged = {**(_comparable(kept, sizes) or {}), **{_place(cost): cost for cost in costs}}
    kept[build()] = {"sizes": dict(sizes), "costs": [asdict(cost) for cost in merged.values()]}
    file.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", "utf-8")


def differences(costs: Sequence[Cost], sizes: Mapping[str, int], file: Path = KEPT) -> list[str]:
    """In words, how the costs differ from the kept ones, a line per stage; or why they can't be compared."""
    before = _comparable(_kept(file), sizes)
    if before is None:
        return [f"no numbers are kept of this Python ({build()}) and these sizes"]
    return [
        f"{cost.work}, {cost.stage}: " + _difference(cost, before[_place(cost)])
        for cost in costs
        if _place(cost) in before
    ] or ["none of these is kept, as counted here"]


def _kept(file: Path) -> dict[str, Any]:
    """What is kept, by build of Python."""
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def _comparable(kept: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[Place, Cost] | None:
    """What is kept of this Python and these sizes, None when nothing is."""
    own = kept.get(build())
    if own is None or own["sizes"] != dict(sizes):
        return None
    return {_place(cost): cost for cost in (Cost(**one) for one in own["costs"])}


def _place(cost: Cost) -> Place:
    return cost.work, cost.stage, cost.kind


def _difference(cost: Cost, before: Cost) -> str:
    changed = list(_changes(cost, before))
    whole = f"{cost.all / before.all - 1:+.1%} of the kept {before.all:,.0f}"
    return f"{whole}; {', '.join(changed)}" if changed else f"{whole}; no part by more than {TOLD:.0%} of all"


def _changes(cost: Cost, before: Cost) -> Iterator[str]:
    for part in PARTS:
        by = cost.of(part) - before.of(part)
        if abs(by) > TOLD * before.all:
            yield f"{part} {by:+,.0f}"
