"""What each Python function costs, in instructions.

callgrind knows only C functions. So the interpreter of the counted process runs each pair of a calling and a called
Python function by way of a C function of its own (`frames.c`). These detours add about a tenth, which is in the costs
of the callers.

*Guarantees*: a function's own cost includes what it does in C: built-in functions, serialisation, RocksDB.
*Assumes*: CPython 3.11. At most `PAIRS` pairs, far more than the works have.
"""

from __future__ import annotations

import ctypes
import re
import sys
import sysconfig
from collections import Counter as Sums
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Final

from benchmarks.errors import BenchmarkError
from benchmarks.instructions.counters import NOWHERE, dumps
from benchmarks.instructions.native import compiled

HERE: Final = Path(__file__).parent
FRAMES: Final = "frames"
"""The library, in the directory of the counts."""
PAIRS: Final = 4096
OUTSIDE: Final = "-"
"""What calls the first Python function of a thread."""

_FUNCTION = re.compile(r"(c?)fn=\((\d+)\)(?: (.*))?")
_PAIR = re.compile(r"pair_(\d+)(?:'\d+)?")
_COST = re.compile(r"(?:[-+]?\d+|\*) (\d+)")
_SHORT = re.compile(r".*(?:/site-packages|/lib/python3\.\d+)/")


@dataclass(frozen=True)
class Function:
    """Per record: how often it is called, what it costs by itself, and with all that it calls.

    `inclusive` counts a function that calls itself by way of another one more than once."""

    name: str
    calls: float
    own: float
    inclusive: float


def prepare(directory: Path) -> None:
    """Make what `observed` needs in `directory`."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11):
        raise BenchmarkError("a profile needs CPython 3.11; other versions count without --profile")
    (directory / "pairs.h").write_text("".join(f"PAIR({number})\n" for number in range(PAIRS)))
    include = sysconfig.get_path("include")
    needs = f"the headers of Python ({include}; in Debian the package python3-dev)"
    compiled(HERE / "frames.c", directory / FRAMES, needs=needs, options=["-I", include, "-I", str(directory)])


@contextmanager
def observed(directory: Path, pairs: list[tuple[str, str]]) -> Iterator[None]:
    """In the block each pair of functions is run by way of its C function. At its end `pairs` gets their names, in the
    order of their numbers."""
    library = ctypes.PyDLL(str(directory / FRAMES))
    library.frames_pairs.restype = ctypes.py_object
    library.frames_on()
    try:
        yield
    finally:
        library.frames_off()
    pairs += [(_name(caller), _name(called)) for caller, called in library.frames_pairs()]


def _name(code: CodeType | None) -> str:
    if code is None:
        return OUTSIDE
    file = _SHORT.sub("", code.co_filename.removeprefix(f"{HERE.parents[1]}/"))
    return f"{file}:{code.co_firstlineno} {code.co_qualname}"


def functions(report: Mapping[str, object], directory: Path, records: int) -> list[Function]:
    """Each function of the counted intervals, the most expensive one by itself first."""
    pairs: Sequence[tuple[str, str]] = report["pairs"]  # type: ignore[assignment]
    calls, costs = Sums[int](), Sums[int]()
    for part, text in dumps(report, directory):
        if part != NOWHERE:
            _add(text.splitlines(), calls, costs)
    times, own, inclusive = Sums[str](), Sums[str](), Sums[str]()
    for number, cost in costs.items():
        caller, called = pairs[number]
        times[called] += calls[number]
        own[called] += cost
        own[caller] -= cost
        inclusive[called] += cost if caller != called else 0
    # What calls all the others isn't called between two marks, so it has no cost of its own.
    found = [Function(name, times[name] / records, own[name] / records, inclusive[name] / records) for name in times]
    return sorted(found, key=lambda function: -function.own)


def _add(lines: Iterable[str], calls: Sums[int], costs: Sums[int]) -> None:
    """Add a dump's calls and costs of each pair; a pair's cost includes its calls. In a dump `fn=` begins a function,
    and `cfn=` and `calls=` a call, whose cost is in the next line. A function has a name where it is first met, and
    its number everywhere."""
    names: dict[str, str] = {}
    function: int | None = None
    callee: int | None = None
    for line in lines:
        if found := _FUNCTION.fullmatch(line):
            is_callee, number, name = found.groups()
            names.setdefault(number, name)
            pair = _PAIR.fullmatch(names[number])
            which = None if pair is None else int(pair[1])
            if is_callee:
                callee = which
            else:
                function = which
        elif line.startswith("calls="):
            if callee is not None:
                calls[callee] += int(line[len("calls=") :].split()[0])
        elif function is not None and (spent := _COST.fullmatch(line)):
            costs[function] += int(spent[1])
