"""`ingest`: loads a downloaded snapshot into an empty store.

*Guarantees*: at the end the store has the whole snapshot and its offset, or it is empty and its offset is None. If a
snapshot doesn't fit, or is damaged, a warning is logged. The snapshot's files are deleted at the end.
*Assumes*: the store is empty. If its owner stops half-way, it opens the store anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateCorruptError
from milestones.common.state.refusals import written
from milestones.common.testing.faults import reach

if TYPE_CHECKING:
    from milestones.common.state.engine import Span
    from milestones.common.state.snapshots.repository import LocalSnapshot
    from milestones.common.task.changelog_task import ChangelogTask

log: Final = logging.getLogger(__name__)


def ingest(
    task: ChangelogTask, store: str, snapshot: LocalSnapshot, changelog_id: str | None, first: int, end: int
) -> Generator[object, None, None]:
    """Load the snapshot. Each item of the generator is one step. `changelog_id`, `first` and `end` are the changelog's
    present id and bounds (see `SnapshotManifest.misplaced`). Raises `StateError`."""
    manifest = snapshot.manifest
    why = manifest.misplaced(changelog_id, first, end)
    try:
        if why is None:
            yield from task.ingest(store, snapshot.files, manifest.key_prefix)
            yield from _expire(task, store, manifest.gone)
            reach("snapshot.ingested")
            task.restore(store, [], manifest.offset)
            log.info(
                "task %s: store %s begins with the %d entries of a snapshot, at offset %d of %d",
                task.id, store, manifest.entries, manifest.offset, end,
            )  # fmt: skip
    except StateCorruptError as error:
        task.discard(store)
        why = str(error)
    finally:
        snapshot.remove()
    if why is not None:
        log.warning("task %s: store %s is restored from its changelog, its snapshot is no use: %s", task.id, store, why)


def _expire(task: ChangelogTask, store: str, spans: Collection[Span]) -> Iterator[None]:
    """Delete entries that have expired since the files were written. While the engine is busy, each try is a step."""
    while spans and not written(partial(task.expire, store, spans)):
        yield
