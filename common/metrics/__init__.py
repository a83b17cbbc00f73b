"""Metrics with Kafka Streams' names: recorded without cost, read from any thread, exported for Prometheus.

*Guarantees*: a count costs an addition; nothing here takes a lock or allocates while a thread records.
*Assumes*: each scope's owner publishes it about once a second.
"""

from __future__ import annotations

from milestones.common.metrics.export import Health, MetricsEndpoint, PrometheusCollector
from milestones.common.metrics.registry import PUBLISH_INTERVAL_MS, Metrics, summed
from milestones.common.metrics.scopes import (
    ClientMetrics,
    EndedTaskMetrics,
    EngineMetrics,
    GlobalThreadMetrics,
    GroupMetrics,
    HeartbeatMetrics,
    MemoryMetrics,
    NodeMetrics,
    PartitionMetrics,
    ProcessingThreadMetrics,
    QuarantineMetrics,
    RestorationMetrics,
    SchedulerMetrics,
    Scope,
    SnapshotMetrics,
    StandbyMetrics,
    StateDatabaseMetrics,
    SuppressBufferMetrics,
    SuppressNodeMetrics,
    TaskMetrics,
    ThreadMetrics,
    UpdaterMetrics,
)

__all__ = [
    "PUBLISH_INTERVAL_MS",
    "ClientMetrics",
    "EndedTaskMetrics",
    "EngineMetrics",
    "GlobalThreadMetrics",
    "GroupMetrics",
    "Health",
    "HeartbeatMetrics",
    "MemoryMetrics",
    "Metrics",
    "MetricsEndpoint",
    "NodeMetrics",
    "PartitionMetrics",
    "ProcessingThreadMetrics",
    "PrometheusCollector",
    "QuarantineMetrics",
    "RestorationMetrics",
    "SchedulerMetrics",
    "Scope",
    "SnapshotMetrics",
    "StandbyMetrics",
    "StateDatabaseMetrics",
    "SuppressBufferMetrics",
    "SuppressNodeMetrics",
    "TaskMetrics",
    "ThreadMetrics",
    "UpdaterMetrics",
    "summed",
]
