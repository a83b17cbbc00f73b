"""`docs/operations.md` names only what there is."""

from __future__ import annotations

import re
from pathlib import Path

from milestones.common.config import KEYS
from milestones.common.config.keys import END_TASK, REPLACE, SHUTDOWN_CLIENT
from milestones.common.metrics import Metrics
from milestones.common.metrics.export import exported_name
from milestones.common.metrics.scopes import SCOPES
from milestones.stream_thread.lags import ASK_MS

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def exported() -> set[str]:
    metrics = Metrics(level="DEBUG")
    scopes = [metrics.add(kind, **{tag.replace("-", "_"): "x" for tag in kind.tag_names}) for kind in SCOPES]
    return {exported_name(scope.group, name, kind) for scope in scopes for name, kind in scope.statistics()}


def test_each_metric_of_an_alert_is_exported_under_that_name() -> None:
    named = set(re.findall(r"\bkafka_\w+", PAGE))
    assert len(named) > 10
    assert named - exported() == set()


def test_each_setting_is_one() -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?: = [^`]*)?`", PAGE)) - {*exported(), END_TASK, SHUTDOWN_CLIENT}
    assert len(named) > 15
    assert named - KEYS.keys() - {"log_and_continue"} == set()
    assert all(f"| `{value}`" in PAGE for value in (SHUTDOWN_CLIENT, END_TASK, REPLACE))


def test_the_numbers_of_settings_are_their_defaults() -> None:
    assert KEYS["close_timeout_ms"].default == 25_000
    assert KEYS["task_timeout_ms"].default == 5 * 60_000
    assert ASK_MS == 10_000
    assert KEYS["task_failed"].default == SHUTDOWN_CLIENT
