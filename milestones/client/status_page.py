"""Makes the page `/status`, which describes an instance as JSON, for `milestones status` and for scripts.

*Guarantees*: the page has plain values, made only from published ones. It also has texts of errors, which may contain a
user's data, and are left out of metrics for this reason.
*Assumes*: only people who may see such texts can reach the endpoint.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from milestones.common.diagnostics import line_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from milestones.client.client_events import Status


def page_of(status: Status) -> dict[str, Any]:
    """Return the page. For each task it has the state, the place, and the text of its error if it fails or has ended.
    Lags are numbers of records, by topic and partition. `calls` are calls of your functions that have been running for
    a second or longer.
    """
    return {
        "state": status.state.value,
        "stage": status.stage,
        "error": None if status.error is None else line_of(status.error),
        "generation": status.generation,
        "records": status.records,
        "threads": {name: state.value for name, state in status.threads.items()},
        "tasks": _by_task(status.tasks),
        "places": _by_task(status.places),
        "lags": {str(partition): lag for partition, lag in sorted(status.lags.items())},
        "restoring": _by_task(status.restoring),
        "failing": _by_task(status.failing),
        "ended": _by_task(status.ended),
        "calls": [asdict(call) for call in status.calls],
    }


def _by_task(told: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(task): value for task, value in sorted(told.items())}
