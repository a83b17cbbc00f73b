"""The work `stores`: `work.py` measures it, `looks.py` looks at the process; `app.py` and `Stores.java` do it. Nothing
is imported here, so that no contender carries what it doesn't need."""

from __future__ import annotations

from typing import Final

SECOND: Final = "second"
"""The end of a state directory's name: that of the instance that joins, which is no static member."""
PROCESSES: Final = "TASK PROCESSES"
OPENED: Final = "DATABASE OPENED"
"""What a contender prints, each on a line: when a task has its first record (ms since the epoch); how long the opening
of a database took (ms)."""
SESSION_TIMEOUT_MS: Final = 10_000
"""After which Kafka Streams' second instance, which doesn't say that it leaves, has left."""
