"""Windows that are emitted when they close.

| kind | what was found |
|---|---|
| lost | a window that has closed was never emitted |
| duplicate | a window was emitted again, where that isn't allowed |
| wrong-value | a result that no window has |

*Guarantees*: pure.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from compat_tests.oracles.findings import Finding, Findings

Emitted: TypeAlias = "Counter[tuple[bytes, bytes]]"
"""How often each window, a key with its window, was emitted with each result."""


def once(wanted: Emitted, found: Emitted, *, repeats: bool) -> Findings:
    """Every wanted result is there, once, and no other is. `repeats` (at least once, after a crash): windows may be
    emitted again, and their counts be too high."""
    if repeats:
        windows = {window for window, _ in found}
        return [Finding("lost", f"{window!r}: {result!r}") for window, result in wanted if window not in windows]
    missing = [Finding("lost", f"{window!r}: {result!r}") for window, result in wanted - found]
    wrong = [Finding("wrong-value", f"{one[0]!r}: {one[1]!r}") for one in found if one not in wanted]
    more = [Finding("duplicate", f"{one!r}: {times} times") for one, times in found.items() if times > 1]
    return missing + wrong + more
