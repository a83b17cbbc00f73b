"""What threads that poll use of disks and stores, from the state updater on: nothing.

| kind | what was found |
|---|---|
| disk | a thread that polls has used a file or a store |

*Guarantees*: pure.
*Assumes*: the log is that of `compat_tests.apps`, in which `apps/disk.py` has said so.
"""

from __future__ import annotations

from compat_tests.apps.disk import USED
from compat_tests.oracles.findings import Finding, Findings


def nothing_used(name: str, log: str) -> Findings:
    """`name`: of the instance whose log this is."""
    return [Finding("disk", f"{name}: {line}") for line in log.splitlines() if USED in line]
