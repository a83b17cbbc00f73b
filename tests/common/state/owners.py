"""Whose the namespaces of an engine are, that tests open by hand."""

from __future__ import annotations

from milestones.common.records import StoreId, TaskId

COUNTS = StoreId(TaskId(0, 1), "counts")
OWNERS = {"counts": (COUNTS,)}
