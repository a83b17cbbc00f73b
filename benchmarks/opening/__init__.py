"""The work `opening`: what a store that opens slowly keeps up. `work.py` measures it, `app.py` is the instance."""

from __future__ import annotations

from typing import Final

PARTITIONS: Final = 64
STORES: Final = ("first", "second", "third")
SLOW_S: Final = 12.0
"""How long the last store of the slow task takes to open."""
LONG_S: Final = 0.02
"""From which on the log has what a stream loop does."""
CALLS: Final = "calls"
"""What stands in the file instead of a task when the next record's call is to take as long."""
CALLED: Final = "the call is over"
"""What the log says after it."""
OPEN: Final = "the slow store is open"
"""What the log says then."""
