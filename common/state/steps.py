"""Cuts a batch of writes into steps. A write to an engine holds Python's lock (GIL), for about 10 ms per MiB.

*Guarantees*: a step has at most `STEP_ENTRIES` entries, and at most `STEP_BYTES` of keys and values. A single entry may
be larger: then it is a step by itself. All steps together have the entries of the batch, in the same order.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from milestones.common.state.engine import Batch

STEP_ENTRIES: Final = 2_000
STEP_BYTES: Final = 1024 * 1024


def size(batch: Batch) -> int:
    """Sum up the bytes of keys and values."""
    return sum(map(len, batch)) + sum(map(len, filter(None, batch.values())))


def steps(batch: Batch) -> Iterator[Batch]:
    """Cut `batch` into steps, at least one."""
    if len(batch) <= STEP_ENTRIES and size(batch) <= STEP_BYTES:
        yield batch
        return
    entries = iter(batch.items())
    while chunk := dict(islice(entries, STEP_ENTRIES)):
        if size(chunk) <= STEP_BYTES:
            yield chunk
        else:
            yield from _cut(chunk)


def joint_steps(batches: Mapping[str, Batch]) -> Iterator[dict[str, Batch]]:
    """Cut several batches, keyed by name, into steps. One step takes entries of several batches if these are small."""
    joint: dict[str, Batch] = {}
    entries = taken = 0
    for name, batch in batches.items():
        for step in filter(None, steps(batch)):
            more = size(step)
            if joint and (name in joint or entries + len(step) > STEP_ENTRIES or taken + more > STEP_BYTES):
                yield joint
                joint, entries, taken = {}, 0, 0
            joint[name] = step
            entries, taken = entries + len(step), taken + more
    if joint:
        yield joint


def _cut(batch: Batch) -> Iterator[Batch]:
    """Cut `batch` into steps by bytes only, whatever the number of entries."""
    step: dict[bytes, bytes | None] = {}
    taken = 0
    for key, value in batch.items():
        more = len(key) + len(value or b"")
        if step and taken + more > STEP_BYTES:
            yield step
            step, taken = {}, 0
        step[key] = value
        taken += more
    yield step
