"""The keys of metrics, probes and logs, a part of the table in `keys.py`.

*Guarantees* and *assumes*: see `keys.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milestones.common.config.key import ConfigKey
from milestones.common.config.value_types import TEXT, choice, integer, optional

PROCESSING, RUNNING = "processing", "running"
"""The values of `readiness`: what must hold so that `/readyz` reports success."""
TEXT_LINES, JSON = "text", "json"
"""The values of `log_format`: the format of a line of the log."""


class WatchKeys:
    """The keys of metrics, probes and logs."""

    _values: Mapping[str, Any]

    metrics_recording_level: Final = ConfigKey(
        choice("INFO", "DEBUG", "TRACE"), "INFO", "low",
        doc="How much is measured. `DEBUG` also counts the records of each node, which takes some time per record.",
    )
    metrics_sample_window_ms: Final = ConfigKey(
        integer(at_least=1000), 30_000, "low",
        doc="The time over which rates, averages and maxima are computed.",
    )
    metrics_host: Final = ConfigKey(
        TEXT, "127.0.0.1", "low",
        doc="Address on which `metrics_port` listens.",
    )
    metrics_port: Final = ConfigKey(
        optional(integer(at_least=0, at_most=65535)), None, "low",
        doc="Port of an HTTP endpoint with `/metrics` for Prometheus, `/livez` and `/readyz` for probes, and `/status` "
        "for `milestones status` and scripts. 0 chooses a free port. If the key isn't set, there is no endpoint.",
    )
    readiness: Final = ConfigKey(
        choice(PROCESSING, RUNNING), PROCESSING, "low",
        doc="When `/readyz` reports success. `processing`: the client is RUNNING, no task has ended (`task_failed`), "
        "and no task waits because the disk of its state is full. `running`: the client is RUNNING.",
    )
    log_level: Final = ConfigKey(
        choice("DEBUG", "INFO", "WARNING", "ERROR"), "INFO", "low",
        doc="The lowest level of the log lines that `milestones run` and `Streams.run` write to stderr. With `-v` all "
        "levels are written. If the program has configured logging, the key has no effect.",
    )
    log_format: Final = ConfigKey(
        choice(TEXT_LINES, JSON), TEXT_LINES, "low",
        doc="The format of the log lines of `milestones run` and `Streams.run`. `text`: plain text. `json`: one line "
        "of JSON per event, with `time`, `level`, `logger`, `thread`, `message` and, for an error, the traceback as "
        "`error`.",
    )
