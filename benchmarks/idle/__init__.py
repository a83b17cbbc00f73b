"""The work `idle`: `work.py` measures it, `app.py` does it. Nothing is imported here, so that no contender carries what
it doesn't need."""

from __future__ import annotations

from typing import Final

PLAIN, STATEFUL = "plain", "stateful"
"""The input topics: `<application>-<this>`."""

RUNNING: Final = ".running"
"""Behind the state directory's name: the file that says that the application is RUNNING."""

STATEFUL_SHARE: Final = 8
"""One task of so many has a store."""
