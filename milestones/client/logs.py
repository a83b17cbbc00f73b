"""Sets up the logs of a process that runs a client: they are written to stderr, as lines of text or of JSON.

*Guarantees*: if a program has already set up its logs, its set-up stays. In JSON, each event is one line of valid JSON,
whatever its message or its traceback contains.
*Assumes*: it is called before the first event, by the thread that starts the client.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from milestones.common.config.watch_keys import JSON, TEXT_LINES
from milestones.common.diagnostics import shortened

LINE: Final = "%(asctime)s %(levelname)-7s %(message)s"
VERBOSE_LINE: Final = "%(asctime)s %(levelname)-7s [%(threadName)s] %(name)s: %(message)s"
MOST_OF_A_TRACEBACK: Final = 20_000
"""The number of characters of a traceback that are logged. Collectors of logs cut or split much longer lines."""

OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""The fields of every event; all others were given as `extra`."""


class JsonLines(logging.Formatter):
    """Formats each event as a JSON object on one line with `time` (UTC), `level`, `logger`, `thread` and `message`. A
    traceback is added as `error`, and the event's `extra` values under their names. In a worker each event begins with
    `worker`, its number and the number of workers.
    """

    def __init__(self, worker: str | None = None) -> None:
        super().__init__()
        self._first: dict[str, Any] = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = self._first | {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            event["error"] = shortened("".join(traceback.format_exception(record.exc_info[1])), MOST_OF_A_TRACEBACK)
        event |= {name: value for name, value in vars(record).items() if name not in OWN and name not in event}
        try:
            return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:  # a text isn't valid Unicode, or an object can't be shown
            plain = {name: str(value).encode(errors="backslashreplace").decode() for name, value in event.items()}
            return orjson.dumps(plain).decode()


def log_to_stderr(
    level: str = "INFO", form: str = TEXT_LINES, *, verbose: bool = False, worker: str | None = None
) -> None:
    """Log events of this level and above, and Python's warnings, to stderr, unless the program has set up its logs.
    `verbose`: log all levels, with the names of thread and logger. `worker`: the name of this worker, for JSON.
    """
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(worker) if form == JSON else logging.Formatter(VERBOSE_LINE if verbose else LINE))
    logging.basicConfig(level="DEBUG" if verbose else level, handlers=[handler])
    logging.captureWarnings(True)
