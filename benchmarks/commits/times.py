"""When each record was processed: the file that a contender leaves, the same for Python and Java.

For each task, and again for each time that it was made anew: its partition (int32), how many times follow (int32), and
these (int64): nanoseconds of the system's monotonic clock at the beginning of each record's processing, in order. All
numbers are big-endian.

*Guarantees*: nothing is written before the process ends; until then a time is eight bytes of its memory.
*Assumes*: Linux, where Python's `time.monotonic_ns` and Java's `System.nanoTime` are one clock for all processes.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import Struct
from typing import Final

HEAD: Final = Struct(">ii")


def write(path: Path, tasks: Iterable[tuple[int, array[int]]]) -> None:
    """Leave the times of these tasks, each with its partition."""
    with path.open("wb") as file:
        for partition, times in tasks:
            file.write(HEAD.pack(partition, len(times)))
            file.write(_swapped(times).tobytes())


def read(path: Path) -> Mapping[int, array[int]]:
    """By partition, ascending. `ValueError` for a file that ends too early."""
    found: dict[int, array[int]] = {}
    data, at = memoryview(path.read_bytes()), 0
    while at < len(data):
        if len(data) - at < HEAD.size:
            raise ValueError(f"{path} ends in the head of a task")
        partition, count = HEAD.unpack_from(data, at)
        end = at + HEAD.size + 8 * count
        if end > len(data):
            raise ValueError(f"{path} ends before the {count} times of partition {partition} do")
        found.setdefault(partition, array("q")).extend(_swapped(array("q", bytes(data[at + HEAD.size : end]))))
        at = end
    return {partition: array("q", sorted(times)) for partition, times in sorted(found.items())}


def _swapped(times: array[int]) -> array[int]:
    """From the machine's order of bytes to that of the file, or back."""
    swapped = array("q", times)
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped
