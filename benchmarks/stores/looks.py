"""What a process holds, and what its log says: handles, open databases, openings.

*Guarantees*: a handle that is closed while it is looked at doesn't count.
*Assumes*: Linux. A database that is open has its `LOG` open: true of RocksDB, whatever its log's level is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.stores import OPENED, PROCESSES

LOG = "LOG"
_BEGUN = re.compile(rf"^{PROCESSES} (\d+)$", re.MULTILINE)
_OPENED = re.compile(rf"^{OPENED} (\d+\.\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Look:
    """`handles`: of files and sockets; `written_mb`: that it has had written to disks since its start."""

    handles: int
    threads: int
    rss_mb: float
    written_mb: float


def seen(process: psutil.Process) -> Look:
    """The process now."""
    with process.oneshot():
        return Look(
            process.num_fds(),
            process.num_threads(),
            process.memory_info().rss / 1e6,
            process.io_counters().write_bytes / 1e6,
        )


def databases(pid: int) -> dict[str, int]:
    """The databases that a process has open: the inode of each one's `LOG`, by path. A database that is opened anew
    begins another one."""
    found: dict[str, int] = {}
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            path = handle.readlink()
            if path.name == LOG:
                found[str(path)] = handle.stat().st_ino
        except OSError:  # closed meanwhile
            continue
    return found


def changes(before: dict[str, int], after: dict[str, int]) -> int:
    """How many databases were opened and closed between two looks, at least."""
    opened, closed = (len(one.items() - other.items()) for one, other in ((after, before), (before, after)))
    return opened + closed


def begun(log: str) -> list[float]:
    """When each task had its first record, s since the epoch, ascending; one that was taken over counts again."""
    return sorted(int(at) / 1000 for at in _BEGUN.findall(log))


def opening_s(log: str) -> float:
    """How long all openings of databases took, one after the other or not."""
    return sum(map(float, _OPENED.findall(log))) / 1000


def typical(looks: list[Look]) -> dict[str, float]:
    """The medians of the looks, but for what was written, which only grows."""
    return {
        "handles": median(look.handles for look in looks),
        "threads": median(look.threads for look in looks),
        "rss_mb": median(look.rss_mb for look in looks),
    }
