"""An application's history, in one batch on Spark, from Kafka and from archives; live instances continue from there."""

from __future__ import annotations

from milestones.common.public import publish
from milestones.pipeline.backfill.archive import Archive, ArchiveError
from milestones.pipeline.backfill.archiving import ArchiveRun, archive_inputs
from milestones.pipeline.backfill.backfill import HandOver, backfill

__all__ = ["Archive", "ArchiveError", "ArchiveRun", "HandOver", "archive_inputs", "backfill"]

publish(__name__)
