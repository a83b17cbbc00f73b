"""What a process still has after `close()`: it should be what it had before `start()`.

| kind | what was found |
|---|---|
| thread | a thread that lives on |
| file | an open file below the state directory |
| connection | an open connection |

*Guarantees*: pure.
*Assumes*: both censuses were taken by the process itself, garbage collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compat_tests.oracles.findings import Finding, Findings

PROCESS_WIDE = "rocksdb:"
"""RocksDB's background threads belong to the process: they come with the first store and stay."""


@dataclass(frozen=True)
class Census:
    """What one process has at one time. `native_threads`: names of all threads where the system tells them (Linux),
    else nothing."""

    threads: tuple[str, ...]
    native_threads: tuple[str, ...]
    files: tuple[str, ...]
    connections: int

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Census:
        return cls(
            tuple(written["threads"]), tuple(written["native_threads"]), tuple(written["files"]), written["connections"]
        )


def nothing_left(before: Census, after: Census, state_dir: str) -> Findings:
    """Threads, files of the state directory and connections are back to what they were."""
    new = sorted(set(after.threads) - set(before.threads))
    findings = [Finding("thread", f"thread {name} lives on") for name in new]
    native = Counter(after.native_threads) - Counter(before.native_threads)
    if not new:
        foreign = [name for name in native.elements() if not name.startswith(PROCESS_WIDE)]
        findings += [Finding("thread", f"native thread {name} lives on") for name in foreign]
    findings += [Finding("file", f"{name} is still open") for name in after.files if name.startswith(state_dir)]
    if after.connections > before.connections:
        text = f"{after.connections} connections after close, {before.connections} before start"
        findings.append(Finding("connection", text))
    return findings
