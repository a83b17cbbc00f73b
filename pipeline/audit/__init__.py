"""An audit on Spark checks the outputs and stores of a stream application against its inputs."""

from __future__ import annotations

from milestones.common.public import publish
from milestones.pipeline.audit.audit import audit
from milestones.pipeline.audit.report import Audited, AuditReport, Finding
from milestones.pipeline.audit.rows import Problem

__all__ = ["AuditReport", "Audited", "Finding", "Problem", "audit"]

publish(__name__)
