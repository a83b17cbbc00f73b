"""The helper process that makes snapshots of a checkpoint: all that costs something per entry.

    checkpoint, read-only --scan of a range--> sorted table files (a base)  --publish, prune--> snapshot_url
                          --get per changed key--> one of changed keys (a delta)

`python -m milestones.m6_state_manager.snapshots.process`: reads its job from its input.

*Guarantees*: a snapshot's keys have the partition in front, so that a database of this stage links its files. Whenever
the process ends, what isn't published leaves nothing that a reader takes for a snapshot. It ends with the process that
began it. A snapshot isn't made where one of the same content is there, nor by a member of an older generation that may
have what the changelog hasn't. One that can't be read doesn't count.
*Assumes*: no other process uses the checkpoint.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import StateError
from milestones.common.records import TopicPartition
from milestones.common.state.disk import make_directory
from milestones.common.state.engines.rocks import MIB, RocksSettings
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.common.state.engines.sst import Entry, SstWriter
from milestones.common.state.snapshots.garbage import prune
from milestones.common.state.snapshots.objects import ObjectStoreError
from milestones.common.state.snapshots.repository import (
    LocalSnapshot,
    SnapshotGoneError,
    SnapshotRepository,
    described,
)
from milestones.common.state.snapshots.snapshot import INSTANCE, SnapshotManifest, new_id
from milestones.common.testing.faults import reach
from milestones.m6_state_manager.ranges import prefix_of, span_of
from milestones.m6_state_manager.snapshots.jobs import NICE, RESULTS, CheckpointJob, PartitionJob, SnapshotResult
from milestones.m6_state_manager.snapshots.schedule import fresh
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

if TYPE_CHECKING:
    from milestones.m6_state_manager.range_row import RangeRow

log: Final = logging.getLogger(__name__)

SETTINGS: Final = RocksSettings(block_cache_bytes=16 * MIB)

Draft = Callable[..., SnapshotManifest]
"""The manifest of a snapshot of a store, with these files."""


class NotMade(Exception):
    """There is no new snapshot, and none is needed; the message says why. `there`: the one that has it all."""

    def __init__(self, why: str, there: SnapshotManifest | None = None) -> None:
        super().__init__(why)
        self.there = there


class Maker:
    """Makes the snapshots of one job."""

    def __init__(self, job: CheckpointJob, repository: SnapshotRepository, clock: Clock) -> None:
        self._job, self._repository, self._clock = job, repository, clock

    def run(self, told: Callable[[SnapshotResult], object]) -> None:
        """Make all of them, and tell what became of each. `StateError` when the checkpoint can't be opened."""
        engines = RocksDictEngines(SETTINGS, read_only=True)
        database = SubtopologyEngine(self._job.subtopology, self._job.directory, engines)
        away: str | None = None
        try:
            for store in self._job.stores:
                if away is not None:
                    told(SnapshotResult(*store.place, None, away, wrong=True))
                    continue
                try:
                    told(SnapshotResult(*store.place, self._make(store, database)))
                except NotMade as reason:
                    told(SnapshotResult(*store.place, None, str(reason), there=reason.there))
                except StateError as error:
                    away = str(error) if isinstance(error, ObjectStoreError) else None
                    told(SnapshotResult(*store.place, None, str(error), wrong=True))
        finally:
            database.close()

    def _make(self, store: PartitionJob, database: SubtopologyEngine) -> SnapshotManifest:
        """Make one and publish it. `NotMade`, `StateError`."""
        row = database.rows.get(store.task.partition)
        offset = None if row is None else row.offsets.get(store.store)
        if row is None or offset is None or store.store not in database.stores():
            raise NotMade("it was emptied, or begun, at that moment")
        generation = self._look(store, offset)
        directory = self._job.directory / f"{store.task}-{store.store}"
        try:
            manifest = self._published(store, partial(self._draft, row, offset, generation), database, directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        self._prune(store)
        return manifest

    def _published(
        self, store: PartitionJob, draft: Draft, database: SubtopologyEngine, directory: Path
    ) -> SnapshotManifest:
        """Publish a delta, where it can be built on what is there, else a base: the snapshots of this member
        may have been removed, once others had made newer ones. `StateError`."""
        try:
            return self._repository.publish(self._written(store, draft, database, directory))
        except SnapshotGoneError as error:
            log.info("a base is made in place of a delta: %s", error)
            base = replace(store, on=None)
            return self._repository.publish(self._written(base, draft, database, directory))

    def _look(self, store: PartitionJob, offset: int) -> int:
        """Look at the newest snapshot of the repository; prune, where there is nothing else to do. The generation that
        a new one is to have. `NotMade`, `ObjectStoreError`."""
        now_ms, own = self._clock.wall_ms(), self._job.generation
        newest = self._newest(store, now_ms)
        if newest is None or newest.of_another_topic(store.changelog_id) or newest.expired(now_ms):
            return own  # it counts for nothing, whatever its generation: the group's numbers may have begun anew
        generation = own
        if newest.generation > own:
            if self._job.exact and offset >= newest.offset:
                generation = newest.generation  # to be found; whether it is of a group that is no more is all the same
            elif (made_in := self._generation(store, now_ms)) > own:
                raise NotMade(f"a member of generation {made_in} has made one, this is one of {own}")
        if not fresh(newest, now_ms):
            return generation
        if newest.offset >= offset:
            self._prune(store)
            raise NotMade(f"there is one at offset {newest.offset}, this would be one at {offset}", newest)
        if store.since_ms is not None and newest.created_ms > store.since_ms:
            raise NotMade("another instance has made one lately")
        return generation

    def _generation(self, store: PartitionJob, now_ms: int) -> int:
        """Of the newest snapshot that counts and that a member has made: Spark hands a generation on, which may be that
        of a group that is no more. `ObjectStoreError`."""
        found = self._repository.counting(
            store.changelog, store.store, changelog_id=store.changelog_id, now_ms=now_ms
        )
        return next((one.generation for one in found if one.by_member), 0)

    def _newest(self, store: PartitionJob, now_ms: int) -> SnapshotManifest | None:
        """The newest one that can be read. `ObjectStoreError`."""
        try:
            newest = self._repository.newest(
                store.changelog, store.store, changelog_id=store.changelog_id, now_ms=now_ms
            )
            if newest is not None:
                self._repository.must_have_keys(newest)
        except ObjectStoreError:
            raise
        except StateError as error:
            log.warning("a snapshot is passed over, and another one is made: %s", error)
            return None
        return newest

    def _written(
        self, store: PartitionJob, draft: Draft, database: SubtopologyEngine, directory: Path
    ) -> LocalSnapshot:
        """The files, on this machine: a delta where there is something to build on, and room on it."""
        if store.on is not None:
            files = _files(directory / "delta", _changed(store, database))
            delta = draft(store, files, gone=store.gone)
            if store.on.takes_delta(delta.size):
                return LocalSnapshot(store.on.with_delta(delta), files.directory)
            reach("snapshot.folding")
            shutil.rmtree(files.directory)
        files = _files(directory / "base", database.open_store(store.store).scan(*span_of(store.task.partition)))
        return LocalSnapshot(draft(store, files), files.directory)

    def _draft(
        self, row: RangeRow, offset: int, generation: int, store: PartitionJob, files: _Files, **fields: Any
    ) -> SnapshotManifest:
        return SnapshotManifest(
            id=new_id(),
            application_id=self._job.application_id,
            store=store.store,
            kind=store.kind,
            layout=store.layout,
            changelog=store.changelog.topic,
            changelog_id=store.changelog_id,
            partition=store.changelog.partition,
            offset=offset,
            created_ms=self._job.created_ms,
            usable_until_ms=store.usable_until_ms,
            files=files.described(),
            made_by=INSTANCE,
            arrangement=store.arrangement,
            generation=generation,
            commit_number=row.commit or None if store.leads else None,
            positions=_partitions(row.positions) if store.leads else {},
            stream_times=_partitions(row.stream_times) if store.leads else {},
            key_prefix=prefix_of(store.task.partition),
            **fields,
        )

    def _prune(self, store: PartitionJob) -> None:
        """Remove what no reader needs, as the partition's owner."""
        try:
            prune(self._repository, store.changelog, self._clock, changelog_id=store.changelog_id)
        except StateError as error:
            log.warning("old snapshots of %s can't be removed: %s", store.changelog, error)


class _Files:
    """Sorted table files that were written."""

    def __init__(self, directory: Path, writer: SstWriter) -> None:
        self.directory, self._writer = directory, writer

    def described(self) -> Any:
        writer = self._writer
        return tuple(described(path, count, writer.deletions[path]) for path, count in writer.files.items())


def _files(directory: Path, entries: Iterator[Entry]) -> _Files:
    make_directory(directory)
    writer = SstWriter(directory)
    writer.write(entries)
    return _Files(directory, writer)


def _changed(store: PartitionJob, database: SubtopologyEngine) -> Iterator[Entry]:
    """The changed keys, as the checkpoint has them."""
    get, prefix = database.open_store(store.store).get, prefix_of(store.task.partition)
    for key in sorted(store.keys):
        yield prefix + key, get(prefix + key)


def _partitions(written: Any) -> dict[TopicPartition, int]:
    found = {}
    for name, number in written.items():
        topic, _, partition = name.rpartition("-")
        found[TopicPartition(topic, int(partition))] = number
    return found


def _end_with_parent() -> None:
    """The input ends when the process that began this one closes it, or is gone. Read without a buffer: its lock, held
    by a thread that reads, ends an interpreter that ends in an abort."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def main() -> int:
    """The exit code."""
    os.nice(NICE)
    job = CheckpointJob.read(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    repository = SnapshotRepository(
        job.url, job.application_id, options=job.options, encryption_key=job.encryption_key, timeout_ms=job.timeout_ms
    )
    try:
        with (job.directory / RESULTS).open("ab", buffering=0) as opened:
            Maker(job, repository, SystemClock()).run(lambda result: opened.write(result.line()))
    except StateError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(message)s")
    sys.exit(main())
