"""Runs one instance of an application under test; with `--serve-forks` alone, as many as are asked for (`forks.py`).

*Guarantees*: the exit codes are the runtime's own; SIGUSR1 writes all threads' stacks and the client's status into
the log; SIGUSR2 adds a stream thread and SIGHUP removes one, SIGTTOU pauses processing and SIGTTIN has it go on, the
log says when that is done; with `--census` a file
says what the process had before and after; with `--watch` the log says when a stream thread waited for another thread;
with `--refusals` stores fail as files say (`refusals.py`); with `--profile` the log has at the end what
`milestones run --profile` prints, a file the stacks.
From m1 on the log says when a thread that polls used a file or a store (`disk.py`).
*Assumes*: nothing.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # The wire schemas' library loads it where it finds it, and that takes as long as the rest; an application has none.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]

import argparse
import contextlib
import faulthandler
import gc
import json
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import psutil

from compat_tests.apps import ADDED, PAUSED, REMOVED, RESUMED, STATE, STATUS, begin_log
from compat_tests.apps.disk import watch_disk
from compat_tests.apps.forks import SERVE, serve
from compat_tests.apps.profiles import loaded, profiled
from compat_tests.apps.refusals import refuse
from compat_tests.apps.topologies import named
from compat_tests.apps.waits import Watch
from compat_tests.oracles.leftovers import keeps_memory, new_natives
from milestones import MilestonesError, Streams, StreamsConfig, UncaughtExceptionResponse

log = logging.getLogger("compat_tests")


ENDED_S = 2.0
"""Linux lets go of who joins a thread before it takes the thread off its list: on a busy machine that may be seen."""


def native_threads(known: Collection[str] | None = None) -> list[str]:
    """The names of all threads of this process, where the system tells them. With those that were `known` before, new
    ones get the time that a thread which has ended may still be listed."""
    names, deadline = _listed_threads(), time.monotonic() + ENDED_S
    while known is not None and new_natives(known, names) and time.monotonic() < deadline:
        time.sleep(0.01)
        names = _listed_threads()
    return names


def _listed_threads() -> list[str]:
    names = list[str]()
    tasks = Path("/proc/self/task")
    for task in tasks.iterdir() if tasks.exists() else ():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            names.append((task / "comm").read_text().strip())
    return sorted(names)


def census(known: Collection[str] | None = None) -> dict[str, Any]:
    """Threads, open files, connections and objects of the runtime of this process; `known`: as of `native_threads`."""
    gc.collect()
    process = psutil.Process()
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, gc.get_objects()))
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "native_threads": native_threads(known),
        "files": sorted(file.path for file in process.open_files()),
        "connections": len(process.net_connections()),
        "objects": Counter(name for name in names if keeps_memory(name)),
    }


def on_signal(number: signal.Signals, said: str, change: Callable[[], str | None]) -> None:
    """Change the client when the signal comes: in a thread of its own, as that may take a while. `said`: once it is
    done, followed by what it gives."""

    def done() -> None:
        log.info("%s%s", said, change() or "")

    signal.signal(number, lambda *_: threading.Thread(target=done, daemon=True).start())


def run(topology: str, config_file: str, handler: str | None = None, stacks: Path | None = None) -> int:
    """The process's exit code. `handler`: what the uncaught exception handler says, if there is one; `stacks`: where
    those of a profile go, if there is to be one."""
    try:
        config = StreamsConfig.from_toml(config_file)
        watch_disk(config.milestones)
        streams = Streams(named(topology)(config.application_id), config)
        streams.set_state_listener(lambda new, old: log.info("%s%s", STATE, new.value))
        if handler is not None:
            streams.set_uncaught_exception_handler(lambda _: UncaughtExceptionResponse[handler])
        signal.signal(signal.SIGUSR1, lambda *_: log.info("%s%s", STATUS, streams.status()))
        faulthandler.register(signal.SIGUSR1, all_threads=True, chain=True)
        on_signal(signal.SIGUSR2, ADDED, streams.add_stream_thread)
        on_signal(signal.SIGHUP, REMOVED, streams.remove_stream_thread)
        on_signal(signal.SIGTTOU, PAUSED, streams.pause)
        on_signal(signal.SIGTTIN, RESUMED, streams.resume)
        with contextlib.nullcontext() if stacks is None else profiled(streams, stacks):
            return streams.run()
    except MilestonesError as error:
        log.error("%s: %s", type(error).__name__, error)
        return error.exit_code
    finally:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTTOU, signal.SIGTTIN):
            signal.signal(number, signal.SIG_IGN)  # the handlers hold the client


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topology", help="a name of topologies.py, or plan:JSON, or plan:FILE")
    parser.add_argument("--config", required=True)
    parser.add_argument("--census", type=Path)
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--refusals", type=Path)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--handler", choices=[decision.name for decision in UncaughtExceptionResponse])
    arguments = parser.parse_args()
    try:
        named(arguments.topology)
    except ValueError as error:
        parser.error(str(error))
    begin_log()
    if arguments.refusals is not None:
        refuse(arguments.refusals)
    if arguments.profile is not None:
        loaded()  # else the census finds its constants, and takes them for leftovers of the run
    before = census()
    watch = Watch() if arguments.watch else None
    if watch is not None:
        watch.start()
    code = run(arguments.topology, arguments.config, arguments.handler, arguments.profile)
    if watch is not None:
        watch.end()
    if arguments.census:
        arguments.census.write_text(json.dumps({"before": before, "after": census(before["native_threads"])}))
    return code


if __name__ == "__main__":
    sys.exit(serve(main) if sys.argv[1:] == [SERVE] else main())
