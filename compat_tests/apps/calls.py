"""User code that takes its time, or fails, as the value of a record says: what calls to other services do.

| value | what happens |
|---|---|
| `take MS BEGUN` | the call takes so long, the first time that it is made: the file is there from then on |
| `wait END BEGUN` | as `take`, until the file `END` is there |
| `slow MS` | the call takes so long, each time |
| `note FILE NAME ...` | each call adds a line to the file: the name, and when (wall clock, in ms) |
| `fail TEXT END` | it raises, until the file `END` is there |
| anything else | nothing |

*Guarantees*: the log says when a call of the first two kinds begins, and when it ends.
*Assumes*: paths have no spaces.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compat_tests.oracles.rows import ORDINAL
from milestones import FixedKeyProcessor, FixedKeyRecord, Processor, ProcessorContext, Record

log = logging.getLogger("compat_tests")

BEGINS, ENDS = "a call begins: ", "a call has ended: "
"""What the log says, followed by the value."""
LOOK_S = 0.05
TICK_MS = 100
TICKS = "ticks"
"""The child of `Ticks` that gets its punctuations."""


class ServiceError(RuntimeError):
    """What a service says that isn't well."""


def call(value: str) -> None:
    """Do what the value says."""
    match value.split():
        case ["take", ms, begun] if _first(begun):
            with _told(value):
                time.sleep(int(ms) / 1000)
        case ["wait", end, begun] if _first(begun):
            with _told(value):
                while not Path(end).exists():
                    time.sleep(LOOK_S)
        case ["slow", ms]:
            time.sleep(int(ms) / 1000)
        case ["note", file, name, *_]:
            _note(file, name)
        case ["fail", text, end] if not Path(end).exists():
            raise ServiceError(text)


def _note(file: str, name: str) -> None:
    """One write: lines of several threads, and of a process that is killed, stay whole."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{name} {time.time_ns() // 10**6}\n".encode())
    finally:
        os.close(descriptor)


def _first(begun: str) -> bool:
    before = Path(begun).exists()
    Path(begun).touch()
    return not before


@contextmanager
def _told(value: str) -> Iterator[None]:
    log.info("%s%s", BEGINS, value)
    yield
    log.info("%s%s", ENDS, value)


class Calls(FixedKeyProcessor):
    """The record before the call, and once more behind it: half of what a record does is done when the call begins."""

    def process(self, record: FixedKeyRecord) -> None:
        self._forward(record, 0)
        call(record.value)
        self._forward(record, 1)

    def _forward(self, record: FixedKeyRecord, ordinal: int) -> None:
        self.context.forward(record._replace(headers=[*record.headers, (ORDINAL, b"%d" % ordinal)]))


class Ticks(Processor):
    """The record behind its call; and every `TICK_MS` by the wall clock the task's name with the time, in ms."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(TICK_MS, "wall-clock-time", self._tick)

    def process(self, record: Record) -> None:
        call(record.value)
        self.context.forward(record, "out")

    def _tick(self, now_ms: int) -> None:
        self.context.forward(Record(str(self.context.task_id), str(time.time_ns() // 10**6), now_ms), TICKS)
