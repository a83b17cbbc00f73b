"""The settings of one worker, made of those of its command.

*Guarantees*: all that belongs to one worker is in this file: its folder, its ids, its share of memory, its port.
*Assumes*: the config is that of the command, the same in each worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milestones.common.assignment.machines import COMMAND_TAG, WORKER_TAG
from milestones.workers.place import WorkerPlace

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig

DIVIDED: Final = (
    "statestore_cache_max_bytes",
    "statestore_read_cache_max_bytes",
    "statestore_uncommitted_max_bytes",
    "statestore_waiting_max_bytes",
    "input_buffer_max_bytes",
    "output_buffer_max_bytes",
    "rocksdb_block_cache_bytes",
)
"""The bounds of memory that are divided by the number of workers, if a user has given them. Their defaults hold for
each worker. A bound of one store or one client isn't divided."""

LOOPBACK: Final = "127.0.0.1"
_FOLDER = re.compile(r"worker-([1-9]\d*)")


def worker_config(config: StreamsConfig, place: WorkerPlace) -> StreamsConfig:
    """Return the config of one worker. With a parent the metrics are served on a free port of the loopback interface,
    because the parent has the port that `config` names."""
    given = (key for key in DIVIDED if config.origin(key) != "default")
    options: dict[str, Any] = {key: _share(getattr(config, key), place.count) for key in given}
    options |= {
        key: f"{value}-{place.number}"
        for key in ("client_id", "group_instance_id")
        if (value := getattr(config, key)) is not None
    }
    if place.number > 1:
        options["state_dir"] = str(worker_folder(config.state_dir, place.number))
    tags = {**config.client_tags, WORKER_TAG: str(place)}
    if place.command:
        tags[COMMAND_TAG] = place.command
        if config.metrics_port is not None:
            options |= {"metrics_host": LOOPBACK, "metrics_port": 0}
    options["client_tags"] = tags
    return config.with_options(options)


def worker_folder(state_dir: str | Path, number: int) -> Path:
    """Return the `state_dir` of a worker. Worker 1 has that of the command, so that an instance without workers goes
    on with its state."""
    return Path(state_dir) if number == 1 else Path(state_dir) / f"worker-{number}"


def worker_folders(state_dir: str | Path, application_id: str) -> Iterator[tuple[int, Path]]:
    """Yield the folders `worker-<i>` below `state_dir` that have state of the application, by number."""
    above = Path(state_dir)
    numbered = ((_FOLDER.fullmatch(path.name), path) for path in above.glob("worker-*"))
    found = [(int(match[1]), path) for match, path in numbered if match]
    yield from ((number, path) for number, path in sorted(found) if (path / application_id).is_dir())


def state_directories(state_dir: str | Path, application_id: str) -> list[Path]:
    """Return the state directories of the application that exist: that of an instance or of worker 1, and those of the
    other workers."""
    folders = [Path(state_dir), *(path for _, path in worker_folders(state_dir, application_id))]
    return [path / application_id for path in folders if (path / application_id).is_dir()]


def place_of(config: StreamsConfig) -> WorkerPlace | None:
    """Return the place of the worker that has this config, or None if an instance without workers has it."""
    text = config.client_tags.get(WORKER_TAG)
    return None if text is None else WorkerPlace.parse(text)


def idle_folders(config: StreamsConfig) -> list[Path]:
    """Return the folders of workers that the command doesn't have. Worker 1, or an instance without workers, finds
    them."""
    place = place_of(config) or WorkerPlace(1, 1)
    if place.number > 1:
        return []
    return [path for number, path in worker_folders(config.state_dir, config.application_id) if number > place.count]


def _share(value: int, count: int) -> int:
    """Return a worker's part of a bound. 0 and -1 have meanings of their own, and stay."""
    return value if value <= 0 else max(1, value // count)
