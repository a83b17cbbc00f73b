"""Where the stream thread, or from m4 on the polling thread, spends its time, sampled from outside by py-spy: nothing
is slowed down by hooks.

*Guarantees*: microseconds are of the thread at work; what it waits for isn't counted.
*Assumes*: py-spy (extra `bench`); functions are where `PARTS` says.
"""

from __future__ import annotations

import linecache
import re
import shutil
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.report import columns
from benchmarks.rows import Work

PARTS_TITLE = "microseconds per record, by part"
POLLS = re.compile(r"-(StreamThread-\d+|PollingThread)(?![-\w])")

ELSEWHERE = "other"
PARTS: Sequence[tuple[str, str, str, str]] = (
    # part, file, function, text of the line
    ("consume", r"kafka/consumers\.py", "", r"\.consume\("),
    ("dispatch", r"kafka/consumers\.py|stream_thread/inputs\.py|task/buffers\.py", "", ""),
    ("user code", r"benchmarks/.*/app\.py", "", ""),
    ("store get", r"state/stores/.*\.py", "get|get_raw|_read|_decoded|decode_row|decode", ""),
    ("store get", r"state/(layers|read_cache|engines/rocks.*)\.py", "get|find|keep|forget", ""),
    ("store put", r"state/stores/.*\.py", "", ""),
    ("store put", r"state/layers\.py", "put", ""),
    ("store put", r"state/changelog\.py", "log", ""),
    ("apply", r"state/engines/rocks.*\.py|task/task_stores\.py", "", ""),
    ("apply", r"state/layers\.py", "applied|frozen", ""),
    ("merge", r"state/layers\.py|task/scope\.py|task/boundary\.py", "", ""),
    ("merge", r"task/(runner|scoped_calls)\.py", "_advance|_merge", ""),
    ("step", r"task/runner\.py", "_step", ""),
    ("decode", r"task/runner\.py|topology/compiled\.py", "", ""),
    ("program", r"topology/.*\.py", "", ""),
    ("program", r"task/(task_context|counters)\.py", "", ""),
    ("send", r"kafka/producer\.py", "send|_last_of_changelogs", ""),
    ("commit", r"baseline/(committing|collection)\.py", "", ""),
    ("commit", r"shared_parts/(committer|in_transaction|offset_commit)\.py", "", ""),
    ("commit", r"kafka/producer\.py|kafka/membership/.*", "", ""),
    ("commit", r"task/(commits|metadata)\.py", "", ""),
    ("commit", r"task/task\.py", "freeze|applied", ""),
)
"""The first row that fits the innermost frame that any row fits; empty fits all."""

_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)")


@dataclass(frozen=True)
class Frame:
    """A function, by its qualified name, at a line of a file."""

    function: str
    file: str
    line: int

    @property
    def name(self) -> str:
        return self.function.rpartition(".")[2]


@dataclass(frozen=True)
class Profile:
    """Samples of the stream thread: stacks, innermost frame last. `us_per_sample`: what one means per record."""

    stacks: Sequence[tuple[tuple[Frame, ...], int]]
    us_per_sample: float

    def parts_table(self, title: str) -> Table:
        """Each part's share; in the order of a record's way."""
        found: Counter[str] = Counter()
        for stack, count in self.stacks:
            found[part_of(stack)] += count
        names = [name for name in dict.fromkeys([*(row[0] for row in PARTS), ELSEWHERE]) if found[name]]
        return self._table(title, "part", [(name, found[name]) for name in names])

    def functions_table(self, top: int) -> Table:
        """The functions that are innermost most often; a C function counts for its caller."""
        found: Counter[str] = Counter()
        for stack, count in self.stacks:
            inner = stack[-1]
            found[f"{inner.function} ({'/'.join(Path(inner.file).parts[-2:])})"] += count
        return self._table("by function, without what it calls", "function", found.most_common(top))

    def _table(self, title: str, what: str, counts: Sequence[tuple[str, int]]) -> Table:
        total = sum(count for _, count in self.stacks)
        table = columns(title, what, "us per record", "share", left=1)
        for name, count in counts:
            table.add_row(name, f"{count * self.us_per_sample:.2f}", f"{count / total:.1%}")
        table.add_section()
        table.add_row("all", f"{total * self.us_per_sample:.2f}", f"{total} samples")
        return table


def profiled(work: Work, contender: Contender, guarantee: str, rate: int) -> Profile:
    """Run `contender` once under py-spy, with `rate` samples per second."""
    py_spy = _py_spy()
    with tempfile.NamedTemporaryFile(prefix="milestones-bench-", suffix=".txt") as file:

        def command(job: Job) -> Sequence[str]:
            shape = ["--format", "raw", "--threads", "--full-filenames", "--output", file.name]
            return [py_spy, "record", "--nonblocking", "--rate", str(rate), *shape, "--", *contender.command(job)]

        figures = work.measure(replace(contender, command=command), guarantee)
        stacks = list(parse(Path(file.name).read_text("utf-8")))
    if not stacks:
        raise BenchmarkError("py-spy saw nothing of the stream thread: is it allowed to look into other processes?")
    return Profile(stacks, 1e6 / rate / figures["records"])


def _py_spy() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    found = shutil.which(beside) or shutil.which("py-spy")
    if found is None:
        raise BenchmarkError(f"a profile needs py-spy: {sys.executable} -m pip install 'milestones[bench]'")
    return found


def parse(text: str) -> Iterator[tuple[tuple[Frame, ...], int]]:
    """The stream threads' stacks, and how often each was seen, of py-spy's raw format."""
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if frames and POLLS.search(thread):
            yield tuple(_frame(frame) for frame in frames), int(count)


def _frame(text: str) -> Frame:
    match = _FRAME.fullmatch(text)
    return Frame(text, "", 0) if match is None else Frame(match["function"], match["file"], int(match["line"] or 0))


def part_of(stack: Sequence[Frame]) -> str:
    """The part of a record's way that this stack belongs to."""
    for frame in reversed(stack):
        for part, file, function, text in PARTS:
            if (
                re.search(f"({file})$", frame.file)
                and (not function or re.fullmatch(function, frame.name))
                and (not text or re.search(text, linecache.getline(frame.file, frame.line)))
            ):
                return part
    return ELSEWHERE
