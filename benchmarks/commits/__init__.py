"""The work `commits`: `work.py` measures it; `app.py` and `Commits.java` do it, and write when they processed each
record into a file that `times.py` describes. Nothing is imported here, so that no contender carries what it doesn't
need."""

from __future__ import annotations

from typing import Final

STORE: Final = "counts"
"""The store's name; the changelog is `<application id>-counts-changelog` for all contenders."""
TIMES: Final = ".times"
"""What the name of the file with the times ends with, behind that of the state directory."""
