"""The work `blocking`: `work.py` measures it, `app.py` does it. Nothing is imported here, so that no contender carries
what it doesn't need."""

from __future__ import annotations

from typing import Final

DONE: Final = b"!"
"""What an output has behind the value of its input."""
