"""Instances as forks of processes that have imported the applications before: see `apps/forks.py`.

*Guarantees*: processes that run at the same time come from servers in turn, so that they differ in the seed of their
hashes as processes do that are started one by one. A server lives as long as this process, or until `close`.
*Assumes*: one thread.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

from compat_tests.apps.forks import SERVE, Wanted

SERVERS = 3


class Process(Protocol):
    """What an instance needs of its process; `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...


def inherited() -> dict[str, str]:
    """The environment of an instance: ours, without any setting of the runtime, as the config file is all that it gets.
    And without the seed of hashes that tox gives all its processes: each has its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILESTONES_")}
    kept.pop("PYTHONHASHSEED", None)
    return {**kept, "PYTHONUNBUFFERED": "1"}


class ForkServer:
    """One server's process."""

    def __init__(self, root: Path, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, SERVE],
            cwd=root,
            env={**inherited(), "PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def ask(self, request: Mapping[str, Any]) -> Any:
        """The server's answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the server of forks has ended with {self._process.wait()}"
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()


class Forked:
    """A child of a server, by the methods of `subprocess.Popen`."""

    def __init__(self, server: ForkServer, wanted: Wanted) -> None:
        self._server = server
        self.pid: int = server.ask({"fork": wanted})
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._server.ask({"ended": self.pid})
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Until the end; raises `subprocess.TimeoutExpired`."""
        if self.poll() is None:
            # Nobody but us has the server take its end, so the id is still the process's own.
            handle = os.pidfd_open(self.pid)
            try:
                select.select([handle], [], [], timeout)
            finally:
                os.close(handle)
        if (code := self.poll()) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.Signals(sig))


class Forks:
    """Servers, each started when its turn first comes. `fresh`: no forks are wanted, or possible on this system."""

    def __init__(self, root: Path, module: str = "compat_tests.apps") -> None:
        self.fresh = not hasattr(os, "pidfd_open")
        self._root, self._module = root, module
        self._servers: list[ForkServer | None] = [None] * SERVERS
        self._turns = cycle(range(SERVERS))

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Forked:
        """A process like `python -m MODULE ARGUMENTS`, whose output is added to `log`."""
        turn = next(self._turns)
        server = self._servers[turn] = self._servers[turn] or ForkServer(self._root, self._module)
        folder = str(self._root)
        variables = {**environment, "PYTHONPATH": folder}
        return Forked(server, Wanted(arguments=[*arguments], environment=variables, folder=folder, log=str(log)))

    def close(self) -> None:
        """End the servers; further ones may be started."""
        for server in filter(None, self._servers):
            server.close()
        self._servers = [None] * SERVERS
