"""The work `snapshot`: `work.py` measures it, `app.py` does it."""

from __future__ import annotations

from typing import Final

STORE: Final = "totals"
ASSIGNED: Final = "TASKS ASSIGNED"
ENDED: Final = "RESTORE ENDED"
"""What the instance prints, followed by milliseconds since the epoch, and, for each partition, records it has read."""
HELD: Final = "HELD"
"""What a count prints, followed by milliseconds."""
MADE: Final = "a snapshot of store"
"""A part of what an instance logs for each one."""
