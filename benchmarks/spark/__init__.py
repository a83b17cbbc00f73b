"""The work `spark`: `work.py` measures it; `app.py` and `structured.py` do it. Nothing is imported here, so that no
contender carries what it doesn't need."""

from __future__ import annotations

from typing import Final

STORE: Final = "counts"
RESULT: Final = "RESULT "
"""What a contender prints at its end, followed by JSON: `records`; `seconds` from the first look at the topic to the
end of the last batch, and `cpu_s` of all its processes meanwhile. Spark itself was up and warm before."""
