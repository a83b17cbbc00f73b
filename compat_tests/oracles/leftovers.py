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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compat_tests.oracles.findings import Finding, Findings


@dataclass(frozen=True)
class Census:
    """What one process has at one time. `native_threads`: as the system counts them, Python's included."""

    threads: tuple[str, ...]
    native_threads: int
    files: tuple[str, ...]
    connections: int

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Census:
        return cls(
            tuple(written["threads"]), written["native_threads"], tuple(written["files"]), written["connections"]
        )


def nothing_left(before: Census, after: Census, state_dir: str) -> Findings:
    """Threads, files of the state directory and connections are back to what they were."""
    new = sorted(set(after.threads) - set(before.threads))
    findings = [Finding("thread", f"thread {name} lives on") for name in new]
    if not new and after.native_threads > before.native_threads:
        text = f"{after.native_threads} native threads after close, {before.native_threads} before start"
        findings.append(Finding("thread", text))
    findings += [Finding("file", f"{name} is still open") for name in after.files if name.startswith(state_dir)]
    if after.connections > before.connections:
        text = f"{after.connections} connections after close, {before.connections} before start"
        findings.append(Finding("connection", text))
    return findings
