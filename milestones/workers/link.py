"""`ParentLink`: a worker's end of the socket to its parent.

*Guarantees*: when the parent is gone, the worker ends immediately, as by `kill -9`. So its state directory is free for
the next start. Uncommitted records are processed once more.
*Assumes*: one thread at a time sends.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

import orjson

from milestones.workers.place import ORPHANED, Inherited

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig

SETTINGS: Final = ("metrics_host", "metrics_port", "log_level", "log_format", "close_timeout_ms")
"""The settings that the parent needs. They are the same in all workers."""


class ParentLink:
    """*Owns*: the socket, and a thread that reads from it. *Receives*: the parent's answers, and its death. *Sends*:
    the settings, and the port of the metrics."""

    def __init__(self, found: Inherited) -> None:
        """Begin to watch the parent."""
        for fd in (found.socket, *found.kept):
            os.set_inheritable(fd, False)
        self.place, self._kept = found.place, found.kept
        self._socket = socket.socket(fileno=found.socket)
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="parent-watch", daemon=True).start()

    def wait_for_go(self, config: StreamsConfig) -> str | None:
        """Send the settings of the command, and wait until all workers may go on. Returns the address at which the
        parent serves the metrics of all workers, or None. Ends the process if the command ends."""
        self._tell(settings={key: getattr(config, key) for key in SETTINGS})
        answer = self._answers.get()
        if answer.get("end"):
            raise SystemExit(0)
        address = answer["go"]
        return None if address is None else f"{address}/workers/{self.place.number}"

    def report_port(self, port: int) -> None:
        """Report the port at which this worker serves its metrics."""
        self._tell(serves=port)

    def report_partitions(self, count: int) -> None:
        self._tell(partitions=count)

    def _tell(self, **message: object) -> None:
        self._socket.sendall(orjson.dumps(message) + b"\n")

    def _watch(self) -> None:
        """Read until the parent is gone; then end the process. Nothing is printed, because nobody reads it."""
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    self._answers.put(orjson.loads(line))
        finally:
            os._exit(ORPHANED)
