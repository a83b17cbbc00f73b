"""The work `restore`: `work.py` measures it; `app.py`, `loop.py` and `Restore.java` do it. Nothing is imported here, so
that no contender carries what it doesn't need."""

from __future__ import annotations

from typing import Final

STORE: Final = "totals"
STARTED: Final = "RESTORE STARTED"
ENDED: Final = "RESTORE ENDED"
"""What a contender prints for each partition, followed by milliseconds since the epoch and a number of records."""
