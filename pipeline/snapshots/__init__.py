"""Makes snapshots of stores from their changelogs, on Spark. The runtime restores stores from these snapshots
(`snapshot_url`).
"""

from __future__ import annotations

from milestones.common.public import publish
from milestones.pipeline.snapshots.compact import CompactionRun, compact_changelog

__all__ = ["CompactionRun", "compact_changelog"]

publish(__name__)
