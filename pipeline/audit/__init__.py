"""An audit of a stream application on Spark: its outputs and stores against its inputs."""

from __future__ import annotations

from milestones.common.public import publish
from milestones.pipeline.audit.audit import audit
from milestones.pipeline.audit.report import Audited, AuditReport, Finding
from milestones.pipeline.audit.rows import Problem

__all__ = ["AuditReport", "Audited", "Finding", "Problem", "audit"]

publish(__name__)
