"""Removes snapshots that no reader needs.

The two newest manifests of a partition are kept, with all files that they name. An older manifest is kept for one more
hour after the second newer one was written, because a reader may have begun with it. A file that no manifest names is
kept for an hour, because its manifest may be written soon. (After a crash between files and manifest, it never is.)

*Guarantees*: a manifest is removed before its files, so that all files of an existing manifest exist. If a partition's
folder has objects that this version can't judge (a newer format, another application's snapshots), nothing in it is
removed. Several calls for the same partition, even at the same time, do no harm.
*Assumes*: the owner of the partition prunes. No download and no upload takes longer than an hour; `publish` checks at
its end that all files exist. The clocks of the store and of this machine differ by minutes at most.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from milestones.common.clock import Clock
from milestones.common.errors import StateFormatError
from milestones.common.records import TopicPartition
from milestones.common.state.snapshots.objects import StoredObject
from milestones.common.state.snapshots.repository import LATEST, Listed, SnapshotRepository
from milestones.common.state.snapshots.snapshot import SnapshotManifest
from milestones.common.testing.faults import reach

log: Final = logging.getLogger(__name__)

KEPT: Final = 2
"""The number of manifests that are kept."""
GRACE_MS: Final = 3_600_000


@dataclass(frozen=True)
class Pruned:
    """The number and the bytes of the removed objects. `held_up`: the reason why nothing could be removed, None if
    there is none."""

    objects: int = 0
    bytes: int = 0
    held_up: str | None = None


def prune(
    repository: SnapshotRepository, changelog: TopicPartition, clock: Clock, *, changelog_id: str | None = None
) -> Pruned:
    """Remove the objects of one partition that no reader needs.

    `changelog_id`: Kafka's id of the topic. None means that of the snapshot in `latest.json`. Snapshots of another
    topic don't count as one of the two newest. Raises `SnapshotError`."""
    place, now_ms = repository.place(changelog), clock.wall_ms()
    objects = repository.objects.below(place)
    listed = repository.published(changelog, objects)
    found = [*_hinted(repository, changelog, listed), *listed]
    held_up = next((str(one.trouble) for one in found if _cannot_judge(one)), None)
    if held_up is not None:
        log.warning(
            "nothing of %s is removed, until the version that wrote it prunes (`milestones snapshots --prune`), or it "
            "is taken away: %s", place, held_up,
        )  # fmt: skip
        return Pruned(held_up=held_up)
    if changelog_id is None and (hint := repository.hint(changelog)[0]) is not None:
        changelog_id = hint.changelog_id
    kept = _kept(found, now_ms, changelog_id)
    if kept and kept[0].manifest is not None:
        repository.hint_at(kept[0].manifest, now_ms)
    needed = {f"{place}/{one.path_of(file)}" for one in _manifests(kept) for file in one.files}
    needed |= {one.path for one in kept} | {f"{place}/{LATEST}"}
    unneeded = [one for one in objects if one.path not in needed and now_ms - one.modified_ms >= GRACE_MS]
    return _remove(repository, unneeded, {one.path for one in found})


def _cannot_judge(found: Listed) -> bool:
    trouble = found.trouble
    return trouble.newer if isinstance(trouble, StateFormatError) else trouble is not None


def _hinted(repository: SnapshotRepository, changelog: TopicPartition, listed: list[Listed]) -> list[Listed]:
    """Return the snapshot in `latest.json`, if the store doesn't list its manifest yet."""
    path = f"{repository.place(changelog)}/{LATEST}"
    manifest, troubles = repository.hint(changelog)
    if manifest is not None:
        known = {one.id for one in _manifests(listed)}
        return [] if manifest.id in known else [Listed(path, 0, manifest)]
    return [Listed(path, 0, None, trouble) for trouble in troubles]


def _kept(found: list[Listed], now_ms: int, changelog_id: str | None) -> list[Listed]:
    """Choose the manifests to keep: the two newest ones, and those that were among the two newest an hour ago. Usable
    snapshots come before those that are too old or of another topic."""
    ranked = sorted(
        (
            (one.manifest.counts(changelog_id, now_ms), one.manifest.rank, one)
            for one in found
            if one.manifest is not None
        ),
        key=lambda each: each[:2],
        reverse=True,
    )
    kept: list[Listed] = []
    times: list[int] = []
    for _, _, one in ranked:
        fell_out_ms = sorted(times)[KEPT - 1] if len(times) >= KEPT else now_ms
        if now_ms - max(one.modified_ms, fell_out_ms) < GRACE_MS:
            kept.append(one)
        times.append(one.modified_ms)
    return kept


def _manifests(found: Iterable[Listed]) -> list[SnapshotManifest]:
    return [one.manifest for one in found if one.manifest is not None]


def _remove(repository: SnapshotRepository, unneeded: list[StoredObject], manifests: set[str]) -> Pruned:
    for one in unneeded:
        if one.path in manifests:
            repository.objects.remove(one.path)
    reach("snapshot.pruning")
    for one in unneeded:
        if one.path not in manifests:
            repository.objects.remove(one.path)
            reach("snapshot.removed")
    return Pruned(len(unneeded), sum(one.bytes for one in unneeded))
