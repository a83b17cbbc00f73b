"""The checkpoint file of a task directory: the changelog offsets of the stores, known without opening them.

The file is written when a task is closed, and now and then while the task is open, after the stores. So its offsets are
lower bounds after the end of the process, also after `kill -9`. After a power loss they may be too high, as neither
file nor stores are synced. A store that is emptied takes the file away.

*Guarantees*: reading never fails: a file that can't be understood counts as absent.
*Assumes*: the thread that writes holds the task's lock. The offsets are a hint for the assignor, which at worst chooses
an instance that has more to restore: no restoration depends on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from milestones.common.state.disk import explained, write_atomically

POSITIONS_FILE = "positions.json"
FORMAT = 1


def write(directory: Path, offsets: Mapping[str, int]) -> None:
    """Write these changelog offsets, by store. `StateError`. The file isn't synced: its loss costs little."""
    text = json.dumps({"format": FORMAT, "offsets": dict(offsets)}) + "\n"
    write_atomically(directory / POSITIONS_FILE, text.encode(), sync=False)


def read(directory: Path) -> dict[str, int]:
    """The changelog offsets by store; empty when none are known."""
    try:
        written = json.loads((directory / POSITIONS_FILE).read_bytes())
        if written["format"] != FORMAT:
            return {}
        return {str(store): int(offset) for store, offset in written["offsets"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def forget(directory: Path) -> None:
    """Remove the file, as a store's content is replaced. `StateError`. Harmless when there is no file."""
    with explained("remove", directory / POSITIONS_FILE):
        (directory / POSITIONS_FILE).unlink(missing_ok=True)
