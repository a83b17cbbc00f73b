"""A server of forks: a process that has imported the applications, and has a child of it be each instance.

An import of the runtime costs more than most cases' instances do in their lives; so it is made once for many.

*Guarantees*: a child is a process of its own, in a session of its own, with the environment, the folder and the log
that were asked for; it begins where `python -m compat_tests.apps` begins after its imports, and ends as that ends. The
server ends when its input does; its children don't.
*Assumes*: importing starts no thread and opens nothing: the server looks, and forks nothing otherwise. Faults are armed
by `MILESTONES_FAULT` in the environment asked for; nothing else of the environment is read by an import.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

from milestones.common.testing import faults

SERVE = "--serve-forks"
"""The one argument of `python -m compat_tests.apps` that makes it such a server."""
STDIN, STDOUT, STDERR = range(3)
THREADS = Path("/proc/self/task")


class Wanted(TypedDict):
    """One instance: its command line, environment, working folder, and the file that its output is added to."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    log: str


def serve(main: Callable[[], int]) -> int:
    """Answer requests until there are no more: `{"fork": Wanted}` by the child's process id, `{"ended": id}` by its
    exit code as `subprocess` has it, or null while it runs. In a child: what `main` gives."""
    gc.collect()
    gc.freeze()  # else each collection of a child would touch, and so copy, all that was imported
    for request in _requests():
        if "fork" in request:
            answer: int | None = fork(request["fork"])
            if answer == 0:
                return main()
        else:
            answer = ended(request["ended"])
        os.write(STDOUT, f"{json.dumps(answer)}\n".encode())
    return 0


def fork(wanted: Wanted) -> int:
    """The child's process id; 0 in the child, which is as asked for."""
    _look_alone()
    child = os.fork()
    if child == 0:
        become(wanted)
    return child


def become(wanted: Wanted) -> None:
    """Make this process what `subprocess.Popen` would have made of it."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(wanted["log"], os.O_WRONLY | os.O_APPEND)
    for handle, place in ((nothing, STDIN), (log, STDOUT), (log, STDERR)):
        os.dup2(handle, place)
    os.close(nothing)
    os.close(log)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv[1:] = wanted["arguments"]
    faults.arm(os.environ)


def ended(child: int) -> int | None:
    """The exit code of a child, negative: the signal that ended it; None while it runs. To be asked once more never."""
    found, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _look_alone() -> None:
    """A thread wouldn't be in the child, what it held would stay locked; a connection would be both processes'."""
    threads = list(THREADS.iterdir()) if THREADS.exists() else []
    if len(threads) > 1:
        raise RuntimeError(f"an import has started {len(threads) - 1} threads: nothing can be forked")


def _requests() -> Iterator[dict[str, Any]]:
    """Line by line, and not a byte more of the input than a line is read ahead."""
    rest = b""
    while part := os.read(STDIN, 1 << 16):
        *lines, rest = (rest + part).split(b"\n")
        yield from map(json.loads, lines)
