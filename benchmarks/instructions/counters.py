"""Two ways to count what a part of a process costs.

| counter | counts | needs | differs from run to run by |
|---|---|---|---|
| `instructions` | instructions of the thread, in user space | valgrind | less than a thousandth |
| `cpu-time` | nanoseconds of CPU of the thread | nothing | a tenth or more: caches and cores are shared |

The counted process calls `Counter.mark` at the end of each part. Under valgrind's callgrind a mark is a call of
`getpgid`, a function that nothing else calls, before which callgrind writes down what it has counted since the last
one: the counted process pays nothing for it.

*Guarantees*: what lies between two marks counts for the part that the second one names.
*Assumes*: one thread marks.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter as Sums
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

Kind = Literal["instructions", "cpu-time"]

NOWHERE: Final = ""
"""The part that isn't told: what prepares the others."""

MARK: Final = "getpgid"
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)
_THREAD = re.compile(r"^thread: (\d+)", re.MULTILINE)


def best() -> Kind:
    """The counter that this machine has."""
    return "cpu-time" if shutil.which("valgrind") is None else "instructions"


def wrapped(kind: Kind, command: Sequence[str], directory: Path) -> list[str]:
    """`command`, run under what `kind` needs; callgrind's files go to `directory`."""
    if kind == "cpu-time":
        return list(command)
    callgrind = ["valgrind", "--quiet", "--tool=callgrind", "--separate-threads=yes", f"--dump-before={MARK}"]
    return [*callgrind, f"--callgrind-out-file={directory / 'counts'}", *command]


class Counter:
    """The counted process's side."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._parts: list[str] = []
        self._spent_ns = Sums[str]()
        self._before_ns = time.thread_time_ns()

    def mark(self, part: str = NOWHERE) -> None:
        """End a part; the next one begins."""
        if self._kind == "instructions":
            self._parts.append(part)
            os.getpgid(0)
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
    parts: Sequence[str] = report["parts"]  # type: ignore[assignment]
    sums = Sums[str]()
    for number, part in enumerate(parts, 1):
        sums[part] += _of_the_first_thread(directory, number)
    return dict(sums)


def _of_the_first_thread(directory: Path, number: int) -> int:
    """The count of a dump's first thread. callgrind writes a file per thread that has run since the dump before."""
    for file in sorted(directory.glob(f"counts.{number}-*")):
        text = file.read_text("utf-8", errors="replace")
        thread, totals = _THREAD.search(text), _TOTALS.search(text)
        if thread is not None and totals is not None and thread[1] == "1":
            return int(totals[1])
    return 0
