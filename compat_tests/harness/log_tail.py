"""`log_tail`: the end of a log, as the text of a failure shows it.

*Guarantees*: a pure function. Lines that differ only in their numbers are shown once, where the last of them stands,
with their count: a client repeats itself while its broker is away, and would push out what led there.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LINES, WIDTH = 25, 200
"""Of a log in the text of a failure, where many stand one behind another; the report has all of it."""
_NUMBERS: Final = re.compile(r"\d+")


def log_tail(lines: Iterable[str], most: int = LINES, width: int = WIDTH) -> list[str]:
    """The last `most` lines that say something of their own, in their order, each cut at `width` characters."""
    said: dict[str, tuple[str, int]] = {}
    for line in lines:
        alike = _NUMBERS.sub("#", line)
        said[alike] = line, said.pop(alike, ("", 0))[1] + 1  # behind all others
    return [_shown(line, times, width) for line, times in list(said.values())[-most:]]


def _shown(line: str, times: int, width: int) -> str:
    often = f" ({times} times)" if times > 1 else ""
    return f"{line}{often}" if len(line) <= width else f"{line[:width]}...{often}"
