"""Looks at files and stores from inside the process, and says in the log when a thread that polls uses one.

*Guarantees*: each kind of access is reported once per stack. What the baseline's processing does in the stream thread,
on m1 too, doesn't count, nor does Python when it reads source lines for a traceback.
*Assumes*: installed before the runtime makes anything. RocksDB's calls raise no audit events, so engines are watched at
their methods; those in memory too, as the promise makes no difference.
"""

from __future__ import annotations

import linecache
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Collection
from functools import lru_cache, wraps
from types import FrameType
from typing import Any, Final

from compat_tests.apps.waits import callers, outwards
from milestones.baseline.processing import InlineProcessing
from milestones.common.state.engines.memory_engine import MemoryEngine, MemoryNamespace
from milestones.common.state.engines.rocksdict_engine import RocksDictEngine, RocksDictNamespace
from milestones.flags import parse_milestones

log = logging.getLogger("compat_tests")

USED: Final = "a thread that polls used "
"""What the log says, followed by the access and its stack."""
FLAG: Final = "state_updater"
"""The flag from which on threads that poll use neither."""

FILES: Final = ("os.", "shutil.", "tempfile.", "glob.", "fcntl.")
"""The beginnings of the names of audit events of files, besides `open`."""
UNAUDITED: Final = ("stat", "fsync")
"""Functions of `os` without an audit event."""
ENGINES: Final[tuple[type, ...]] = (RocksDictEngine, MemoryEngine)
NAMESPACES: Final[tuple[type, ...]] = (RocksDictNamespace, MemoryNamespace)
OF_ENGINES: Final = ("__init__", "open", "apply", "drop", "ingest", "close", "statistics", "memory")
OF_NAMESPACES: Final = ("scan", "offset", "approximate_entries")

OF_PROCESSING: Final = f"{InlineProcessing.__name__}."


@lru_cache
def polls(thread: str) -> bool:
    """Whether a thread of this name polls."""
    return re.search(r"-(StreamThread-\d+|PollingThread)$", thread) is not None


class DiskWatch:
    """*Owns*: what was reported, by kind of access and stack. *Concurrency*: any thread calls it; what two threads find
    at a time may be reported twice."""

    def __init__(self) -> None:
        self._reported: set[tuple[str, str]] = set()

    def install(self) -> None:
        """For good: an audit hook can't be removed."""
        for name in UNAUDITED:
            self._watch(os, name, f"os.{name}")
        for kind in ENGINES:
            self._watch_all(kind, OF_ENGINES)
        for kind in NAMESPACES:
            self._watch_all(kind, OF_NAMESPACES)
            self._watch_reads(kind)
        sys.addaudithook(self.audited)

    def audited(self, event: str, arguments: tuple[object, ...]) -> None:
        """Look at an audit event."""
        if (event == "open" or event.startswith(FILES)) and polls(threading.current_thread().name):
            self._note(event, arguments[:1], sys._getframe(1))

    def _watch_all(self, owner: Any, names: Collection[str]) -> None:
        for name in names:
            self._watch(owner, name, f"{owner.__name__}.{name}")

    def _watch(self, owner: Any, name: str, what: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        @wraps(original)
        def watched(*arguments: Any, **named: Any) -> Any:
            if polls(threading.current_thread().name):
                self._note(what, (), sys._getframe(1))
            return original(*arguments, **named)

        setattr(owner, name, watched)

    def _watch_reads(self, kind: Any) -> None:
        """A namespace's `get` is an attribute of the object."""
        original: Callable[..., Any] = kind.__init__

        @wraps(original)
        def made(namespace: Any, *arguments: Any, **named: Any) -> None:
            original(namespace, *arguments, **named)
            self._watch(namespace, "get", f"{kind.__name__}.get")

        kind.__init__ = made

    def _note(self, what: str, arguments: tuple[object, ...], frame: FrameType) -> None:
        if passed_over(frame):
            return
        stack = " < ".join(callers(frame))
        if (what, stack) not in self._reported:
            self._reported.add((what, stack))
            log.warning("%s%s %s: %s", USED, what, " ".join(map(repr, arguments)), stack)


def watch_disk(milestones: Collection[str]) -> None:
    """Watch, if these flags or stages have threads that poll and may use neither files nor stores."""
    if FLAG in parse_milestones(milestones):
        DiskWatch().install()


def passed_over(frame: FrameType) -> bool:
    """Whether this innermost frame belongs to the baseline's processing, or to a traceback's text."""
    return any(
        caller.f_code.co_qualname.startswith(OF_PROCESSING) or caller.f_code.co_filename == linecache.__file__
        for caller in outwards(frame)
    )
