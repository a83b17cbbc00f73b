"""The work `opening`: what a store that opens slowly keeps up. `work.py` measures it, `app.py` is the instance."""

from __future__ import annotations

from typing import Final

PARTITIONS: Final = 64
STORES: Final = ("first", "second", "third")
SLOW_S: Final = 12.0
"""How long the last store of the slow task takes to open."""
LONG_S: Final = 0.02
"""From which on the log has what a stream loop does."""
OPEN: Final = "the slow store is open"
"""What the log says then."""
