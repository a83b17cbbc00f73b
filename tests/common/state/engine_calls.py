"""Each call of an engine in turn, and what stops other threads meanwhile. A program: its libraries are loaded behind
`syncs.c`.

    engine_calls.py <engine> <folder>   -->   {"<call>": [syncs under Python's lock, longest stop of a thread in ms]}
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.sst import SstWriter

SPAN = b"key-0", b"key-9"


class Ticks(threading.Thread):
    """A thread that wants to run all the time. `longest`: that it couldn't, in seconds."""

    def __init__(self) -> None:
        super().__init__(name="ticks", daemon=True)
        self.longest = 0.0

    def run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(0.001)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now


class Calls:
    """*Owns*: what was found of each call."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, int]] = {}
        self._syncs, self._ticks = Path(os.environ["SYNCS"]), Ticks()
        self._ticks.start()

    def make(self, name: str, call: Callable[[], Any]) -> Any:
        time.sleep(0.02)
        self._syncs.write_text("")
        self._ticks.longest = 0.0
        result = call()
        time.sleep(0.02)  # until the ticking thread has noticed
        held = sum(line.startswith("held") for line in self._syncs.read_text().splitlines())
        self.found[name] = held, round(self._ticks.longest * 1_000)
        return result


def entries(count: int) -> dict[bytes, bytes | None]:
    return {b"key-%05d" % number: b"value" for number in range(count)}


def files(folder: Path) -> list[Path]:
    folder.mkdir()
    writer = SstWriter(folder)
    writer.write((b"key-%05d" % number, b"value") for number in range(100))
    return list(writer.files)


def killed_beside(engine: str, folder: Path) -> None:
    """Leave a database as a process does that is killed behind its last write."""
    if not os.fork():
        left = open_engines(engine).open(folder, namespaces=["s"])
        left.open("s")
        left.apply({"s": entries(100)}, {"s": 1})
        os._exit(0)
    os.wait()


def main(name: str, root: Path) -> dict[str, tuple[int, int]]:
    killed_beside(name, root / "killed")
    calls, engines = Calls(), open_engines(name)
    make = calls.make
    engine = make("Engines.open, a new one", lambda: engines.open(root / "s", namespaces=["s"]))
    make("open, of a new engine", lambda: engine.open("s"))
    make("open, another one", lambda: engine.open("t"))
    make("apply", lambda: engine.apply({"s": entries(2_000)}, {"s": 1}))
    make("expire", lambda: engine.expire("s", [SPAN]))
    make("wipe", lambda: engine.wipe({"s": SPAN}, {"s": entries(5)}))
    found = make("SstWriter.write", lambda: files(root / "files"))
    make("ingest", lambda: list(engine.ingest("t", found)))
    make("sync", engine.sync)
    make("flush", lambda: engine.flush("s"))
    make("compact", lambda: engine.compact("t", SPAN))
    namespace = engine.open("s")
    make("get", lambda: namespace.get(b"key-00001"))
    make("scan", lambda: list(namespace.scan(None, None)))
    make("scan_bounded", lambda: namespace.scan_bounded(*SPAN, 3))
    make("reader", lambda: namespace.reader()(*SPAN, 3))
    make("offset", namespace.offset)
    make("approximate_entries", namespace.approximate_entries)
    make("namespaces", engine.namespaces)
    make("unflushed", engine.unflushed)
    make("statistics", engine.statistics)
    make("memory", engine.memory)
    make("scanned", engine.scanned)
    make("drop", lambda: engine.drop("t"))
    make("close", engine.close)
    engine = make("Engines.open, again", lambda: engines.open(root / "s"))
    engine.close()
    engine = make("Engines.open, after a kill", lambda: engines.open(root / "killed"))
    assert engine.open("s").get(b"key-00001") == b"value"
    make("interrupt", engine.interrupt)
    engine.close()
    return calls.found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
