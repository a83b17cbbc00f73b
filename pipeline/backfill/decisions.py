"""Changelogs whose transactions have all ended, before snapshots of them are made.

*Guarantees*: what an application had committed when it was asked is in the snapshots, unless a transaction of others
hides it for longer than transactions may last; then the log says so.
*Assumes*: nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from milestones.pipeline.backfill.group import MARGIN_MS, PAUSE_MS

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.kafka.topics import Cluster
    from milestones.common.records import TopicPartition

log: Final = logging.getLogger(__name__)


def until_decided(cluster: Cluster, logs: Collection[TopicPartition], most_ms: int, clock: Clock) -> None:
    """Wait until Kafka says of each record that these changelogs have now whether it is committed: a commit is answered
    before its partitions hear of it, and a snapshot ends where they haven't. `most_ms`: so long a transaction may last
    that a dead process has left open; no wait is longer than that and `MARGIN_MS`."""
    until_ms = clock.monotonic_ms() + most_ms + MARGIN_MS
    written = cluster.bounds(logs, committed=False)
    while open_ := _undecided(cluster, logs, written):
        if clock.monotonic_ms() > until_ms:
            log.warning("snapshots end where a transaction is open: %s", ", ".join(map(str, open_)))
            return
        clock.sleep_ms(PAUSE_MS)


def _undecided(
    cluster: Cluster, logs: Collection[TopicPartition], written: Mapping[TopicPartition, tuple[int, int]]
) -> list[TopicPartition]:
    decided = cluster.bounds(logs, committed=True)
    return [at for at in logs if decided[at][1] < written[at][1]]
