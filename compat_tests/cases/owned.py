"""Files that nobody owns: on the disk of an instance that has ended, at the URL of snapshots once an hour has passed.

*Guarantees*: a file is owned when a rule here names its owner; any other one fails the case. Table files are asked of
RocksDB, on a copy; files of snapshots of the manifests that are there.
*Assumes*: the instances have ended, the last time cleanly: what a process that died has left goes at the next start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from compat_tests.harness.instance import Instance
from compat_tests.harness.stores import table_files
from compat_tests.harness.world import World
from milestones.common.clock import SystemClock
from milestones.common.state.snapshots.garbage import GRACE_MS, KEPT, prune
from milestones.common.state.snapshots.repository import LATEST, SnapshotRepository
from milestones.common.state.snapshots.snapshot import SnapshotManifest
from milestones.common.testing import StepClock

OWNED = (
    r"\.lock|process",  # the instance's
    r"(\d+_\d+|global)/(\.lock|manifest\.json|positions\.json|rocksdb/[^./][^/]*/[^/]+)",  # stores in folders
    r"engines/\d+/(manifest\.json|current|rocksdb(-\d+)?/[^./][^/]*)",  # databases
    r"(\d+_\d+|engines/\d+)/corrupt/.+|engines/\d+(_\d+-.+)?-corrupt/.+",  # what is kept of damage
)


def all_is_owned(world: World, app: Instance) -> None:
    """A rule of `OWNED` names the owner of each file on the instance's disk."""
    home = app.state_dir / world.application_id
    files = sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    assert [name for name in files if not any(re.fullmatch(rule, name) for rule in OWNED)] == []
    for database in (home / "engines").glob("*"):
        assert len(list(database.glob("rocksdb*"))) <= 1, f"one database of {database} counts"
    for path, there, live in table_files(app.state_dir, world.application_id, world.directory):
        assert there == live, f"table files in {path}, and those that its database has"


def all_is_owned_an_hour_later(kept: SnapshotRepository) -> None:
    """What is at the URL when its owner prunes it again after the grace: the newest snapshots, whole, nothing else."""
    later = StepClock(SystemClock().wall_ms() + 2 * GRACE_MS)
    for changelog in kept.partitions():
        place = kept.place(changelog)
        prune(kept, changelog, later)
        listed = kept.published(changelog)
        manifests = [one.manifest for one in listed if one.manifest is not None]
        assert 1 <= len(manifests) == len(listed) <= KEPT
        needed = {f"{place}/{one.path_of(file)}" for one in manifests for file in one.files}
        there = {one.path for one in kept.objects.below(place)}
        assert there == needed | {one.path for one in listed} | {f"{place}/{LATEST}"}
        all_are_whole(kept, manifests)


def all_are_whole(kept: SnapshotRepository, manifests: Iterable[SnapshotManifest]) -> None:
    """Each file of these snapshots is there, with its checksum."""
    for one in manifests:
        for file in one.files:
            kept.verify(one, file)
