"""The work `count`: `work.py` measures it; `app.py`, `loop.py` and `Count.java` do it. Nothing is imported here, so
that no contender carries what it doesn't need."""

from __future__ import annotations

from typing import Final

STORE: Final = "totals"
"""The store's name; the changelog is `<application id>-totals-changelog` for all contenders."""
