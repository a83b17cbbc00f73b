"""The program of `latency`, `skew` and `footprint`: keeps each key's last value, and puts it out. `app.py` and
`Last.java` do it. Nothing is imported here, so that no contender carries what it doesn't need."""

from __future__ import annotations

from typing import Final

STORE: Final = "last"
