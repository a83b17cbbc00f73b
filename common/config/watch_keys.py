"""The keys by which an instance is watched: metrics, probes, logs.

*Guarantees* and *assumes*: as `keys.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milestones.common.config.key import ConfigKey
from milestones.common.config.value_types import TEXT, choice, integer, optional

PROCESSING, RUNNING = "processing", "running"
"""What `/readyz` asks for."""
TEXT_LINES, JSON = "text", "json"
"""What a line of the log is."""


class WatchKeys:
    """Metrics, probes and logs."""

    _values: Mapping[str, Any]

    metrics_recording_level: Final = ConfigKey(
        choice("INFO", "DEBUG", "TRACE"), "INFO", "low",
        doc="How much is measured; `DEBUG` counts the records of each node, which costs something per record.",
    )
    metrics_sample_window_ms: Final = ConfigKey(
        integer(at_least=1000), 30_000, "low",
        doc="The time over which rates, averages and maxima are taken.",
    )
    metrics_host: Final = ConfigKey(
        TEXT, "127.0.0.1", "low",
        doc="Address on which `metrics_port` listens.",
    )
    metrics_port: Final = ConfigKey(
        optional(integer(at_least=0, at_most=65535)), None, "low",
        doc="Port of an HTTP endpoint: `/metrics` for Prometheus, `/livez` and `/readyz` for probes, `/status` for "
        "`milestones status` and scripts; 0 takes a free one. Without it there is none.",
    )
    readiness: Final = ConfigKey(
        choice(PROCESSING, RUNNING), PROCESSING, "low",
        doc="What `/readyz` asks for. `processing`: the client is RUNNING, and no task stands still because it has "
        "ended (`task_failed`) or the disk of its state is full. `running`: the client is RUNNING.",
    )
    log_level: Final = ConfigKey(
        choice("DEBUG", "INFO", "WARNING", "ERROR"), "INFO", "low",
        doc="The least level of what `milestones run` and `Streams.run` log, to stderr; `-v` shows all. A program that "
        "has set up its logs keeps its set-up.",
    )
    log_format: Final = ConfigKey(
        choice(TEXT_LINES, JSON), TEXT_LINES, "low",
        doc="What `milestones run` and `Streams.run` log: lines of `text`, or a line of `json` for each event, with "
        "`time`, `level`, `logger`, `thread`, `message` and, of an error, its traceback as `error`.",
    )
