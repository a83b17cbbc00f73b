"""How far the standbys and restoring tasks of living instances are, and what else the applications' own metrics tell.

*Guarantees*: what an instance doesn't serve yet counts as unknown.
*Assumes*: the instances were started with `METRICS`; gauges are a second old at most.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from http.client import HTTPException
from urllib.request import urlopen

from compat_tests.harness.instance import Instance
from compat_tests.harness.world import World
from milestones.testing import NotYet

METRICS = {"metrics_port": 0}
"""The setting that makes an instance serve its metrics."""
PUBLISHED_S = 2.0
"""After which what an instance serves is newer than what was done before."""
ENDPOINT = re.compile(r"metrics are served at (http://\S+)")
SAMPLE = re.compile(r"^kafka_stream_(\w+)\{([^}]*)\} (\S+)", re.MULTILINE)
TASK = re.compile(r'task_id="([^"]+)"')


def lags(instance: Instance) -> dict[str, int]:
    """Changelog records that its standbys are behind, by task; -1: unknown."""
    return of_tasks(instance, "standby_records_lag")


def remaining(instance: Instance) -> dict[str, int]:
    """Changelog records that its active tasks have still to restore, by task."""
    return of_tasks(instance, "restore_remaining_records")


def of_tasks(instance: Instance, name: str) -> dict[str, int]:
    """What `kafka_stream_task_<name>` says, by task."""
    found = _samples(instance, f"task_{name}")
    return {task[1]: value for labels, value in found if (task := TASK.search(labels)) is not None}


def of_all(instance: Instance, name: str) -> int:
    """What `kafka_stream_<name>` says, over all its labels; 0 while it isn't served."""
    return sum(value for _, value in _samples(instance, name))


def of_account(instance: Instance, account: str) -> int:
    """The bytes of an account of the instance's memory; 0 while it isn't served."""
    found = _samples(instance, "memory_account_bytes")
    return sum(value for labels, value in found if f'account="{account}"' in labels)


def _samples(instance: Instance, name: str) -> list[tuple[str, int]]:
    """The labels and values of a metric."""
    served = ENDPOINT.search(instance.log())
    if served is None:
        return []
    try:
        with urlopen(served[1], timeout=10) as answer:
            text = answer.read().decode()
    except (OSError, HTTPException):  # refused, late, or broken off: the instance begins, or ends
        return []
    return [(labels, int(float(value))) for found, labels, value in SAMPLE.findall(text) if found == name]


def caught_up(world: World, tasks: Collection[str], *instances: Instance) -> None:
    """Wait until each of these tasks has a standby that has all of its changelog, as it is now."""
    published = time.monotonic() + PUBLISHED_S

    def there() -> object:
        found = {one.name: lags(one) for one in instances}
        behind = set(tasks) - {task for one in found.values() for task, lag in one.items() if lag == 0}
        if behind:
            return NotYet(f"lags {found}, nobody has {', '.join(sorted(behind))}")
        return time.monotonic() > published or NotYet("it may be of before")

    world.wait(there, f"standbys of {', '.join(sorted(tasks))} have caught up")
