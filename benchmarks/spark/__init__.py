"""The work `spark`: `work.py` measures it; `app.py` and `structured.py` do it. Nothing is imported here, so that no
contender carries what it doesn't need."""

from __future__ import annotations

from typing import Final

STORE: Final = "counts"
RESULT: Final = "RESULT "
"""What a contender prints at its end, followed by JSON: `records`, and `seconds` from the first look at the topic to
the end of the last batch; Spark itself was up and warm before."""
