"""Two ways to count what a part of a process costs.

| counter | counts | needs | differs from run to run by |
|---|---|---|---|
| `instructions` | instructions of the thread, in user space | valgrind, a C compiler | less than a thousandth |
| `cpu-time` | nanoseconds of CPU of the thread | nothing | a tenth or more: caches and cores are shared |

The counted process calls `Counter.mark` at the end of each part. Under valgrind's callgrind a mark is a client request
(`requests.c`), at which callgrind writes down what it has counted since the previous mark. callgrind counts only inside
of `Counter.counting`. Outside of it a process runs much faster.

*Guarantees*: what lies between two marks counts for the part that the second one names.
*Assumes*: one thread marks.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import time
from collections import Counter as Sums
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from benchmarks.errors import BenchmarkError
from benchmarks.instructions.native import compiled, compiler

Kind = Literal["instructions", "cpu-time"]

NOWHERE: Final = ""
"""The part whose cost isn't shown: what prepares the others."""

REQUESTS: Final = "requests"
"""The library of client requests, in the directory of the counts."""
HERE: Final = Path(__file__).parent
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)
_THREAD = re.compile(r"^thread: (\d+)", re.MULTILINE)


def best() -> Kind:
    """The counter that this machine has."""
    return "cpu-time" if shutil.which("valgrind") is None or compiler() is None else "instructions"


def wrapped(kind: Kind, command: Sequence[str], directory: Path) -> list[str]:
    """`command`, run under what `kind` needs, which is made in `directory`. callgrind's files go there, too."""
    if kind == "cpu-time":
        return list(command)
    if shutil.which("valgrind") is None:
        raise BenchmarkError(
            "valgrind is missing, so instructions can't be counted: install it, or use --counter cpu-time"
        )
    compiled(HERE / "requests.c", directory / REQUESTS, needs="the headers of valgrind (valgrind/callgrind.h)")
    callgrind = ["valgrind", "--quiet", "--tool=callgrind", "--separate-threads=yes", "--instr-atstart=no"]
    return [*callgrind, f"--callgrind-out-file={directory / 'counts'}", *command]


class Counter:
    """The counted process's side. `directory`: that of `wrapped`."""

    def __init__(self, kind: Kind, directory: Path) -> None:
        # A `CDLL` would let go of Python's lock at each mark, and take it back.
        self._requests = ctypes.PyDLL(str(directory / REQUESTS)) if kind == "instructions" else None
        self._parts: list[str] = []
        self._spent_ns = Sums[str]()
        self._before_ns = time.thread_time_ns()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count until the end of the block. It begins with a part, and ends with a mark."""
        if self._requests is not None:
            self._requests.count_on()
        self.mark()
        try:
            yield
        finally:
            if self._requests is not None:
                self._requests.count_off()

    def mark(self, part: str = NOWHERE) -> None:
        """End a part; the next one begins."""
        if self._requests is not None:
            self._parts.append(part)
            self._requests.write_counts()
        else:
            now_ns = time.thread_time_ns()
            self._spent_ns[part] += now_ns - self._before_ns
            self._before_ns = time.thread_time_ns()

    def report(self) -> dict[str, object]:
        """What `counted` needs of this process."""
        return {"parts": self._parts, "spent_ns": dict(self._spent_ns)}


def counted(kind: Kind, report: Mapping[str, object], directory: Path) -> dict[str, int]:
    """What each part has cost the thread that marks, in instructions or nanoseconds."""
    if kind == "cpu-time":
        spent: Mapping[str, int] = report["spent_ns"]  # type: ignore[assignment]
        return dict(spent)
    sums = Sums[str]()
    for part, text in dumps(report, directory):
        totals = _TOTALS.search(text)
        sums[part] += 0 if totals is None else int(totals[1])
    return dict(sums)


def dumps(report: Mapping[str, object], directory: Path) -> Iterator[tuple[str, str]]:
    """Each part, with what callgrind has written of the thread that marks, which is the first one. callgrind writes a
    file per thread that has run since the dump before."""
    parts: Sequence[str] = report["parts"]  # type: ignore[assignment]
    for number, part in enumerate(parts, 1):
        for file in sorted(directory.glob(f"counts.{number}-*")):
            text = file.read_text("utf-8", errors="replace")
            thread = _THREAD.search(text)
            if thread is not None and thread[1] == "1":
                yield part, text
                break
