"""What a contender's process is told: its whole command line, the same for Python and Java.

*Guarantees*: `Job.parse(job.arguments())` is `job`.
*Assumes*: no value is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once_v2"
GUARANTEES = (AT_LEAST_ONCE, EXACTLY_ONCE)
COMMIT_INTERVAL_MS = "1000"


@dataclass(frozen=True)
class Job:
    """One run of one contender: everything in it is fresh but the input."""

    bootstrap_servers: str
    application_id: str
    guarantee: str
    input: str
    output: str
    state_dir: str
    commit_interval_ms: str = COMMIT_INTERVAL_MS
    stage: str = "-"
    """Flags or stage that executes it; only for ours."""
    work: str = "-"
    """What is done to a record, where a work has several kinds of it."""
    threads: str = "1"
    """Threads that call user code: stream threads, or processing threads where a work says so."""
    workers: str = "1"
    """Processes of one command; only for ours."""
    partitions: str = "4"
    """Of the input, and so of all other topics."""
    settings: str = "-"
    """`tuned`, or as they are; only for Kafka Streams."""
    cache_bytes: str = "0"
    """`statestore.cache.max.bytes`; only for Kafka Streams."""

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == EXACTLY_ONCE

    def arguments(self) -> list[str]:
        """`name=value` for each field."""
        return [f"{name}={value}" for name, value in asdict(self).items()]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Job:
        """The job that `arguments` describe. `SystemExit` when something is missing or unknown."""
        given = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
        names = [field.name for field in fields(cls)]
        if len(given) != len(arguments) or not given.keys() <= set(names):
            raise SystemExit(f"expected {' '.join(f'{name}=...' for name in names)}, not {list(arguments)}")
        return cls(**given)
