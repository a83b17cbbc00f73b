"""The number of workers of a command: a number, or `auto`, which is the number of cores.

*Guarantees*: `auto` counts the cores that this process may use, not those of the machine: a CPU limit of a container
counts.
*Assumes*: the limits of control groups are found below `/sys/fs/cgroup`. Other systems have none.
"""

from __future__ import annotations

import os
from pathlib import Path

from milestones.common.errors import ConfigError
from milestones.workers.place import MOST

AUTO = "auto"
CGROUP = Path("/sys/fs/cgroup")


def parse_workers(given: object) -> int | None:
    """Return the number of workers, or None for `auto`. Raises `ConfigError`."""
    if given == AUTO:
        return None
    try:
        number = int(given) if isinstance(given, int | str) and not isinstance(given, bool) else 0
    except ValueError:
        number = 0
    if not 1 <= number <= MOST:
        raise ConfigError("workers", given, f"must be a number from 1 to {MOST}, or {AUTO}")
    return number


def cores() -> int:
    """Return the number of cores that this process may use, at least 1. A part of a core counts as a core."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = _limit(CGROUP)
    return there if limit is None else max(1, min(there, limit))


def _limit(cgroup: Path) -> int | None:
    """Return the CPU limit of a container, rounded up, or None if it has none. Version 2 of control groups has quota
    and period in one file, version 1 in two."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return None
    try:
        microseconds, of = int(quota), int(period)
    except ValueError:  # "max"
        return None
    return -(-microseconds // of) if microseconds > 0 and of > 0 else None
