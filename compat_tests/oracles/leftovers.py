"""What a process still has after `close()`: it should be what it had before `start()`.

| kind | what was found |
|---|---|
| thread | a thread that lives on |
| file | an open file below the state directory |
| connection | an open connection |
| memory | an object of the runtime that somebody still holds, with all that it holds |

*Guarantees*: pure.
*Assumes*: both censuses were taken by the process itself, garbage collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from compat_tests.oracles.findings import Finding, Findings

PROCESS_WIDE = ("rocksdb:", "tokio-rt-worker")
"""Native threads that belong to the process, and stay: RocksDB's come with the first store, obstore's with the first
snapshot."""

RUNTIME = ("milestones.", "confluent_kafka.", "cimpl.Consumer", "cimpl.Message", "cimpl.Producer")
"""Whose objects hold clients, stores and buffers."""
LEAKED_BY_THE_CLIENT = "confluent_kafka.cimpl.KafkaError"
"""confluent-kafka 2.16 never lets go of an error that one of its calls has raised: a few hundred bytes each."""


@dataclass(frozen=True)
class Census:
    """What one process has at one time. `native_threads`: names of all threads where the system tells them (Linux),
    else nothing."""

    threads: tuple[str, ...]
    native_threads: tuple[str, ...]
    files: tuple[str, ...]
    connections: int
    objects: Mapping[str, int] = field(default_factory=dict)
    """How many of each class there are, of those that `keeps_memory` names."""

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Census:
        threads, native_threads, files = (tuple(written[name]) for name in ("threads", "native_threads", "files"))
        return cls(threads, native_threads, files, written["connections"], written["objects"])


def keeps_memory(name: str) -> bool:
    """Whether objects of the class with this full name are what a running client is made of."""
    return name.startswith(RUNTIME) and name != LEAKED_BY_THE_CLIENT


def new_natives(before: Collection[str], after: Collection[str]) -> list[str]:
    """The native threads that there are more of, without those that belong to the process."""
    more = Counter(after)
    more.subtract(before)
    return [name for name in more.elements() if not name.startswith(PROCESS_WIDE)]


def nothing_left(before: Census, after: Census, state_dir: str) -> Findings:
    """Threads, files of the state directory, connections and objects are back to what they were."""
    new = sorted(set(after.threads) - set(before.threads))
    findings = [Finding("thread", f"thread {name} lives on") for name in new]
    if not new:
        native = new_natives(before.native_threads, after.native_threads)
        findings += [Finding("thread", f"native thread {name} lives on") for name in native]
    findings += [Finding("file", f"{name} is still open") for name in after.files if name.startswith(state_dir)]
    if after.connections > before.connections:
        text = f"{after.connections} connections after close, {before.connections} before start"
        findings.append(Finding("connection", text))
    for name, count in sorted((Counter(after.objects) - Counter(before.objects)).items()):
        findings.append(Finding("memory", f"{count} {name} are still held"))
    return findings
