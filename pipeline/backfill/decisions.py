"""Waits until all transactions in changelogs have ended, before snapshots of them are made.

*Guarantees*: snapshots have everything that the application had committed before the wait. If another open transaction
hides records for longer than a transaction may last, the wait ends and the log says so.
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
    """Wait until each present record of these changelogs is either committed or aborted. Kafka answers a commit before
    it writes the markers into the partitions, and a snapshot would end in front of the first missing marker. `most_ms`:
    the longest time for which a transaction of a dead process may stay open. The wait takes at most `MARGIN_MS` longer.
    """
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
