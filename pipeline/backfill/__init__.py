"""Processes an application's history from Kafka and from archives in one batch on Spark. Live instances continue where
the batch ends.
"""

from __future__ import annotations

from milestones.common.public import publish
from milestones.pipeline.backfill.archive import Archive, ArchiveError
from milestones.pipeline.backfill.archiving import ArchiveRun, archive_inputs
from milestones.pipeline.backfill.backfill import HandOver, backfill

__all__ = ["Archive", "ArchiveError", "ArchiveRun", "HandOver", "archive_inputs", "backfill"]

publish(__name__)
