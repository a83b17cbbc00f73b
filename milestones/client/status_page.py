"""`/status`: what an instance says of itself, as JSON, for `milestones status` and for scripts.

*Guarantees*: plain values, made of published ones only. What a metric mustn't have as a label is here: texts of errors,
which may hold a user's data.
*Assumes*: only those reach the endpoint that may see such texts.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from milestones.common.diagnostics import line_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from milestones.client.client_events import Status


def page_of(status: Status) -> dict[str, Any]:
    """By task: what it does, and its place on its way; the error's text of those that fail, or have ended. Lags in
    records, by topic and partition. `calls` of your functions that are under way for a second or longer."""
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
