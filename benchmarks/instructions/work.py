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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from rich.table import Table

from benchmarks.errors import BenchmarkError
from benchmarks.instructions.counters import Kind, counted, wrapped
from benchmarks.instructions.functions import Function, functions, prepare
from benchmarks.instructions.job import PARTS, Plan
from benchmarks.report import columns

Place = tuple[str, str, Kind]
"""Work, stage and counter."""

KEPT = Path(__file__).with_name("kept.json")
TOLD = 0.03
"""The smallest change that is reported."""
SHOWN = 40
"""The most functions in a table."""
SAME, CHANGED, NOT_KEPT = 0, 1, 3
"""How `compared` ends; the exit codes of `--compare`."""
LIMIT_S = 1_800
ALL = "all"

T = TypeVar("T")


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


@dataclass(frozen=True)
class Profile:
    """Of a work on one stage: what its functions cost, the most expensive one first."""

    work: str
    stage: str
    functions: Sequence[Function]


def measure(
    works: Sequence[str], stages: Sequence[str], kind: Kind, log: Callable[[str], None], **sizes: int
) -> list[Cost]:
    """What each work costs on each stage. `sizes`: as in `Plan`."""
    found = []
    for cost in _each(_measured, [Plan(stage, work, kind, False, **sizes) for work, stage in product(works, stages)]):
        log(f"{cost.work}, {cost.stage}: {cost.all:,.0f} {_unit(kind)} per record")
        found.append(cost)
    return found


def profile(works: Sequence[str], stages: Sequence[str], **sizes: int) -> list[Profile]:
    """What the functions of each work cost on each stage. `sizes`: as in `Plan`."""
    plans = [Plan(stage, work, "instructions", True, **sizes) for work, stage in product(works, stages)]
    return list(_each(_profiled, plans))


def _each(do: Callable[[Plan], T], plans: Sequence[Plan]) -> Iterator[T]:
    """Instructions don't depend on the load, so all cores count. Times are measured one after the other."""
    cores = len(os.sched_getaffinity(0)) if all(plan.kind == "instructions" for plan in plans) else 1
    with ThreadPoolExecutor(cores) as pool:
        yield from pool.map(do, plans)


def _measured(plan: Plan) -> Cost:
    with _ran(plan) as (report, counts):
        spent = counted(plan.kind, report, counts)
    records = {"consume": plan.total}
    per_record = {part: spent.get(part, 0) / records.get(part, plan.counted) for part in PARTS}
    return Cost(plan.work, plan.stage, plan.kind, per_record)


def _profiled(plan: Plan) -> Profile:
    with _ran(plan) as (report, counts):
        return Profile(plan.work, plan.stage, functions(report, counts, plan.counted))


@contextmanager
def _ran(plan: Plan) -> Iterator[tuple[Mapping[str, object], Path]]:
    """What the counted process says, and the directory of the counts."""
    with tempfile.TemporaryDirectory(prefix="milestones-bench-") as directory:
        counts, state = Path(directory, "counts"), Path(directory, "state")
        counts.mkdir()
        state.mkdir()
        job = [sys.executable, "-m", "benchmarks.instructions.job", plan.text(), str(state), str(counts)]
        command = wrapped(plan.kind, job, counts)
        if plan.by_function:
            prepare(counts)
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # else dictionaries have other collisions each time
        )  # fmt: skip
        if ran.returncode:
            raise BenchmarkError(f"{plan.work}, {plan.stage}: exit code {ran.returncode}\n{ran.stderr[-2000:]}")
        yield json.loads(ran.stdout.splitlines()[-1]), counts


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


def profile_table(profile: Profile, most: int = SHOWN) -> Table:
    """The functions that cost most by themselves."""
    title = f"{profile.work}, {profile.stage}: instructions per record, by function"
    shown = columns(title, "function", "calls", "own", "with what it calls", left=1)
    for function in profile.functions[:most]:
        shown.add_row(function.name, f"{function.calls:.2f}", f"{function.own:,.0f}", f"{function.inclusive:,.0f}")
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


def compared(costs: Sequence[Cost], sizes: Mapping[str, int], file: Path = KEPT) -> int:
    """`CHANGED` if a cost differs from the kept one by `TOLD` or more, up or down. Else `NOT_KEPT` if one can't be
    compared."""
    before = _comparable(_kept(file), sizes) or {}
    if any(abs(cost.all / before[_place(cost)].all - 1) >= TOLD for cost in costs if _place(cost) in before):
        return CHANGED
    return SAME if all(_place(cost) in before for cost in costs) else NOT_KEPT


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
    return f"{whole}; {', '.join(changed)}" if changed else f"{whole}; no part by {TOLD:.0%} of all"


def _changes(cost: Cost, before: Cost) -> Iterator[str]:
    for part in PARTS:
        by = cost.of(part) - before.of(part)
        if abs(by) >= TOLD * before.all:
            yield f"{part} {by:+,.0f}"
