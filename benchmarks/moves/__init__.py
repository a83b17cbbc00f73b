"""The work `moves`: what it costs to move tasks with much state. `work.py` measures it, `app.py` is what moves."""

from __future__ import annotations

from typing import Final

PARTITIONS: Final = 6
STORE: Final = "last"
