"""The work `windows`: `work.py` measures it; `app.py` and `Windows.java` do it. Nothing is imported here, so that no
contender carries what it doesn't need."""

from __future__ import annotations

from typing import Final

STATELESS, COUNT, TUMBLING, SESSIONS = "stateless", "count", "tumbling", "sessions"
HOPPING, SUPPRESS = "hopping", "suppress"
TABLE_JOIN, STREAM_JOIN = "table-join", "stream-join"
KINDS: Final = (STATELESS, COUNT, TUMBLING, HOPPING, SUPPRESS, SESSIONS, TABLE_JOIN, STREAM_JOIN)
"""The topologies; `work` of a job is one of them."""

STORE: Final = "totals"
"""The store of the counts."""
JOINS: Final = (TABLE_JOIN, STREAM_JOIN)
"""Those with two input topics."""

OTHER: Final = "-other"
"""What the name of a join's second input topic ends with: that of the table, or of the right stream."""

WINDOW_MS: Final = 60_000
ADVANCE_MS: Final = 15_000
"""From one hopping window to the next one: a record is in four of them."""
GAP_MS: Final = 10_000
WITHIN_MS: Final = 10_000
GRACE_MS: Final = 10_000
"""The size of windows, the gap between sessions, how far apart records are joined, the grace of all."""
