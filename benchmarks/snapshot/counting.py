"""The count on Milestones while snapshots are made of its store: `work` of its job is the URL, and the interval in ms.

Prints, at its end, the longest times for which a thread that wakes once a millisecond was kept from that.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.count.app import topology
from benchmarks.ours import begin, config
from benchmarks.snapshot import HELD
from milestones import Streams


class Ticker(threading.Thread):
    """Wakes once a millisecond, and notes how much later it does."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name="ticker", daemon=True)
        self._clock = clock
        self.late_ms: list[float] = []
        self.ends = threading.Event()

    def run(self) -> None:
        last = self._clock()
        while not self.ends.wait(0.001):
            now = self._clock()
            self.late_ms.append((now - last) * 1000 - 1)
            last = now


def main() -> int:
    """The exit code."""
    job = begin()
    settings: dict[str, Any] = {}
    if job.work != "-":
        url, interval_ms = job.work.split("|")
        settings = {"snapshot_url": url, "snapshot_interval_ms": int(interval_ms)}
    ticker = Ticker()
    ticker.start()
    code = Streams(topology(job), config(job), **settings).run()
    ticker.ends.set()
    ticker.join()
    late = sorted(ticker.late_ms)
    print(HELD, *(f"{late[int(part * (len(late) - 1))]:.1f}" for part in (0.99, 0.999, 1)), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
