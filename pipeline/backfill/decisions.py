"""Changelogs whose transactions have all ended, before snapshots of them are made.

*Guarantees*: what an application had committed when it was asked is in the snapshots, unless a transaction of others
hides it for longer than transactions may last; then the log says so.
*Assumes*: nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from milestones.common.clock import Clock, SystemClock
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition
from milestones.pipeline.backfill.group import MARGIN_MS, PAUSE_MS

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig
    from milestones.instance.application import Application

log: Final = logging.getLogger(__name__)


def until_decided(application: Application, config: StreamsConfig, clock: Clock | None = None) -> None:
    """Wait until Kafka says of each record that changelogs have now whether it is committed: a commit is answered
    before its partitions hear of it, and a snapshot ends where they haven't. A transaction that a dead process has left
    open is aborted within `transaction_timeout_ms`; no wait is longer."""
    clock = clock or SystemClock()
    cluster = Cluster(config.admin_settings(f"{application.id}-backfill"))
    counts = cluster.partition_counts()
    names = {name for sub in application.subtopologies for name in sub.changelogs.values()} & counts.keys()
    logs = [TopicPartition(name, number) for name in sorted(names) for number in range(counts[name])]
    until_ms = clock.monotonic_ms() + config.transaction_timeout_ms + MARGIN_MS
    written = cluster.bounds(logs, committed=False)
    while True:
        decided = cluster.bounds(logs, committed=True)
        open_ = [at for at in logs if decided[at][1] < written[at][1]]
        if not open_:
            return
        if clock.monotonic_ms() > until_ms:
            log.warning("snapshots end where a transaction is open: %s", ", ".join(map(str, open_)))
            return
        clock.sleep_ms(PAUSE_MS)
