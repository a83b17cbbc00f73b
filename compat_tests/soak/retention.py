"""Windows on a disk, over many of their retentions: how large the directory gets, and what an empty disk restores.

One task on the real engine, without Kafka: `python -m compat_tests.soak.retention [RECORDS [WINDOWS]]`. A standby on
another disk, empty at first, restores its changelog as it grows, from its beginning.

*Guarantees*: both disks are measured at every commit. Values don't compress.
*Assumes*: as many rows live in a window as it has records: each record has a key of its own.
"""

from __future__ import annotations

import random
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Message

from compat_tests.harness.stores import dumps
from milestones import StreamsBuilder, TimeWindows, serdes
from milestones.common.clock import SystemClock
from milestones.common.records import OffsetAndMetadata, Output, TaskId, TopicPartition, output_of
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.storage import TaskStorage
from milestones.common.task.standby import StandbyTask
from milestones.common.task.task import Task, TaskSettings

RETAINED = 10
WINDOW_MS = 60_000
FIRST = 1_800_000 * WINDOW_MS
STORE, TOPIC = "kept", "in"
LIVE_BYTES = 64 * 1024 * 1024
"""Of all rows that may still be read: several times what the engine's write buffers hold."""
COMMITS_PER_WINDOW = 4
ROW = struct.calcsize(">Q8sqiq")
"""Bytes of a row beside its value: segment, key, start and sequence, timestamp."""


APP, CLOCK = "app", SystemClock()
TASK, INPUT = TaskId(0, 0), TopicPartition(TOPIC, 0)


@dataclass(frozen=True)
class Measured:
    """Bytes and rows. `live`: what a reader may see; `restored_most`: the most that the restored store has had."""

    live: int
    largest: int
    live_rows: int
    restored_most: int
    restored_rows: int
    seconds: float

    def __str__(self) -> str:
        mib = 1 << 20
        return (
            f"live {self.live / mib:.1f} MiB in {self.live_rows:,} rows; the directory had {self.largest / mib:.1f} "
            f"MiB at most ({self.largest / self.live:.2f} times), the restored one {self.restored_most / mib:.1f} MiB "
            f"at most and {self.restored_rows:,} rows at its end; {self.seconds:.0f} s"
        )


def kept() -> StreamsBuilder:
    """The newest value per key and window."""
    builder = StreamsBuilder()
    grouped = builder.stream(TOPIC, key=serdes.BYTES, value=serdes.BYTES).group_by_key()
    windows = grouped.windowed_by(TimeWindows(WINDOW_MS, grace=0))
    windows.reduce(lambda _, value: value, STORE, retention=RETAINED * WINDOW_MS)
    return builder


(SUB,) = kept().build().resolve(APP)


class Disk:
    """A state directory of its own, and the stores of the task in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._state = LocalStateManager(StateDirectory(directory, APP, CLOCK), open_engines("rocksdict"), "test")

    def open(self) -> TaskStorage:
        return self._state.open(TASK, SUB.stores)

    def bytes(self) -> int:
        """All that lies on it. The engine may delete a file meanwhile."""
        return sum(size_of(path) for path in self.directory.rglob("*"))

    def rows(self, scratch: Path) -> int:
        """Of the store, once it is closed."""
        (dump,) = dumps(self.directory, APP, scratch)
        return len(dump.entries)

    def release(self) -> None:
        self._state.release()


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


def measure(records: int, windows: int, directory: Path, say: bool = False) -> Measured:
    """So many records over all windows."""
    per_window = records // windows
    live_rows = per_window * RETAINED
    size = LIVE_BYTES // live_rows - ROW
    began, rng = time.monotonic(), random.Random(1)
    disk, empty = Disk(directory / "one"), Disk(directory / "empty")
    task, standby = _task(disk), StandbyTask(TASK, SUB, empty.open)
    standby.open()
    largest = restored_most = logged = 0
    for number, batch in enumerate(batches(windows, per_window, size, rng)):
        task.input.add(INPUT, batch)
        task.process(len(batch), 0)
        commit = task.freeze()
        changelog = [as_message(output_of(output)) for output in commit.all_outputs()]
        logged += len(changelog)
        task.applied(commit, {STORE: logged})
        standby.know({at: OffsetAndMetadata(offset, commit.metadata[at]) for at, offset in commit.offsets.items()})
        standby.restore(STORE, changelog, logged)
        largest, restored_most = max(largest, disk.bytes()), max(restored_most, empty.bytes())
        if say and number % 400 == 0:
            print(f"{number} commits, {time.monotonic() - began:.0f} s: {largest / LIVE_BYTES:.2f} times", flush=True)
    task.close()
    standby.close()
    disk.release()
    empty.release()
    rows = empty.rows(directory)
    return Measured(LIVE_BYTES, largest, live_rows, restored_most, rows, time.monotonic() - began)


def _task(disk: Disk) -> Task:
    settings = TaskSettings(application_id=APP, clock=CLOCK, partitions_of=lambda _: 1, record_caches=RecordCaches(0))
    task = Task(TASK, SUB, [INPUT], settings, disk.open)
    task.open()
    task.start({INPUT: 0}, {})
    return task


def batches(windows: int, per_window: int, size: int, rng: random.Random) -> Iterator[list[Message]]:
    """The records, window by window; a few commits fall into each."""
    for number in range(windows):
        for part in range(COMMITS_PER_WINDOW):
            keys = range(part, per_window, COMMITS_PER_WINDOW)
            yield [
                Message(
                    topic=TOPIC,
                    partition=0,
                    offset=number * per_window + key,
                    key=key.to_bytes(8),
                    value=rng.randbytes(size),
                    timestamp=(1, FIRST + number * WINDOW_MS + part),
                    headers=None,
                )
                for key in keys
            ]


def as_message(output: Output) -> Message:
    return Message(key=output.key, value=output.value, timestamp=(1, output.timestamp))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        given = [int(argument) for argument in sys.argv[1:]]
        records, windows = given + [10_000_000, 1_000][len(given) :]
        print(measure(records, windows, Path(folder), say=True))
