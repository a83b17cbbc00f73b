"""A program that says what it was started as: by itself, or as a fork."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from pathlib import Path

from compat_tests.apps.forks import SERVE, serve
from milestones.common.testing.faults import reach


class Circular:
    """One that only a collection ends."""

    def __init__(self) -> None:
        self.itself = self


KEPT = list[Circular]()


def found_by_collector() -> int:
    """How many there are when one is kept and another one isn't."""
    KEPT.append(Circular())
    Circular()
    gc.collect()
    return sum(isinstance(one, Circular) for one in gc.get_objects())


def facts() -> dict[str, object]:
    """What a program may find out about its process."""
    return {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "leads its session": os.getsid(0) == os.getpid(),
        "input": sys.stdin.read(),
        "handles": sorted(handle.name for handle in Path("/proc/self/fd").iterdir()),
        "objects": found_by_collector(),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "unbuffered": [stream.write_through for stream in (sys.stdout, sys.stderr)],  # type: ignore[union-attr]
    }


def main() -> int:
    """As the first argument says."""
    what, *rest = sys.argv[1:]
    if what == "facts":
        print(json.dumps(facts()))
    elif what == "hash":
        print(hash("a text"))
    elif what == "wait":
        signal.pause()
    elif what == "reach":
        reach("restore.batch")
    return int(rest[0]) if rest else 0


if __name__ == "__main__":
    if os.environ.get("STARTS_A_THREAD"):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    sys.exit(serve(main) if sys.argv[1:] == [SERVE] else main())
