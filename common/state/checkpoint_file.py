"""How far the stores of a closed task are, without opening them: one small file per task directory.

Written when a task is closed, and now and then while it is open, after the stores. So it is a lower bound after the end
of the process, `kill -9` too: offsets only grow. After a power loss it may say more than the stores have, as neither is
synced. A store that is made anew takes the file away.

*Guarantees*: reading never fails: what can't be understood is no knowledge.
*Assumes*: the thread that writes holds the lock. It is a hint for the assignor, which at worst chooses an instance
that has more to restore: nothing is read or skipped by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from milestones.common.state.disk import explained, write_atomically

POSITIONS_FILE = "positions.json"
FORMAT = 1


def write(directory: Path, offsets: Mapping[str, int]) -> None:
    """Keep these changelog offsets, by store. `StateError`. Not synced to the disk: losing it costs little."""
    text = json.dumps({"format": FORMAT, "offsets": dict(offsets)}) + "\n"
    write_atomically(directory / POSITIONS_FILE, text.encode(), sync=False)


def read(directory: Path) -> dict[str, int]:
    """The changelog offsets by store; empty when nothing is known."""
    try:
        written = json.loads((directory / POSITIONS_FILE).read_bytes())
        if written["format"] != FORMAT:
            return {}
        return {str(store): int(offset) for store, offset in written["offsets"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def forget(directory: Path) -> None:
    """A store's content isn't what it was. `StateError`. Harmless when there is nothing."""
    with explained("remove", directory / POSITIONS_FILE):
        (directory / POSITIONS_FILE).unlink(missing_ok=True)
