"""Metrics with Kafka Streams' names. Recording costs almost nothing, any thread may read, and Prometheus can scrape
them.

*Guarantees*: a count costs one addition. Recording takes no lock and allocates nothing.
*Assumes*: the owner of a scope publishes it about once a second.
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
    MemoryAccountMetrics,
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
    "MemoryAccountMetrics",
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
