"""Snapshots of stores, made on Spark from their changelogs; the runtime restores from them (`snapshot_url`)."""

from __future__ import annotations

from milestones.common.public import publish
from milestones.pipeline.snapshots.compact import CompactionRun, compact_changelog

__all__ = ["CompactionRun", "compact_changelog"]

publish(__name__)
