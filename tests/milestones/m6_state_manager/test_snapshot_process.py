"""What the helper makes of a checkpoint: bases and deltas that give what the store had, linked and copied."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milestones.common.errors import StateError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.engines.sst import entries as files_entries
from milestones.common.state.snapshots.garbage import GRACE_MS
from milestones.common.state.snapshots.objects import ObjectStoreError
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.snapshots.snapshot import INSTANCE, SPARK
from milestones.common.state.storage import CommitMade
from milestones.common.testing import StepClock
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending.database_folder import DATABASE
from milestones.m6_state_manager.ranges import prefix_of
from milestones.m6_state_manager.snapshots.checkpoint import Checkpoint, TornError
from milestones.m6_state_manager.snapshots.jobs import CheckpointJob, PartitionJob, SnapshotResult
from milestones.m6_state_manager.snapshots.process import Maker
from tests.common.state.test_repository import local
from tests.common.state.test_sealing import K1
from tests.milestones.m6_state_manager.states import COUNTS, NEIGHBOUR, TASK, found

CHANGELOG = TopicPartition("words-counts-changelog", TASK.partition)
INPUT = TopicPartition("lines-in", TASK.partition)


class Made:
    """A task's store, and the snapshots of it."""

    def __init__(self, directory: Path, manager: RangeStateManager, key: str | None = None) -> None:
        self.directory, self.manager, self.key = directory, manager, key
        self.clock = StepClock(1_000_000)
        self.storage: Any = manager.open(TASK, [COUNTS])
        self.offset = 0
        self.repository = SnapshotRepository(f"file://{directory}/remote", "words", encryption_key=key)

    @property
    def range(self) -> Any:
        return self.manager.changed.range(*TASK)

    def write(self, batch: Mapping[bytes, bytes | None]) -> None:
        self.offset += len(batch)
        self.storage.note(CommitMade(self.offset, {INPUT: self.offset * 2}, {INPUT: 77}))
        self.storage.apply({"counts": batch}, {"counts": self.offset})

    def snapshot(self, generation: int = 5, *, exact: bool = False, **fields: Any) -> SnapshotResult:
        """What became of one more snapshot of what has changed; as the state thread does it."""
        (database,) = self.manager.databases()
        self.clock.advance(1_000)
        directory = self.directory / f"job-{self.clock.wall_ms()}"
        checkpoint = self._begun(database.folder, directory)
        found = self.manager.changed.take(self.range, ["counts"])
        assert found is not None
        taken = found[1]["counts"]
        checkpoint.cut()
        checkpoint.finish()
        store = PartitionJob.of(
            TASK, COUNTS, CHANGELOG, changelog_id="topic-1", usable_until_ms=None, leads=True, on=taken.on,
            keys=frozenset(taken.keys or ()), gone=taken.gone,
        )  # fmt: skip
        job = CheckpointJob(
            directory, 0, "words", generation, self.clock.wall_ms(), (replace(store, **fields),), self.repository.url,
            exact=exact,
        )  # fmt: skip
        told: list[SnapshotResult] = []
        Maker(job, self.repository, self.clock).run(told.append)
        (result,) = told
        if result.manifest is None:
            self.manager.changed.put_back(self.range, "counts", taken)
        else:
            self.manager.changed.published(self.range, "counts", taken, result.manifest)
        return result

    @staticmethod
    def _begun(source: Path, directory: Path) -> Checkpoint:
        """A checkpoint, begun again where tables are deleted meanwhile, as the state thread does."""
        while True:
            checkpoint = Checkpoint(source, directory / DATABASE)
            try:
                checkpoint.begin()
            except TornError:
                shutil.rmtree(directory)
            else:
                return checkpoint

    def restored(self) -> dict[bytes, bytes]:
        """The newest snapshot, linked into a range of another database."""
        fetched = self.fetched()
        other = RangeStateManager(directory_of(self.directory / "other"), self.manager.engines, "m6")
        storage = other.open(TASK, [COUNTS])
        for _ in storage.ingest("counts", fetched.files, fetched.manifest.key_prefix):
            pass
        if fetched.manifest.gone:
            storage.expire("counts", fetched.manifest.gone)
        content = found(storage)
        storage.clear("counts")
        storage.close()
        other.release()
        return content

    def fetched(self) -> Any:
        newest = self.repository.newest(CHANGELOG, "counts")
        assert newest is not None
        return self.repository.fetch(newest, self.directory / "fetched")


def directory_of(path: Path) -> Any:
    from milestones.common.state.directory import StateDirectory

    return StateDirectory(path, "words", StepClock(1_000_000))


@pytest.fixture
def made(tmp_path: Path, manager: RangeStateManager) -> Made:
    return Made(tmp_path / "snapshots", manager)


def rows(first: int, beyond: int, value: bytes = b"v") -> dict[bytes, bytes | None]:
    return {b"key-%05d" % number: value for number in range(first, beyond)}


def test_a_base_has_all_of_its_range_and_what_the_last_commit_said(made: Made) -> None:
    neighbour = made.manager.open(NEIGHBOUR, [COUNTS])
    neighbour.apply({"counts": rows(0, 10, b"another's")}, {"counts": 1})
    made.write(rows(0, 3_000))
    manifest = made.snapshot().manifest
    assert manifest is not None
    assert (manifest.offset, manifest.generation, manifest.commit_number, manifest.changelog_id) == (
        3_000, 5, 3_000, "topic-1",
    )  # fmt: skip
    assert (manifest.positions, manifest.stream_times) == ({INPUT: 6_000}, {INPUT: 77})
    assert (manifest.base, manifest.entries, manifest.key_prefix) == (None, 3_000, prefix_of(TASK.partition))
    assert made.restored() == rows(0, 3_000) == dict(files_entries(made.fetched().files, manifest.key_prefix))


def test_what_a_follower_makes_names_no_commit(made: Made) -> None:
    made.write(rows(0, 3))
    manifest = made.snapshot(leads=False).manifest
    assert manifest is not None
    assert (manifest.commit_number, manifest.positions, manifest.stream_times) == (None, {}, {})


def test_deltas_with_deletions_give_what_the_store_had(made: Made) -> None:
    made.write(rows(0, 3_000))
    sizes = [made.snapshot().manifest.size]  # type: ignore[union-attr]
    for step in range(3):
        made.write({**rows(step * 10, step * 10 + 20, b"changed"), b"key-%05d" % (100 + step): None, b"new": None})
        made.write({b"new": b"%d" % step})
        manifest = made.snapshot().manifest
        assert manifest is not None
        assert (manifest.deltas, made.restored()) == (step + 1, found(made.storage))
        sizes.append(sum(file.bytes for file in manifest.files if not file.folder))
    assert max(sizes[1:]) < sizes[0] / 4


@pytest.mark.parametrize("prefix", [b"", prefix_of(TASK.partition)])
def test_a_store_that_began_with_files_of_sparks_has_a_base_and_then_deltas(made: Made, prefix: bytes) -> None:
    folder = made.directory / "sparks"
    folder.mkdir(parents=True)
    writer = SstWriter(folder)
    writer.write((prefix + key, value) for key, value in rows(0, 3_000).items())
    for _ in made.storage.ingest("counts", list(writer.files), prefix):
        pass
    for step in range(3):
        made.write({b"key-%05d" % step: None, b"new": b"%d" % step})
        manifest = made.snapshot().manifest
        assert manifest is not None
        assert (manifest.deltas, made.restored()) == (step, found(made.storage))
    assert found(made.storage) == {**rows(3, 3_000), b"new": b"2"}


def test_what_has_expired_does_not_come_back_with_a_delta(made: Made) -> None:
    made.write(rows(0, 3_000))
    made.snapshot()
    made.storage.expire("counts", [(b"", b"key-01000")])
    made.write(rows(3_000, 3_010))
    manifest = made.snapshot().manifest
    assert manifest is not None
    assert (manifest.deltas, made.restored()) == (1, rows(1_000, 3_010))


def test_deltas_are_folded_when_they_reach_half_of_their_base(made: Made) -> None:
    made.write(rows(0, 1_000))
    made.snapshot()
    kinds = []
    for step in range(12):
        made.write(rows(step * 50, step * 50 + 80, b"%d" % step))
        manifest = made.snapshot().manifest
        assert manifest is not None
        kinds.append(manifest.deltas)
    assert 0 in kinds
    assert max(kinds) <= 8
    assert made.restored() == found(made.storage)


def test_an_emptied_store_begins_with_a_base_again(made: Made) -> None:
    made.write(rows(0, 1_000))
    made.snapshot()
    made.storage.clear("counts")
    made.write(rows(0, 5))
    manifest = made.snapshot(generation=6).manifest
    assert manifest is not None
    assert (manifest.base, made.restored()) == (None, rows(0, 5))


def test_what_a_store_had_that_is_emptied_right_after_a_snapshot_does_not_come_back(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write(rows(0, 1_000))
    (database,) = made.manager.databases()
    wipe = database.engine.wipe

    def after_a_snapshot(*args: Any, **named: Any) -> None:
        assert made.snapshot().manifest is not None
        wipe(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(database.engine, "wipe", after_a_snapshot)
        made.storage.clear("counts")
    made.write(rows(0, 5))
    assert made.snapshot().manifest is not None
    assert made.restored() == rows(0, 5)


def test_where_nothing_has_changed_none_is_made(made: Made) -> None:
    made.write(rows(0, 10))
    assert made.snapshot().manifest is not None
    result = made.snapshot()
    assert (result.manifest, result.wrong, "there is one at offset 10" in result.why) == (None, False, True)


def test_what_a_crash_has_left_goes_after_the_grace_also_where_nothing_changes_any_more(made: Made) -> None:
    made.write(rows(0, 10))
    made.snapshot()
    left = f"{made.repository.place(CHANGELOG)}/files/crashed/00000.sst"
    made.repository.objects.write(left, b"left")
    os.utime(made.directory / "remote" / left, (0, 0))
    made.clock.advance(GRACE_MS)
    assert made.snapshot().manifest is None
    assert made.repository.objects.size(left) is None
    assert made.restored() == rows(0, 10)


def test_a_member_of_an_older_generation_makes_none_and_the_newer_one_is_found(made: Made) -> None:
    made.write(rows(0, 10))
    made.snapshot(generation=7)
    made.write(rows(10, 20))
    result = made.snapshot(generation=6)
    assert (result.manifest, result.wrong) == (None, False)
    assert "a member of generation 7 has made one, this is one of 6" in result.why
    assert made.restored() == rows(0, 10)


def test_under_exactly_once_a_group_that_was_made_anew_goes_on_with_snapshots_and_they_are_found(made: Made) -> None:
    """The group was deleted, and its changelogs stay: generations are counted from the beginning again."""
    made.write({b"a": b"1"})
    made.snapshot(generation=90, exact=True)
    for generation, offset in ((1, 2), (1, 3), (2, 4)):
        made.write({b"key-%d" % offset: b"1"})
        manifest = made.snapshot(generation, exact=True).manifest
        assert manifest is not None
        assert made.repository.newest(CHANGELOG, "counts") == manifest
        assert manifest.offset == offset
    assert made.restored() == found(made.storage)


def test_under_exactly_once_a_member_of_an_older_generation_hides_nothing_that_has_more(
    made: Made, tmp_path: Path
) -> None:
    made.write({b"a": b"1"})
    made.repository.publish(local(tmp_path, 5, generation=90, application_id="words", changelog=CHANGELOG.topic,
        partition=TASK.partition, changelog_id="topic-1", key_prefix=prefix_of(TASK.partition),
        made_by=INSTANCE))  # fmt: skip
    newest = made.repository.newest(CHANGELOG, "counts")
    assert newest is not None
    assert made.offset < newest.offset
    assert "a member of generation 90 has made one, this is one of 1" in made.snapshot(1, exact=True).why
    assert made.repository.newest(CHANGELOG, "counts") == newest


@pytest.mark.parametrize("useless", ["of another topic", "too old"])
def test_a_newer_generations_snapshot_that_nothing_can_begin_with_is_in_no_members_way(
    made: Made, useless: str
) -> None:
    """A group that was deleted begins to count anew, and an application that was reset has other topics."""
    made.write(rows(0, 10))
    fields = {"usable_until_ms": made.clock.wall_ms() + 500} if useless == "too old" else {"changelog_id": "then"}
    assert made.snapshot(generation=90, **fields).manifest is not None
    made.write(rows(10, 20))
    assert made.snapshot(generation=1).manifest is not None
    newest = made.repository.newest(CHANGELOG, "counts", changelog_id="topic-1", now_ms=made.clock.wall_ms())
    assert newest is not None
    assert newest.generation == 1


@pytest.mark.parametrize("key_prefix", [b"", prefix_of(TASK.partition)])
def test_a_newer_generation_that_only_spark_has_handed_on_is_in_no_members_way(
    made: Made, tmp_path: Path, key_prefix: bytes
) -> None:
    """The group was deleted, and Spark's snapshots count to its generation still."""
    made.repository.publish(local(
        tmp_path, 5, generation=90, application_id="words", changelog=CHANGELOG.topic, partition=CHANGELOG.partition,
        created_ms=made.clock.wall_ms(), made_by=SPARK, key_prefix=key_prefix,
    ))  # fmt: skip
    made.write(rows(0, 10))
    manifest = made.snapshot(generation=1).manifest
    assert manifest is not None
    assert manifest.by_member
    made.write(rows(10, 20))
    assert "a member of generation 1 has made one, this is one of 0" in made.snapshot(generation=0).why


def test_where_others_have_made_snapshots_for_long_and_removed_those_of_this_member_it_makes_a_base(
    made: Made,
) -> None:
    made.write(rows(0, 1_000))
    base = made.snapshot().manifest
    assert base is not None
    for path in (made.directory / "remote").rglob("*.sst"):
        path.unlink()
    made.write({b"key-00001": None})
    manifest = made.snapshot().manifest
    assert manifest is not None
    assert (manifest.deltas, made.restored()) == (0, found(made.storage))
    made.write({b"key-00002": None})
    manifest = made.snapshot().manifest
    assert manifest is not None
    assert (manifest.deltas, made.restored()) == (1, found(made.storage))


@pytest.mark.parametrize("trouble", ["a newer format", "another application's", "a key that isn't there"])
def test_what_cannot_be_read_keeps_nobody_from_making_one(
    made: Made, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    made.write(rows(0, 10))
    if trouble == "a key that isn't there":
        made.repository = SnapshotRepository(made.repository.url, "words", encryption_key=K1)
    made.snapshot()
    made.repository = SnapshotRepository(made.repository.url, "words")
    told = {"a newer format": (b'"format": 3', b'"format": 9'), "another application's": (b'"words"', b'"others"')}
    for path in (made.directory / "remote").rglob("*.json"):
        path.write_bytes(path.read_bytes().replace(*told.get(trouble, (b"", b""))))
    manifest = made.snapshot(on=None).manifest  # as after a restart
    assert manifest is not None
    assert "a snapshot is passed over, and another one is made" in caplog.text
    assert made.repository.newest(CHANGELOG, "counts") == manifest
    assert made.restored() == rows(0, 10)
    removed = "until the version that wrote it prunes" in caplog.text
    assert removed is (trouble != "a key that isn't there"), "what can't be judged is kept, and said so"


def test_what_lies_in_one_partitions_place_is_no_reason_not_to_make_the_others(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    (database,) = made.manager.databases()
    neighbour = made.manager.open(NEIGHBOUR, [COUNTS])
    for storage in (made.storage, neighbour):
        storage.apply({"counts": rows(0, 10)}, {"counts": 10})
    checkpoint = Checkpoint(database.folder, made.directory / "job" / DATABASE)
    checkpoint.begin()
    checkpoint.cut()
    checkpoint.finish()
    jobs = [
        PartitionJob.of(
            task, COUNTS, CHANGELOG._replace(partition=task.partition), changelog_id=None, usable_until_ms=None,
            leads=True,
        ) for task in (TASK, NEIGHBOUR)
    ]  # fmt: skip
    job = CheckpointJob(made.directory / "job", 0, "words", 5, 1_000_000, tuple(jobs), made.repository.url)
    real = made.repository.objects.create

    def create(path: str, content: bytes) -> bool:
        return f"/{NEIGHBOUR.partition}/" in path and real(path, content)

    monkeypatch.setattr(made.repository.objects, "create", create)
    told: list[SnapshotResult] = []
    Maker(job, made.repository, made.clock).run(told.append)
    assert [(result.task, result.manifest is not None, result.wrong) for result in told] == [
        (TASK, False, True), (NEIGHBOUR, True, False),
    ]  # fmt: skip


def test_an_active_task_leaves_it_to_a_standby_that_has_made_one_lately(made: Made) -> None:
    made.write(rows(0, 10))
    made.snapshot(leads=False)
    made.write(rows(10, 20))
    result = made.snapshot(since_ms=made.clock.wall_ms() - 500)
    assert result.why == "another instance has made one lately"
    assert made.snapshot(since_ms=made.clock.wall_ms() + 60_000).manifest is not None


def test_what_could_not_be_published_is_in_the_next_one(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.write(rows(0, 1_000))
    made.snapshot()
    made.write({b"key-00001": None})
    with monkeypatch.context() as patch:
        patch.setattr(made.repository, "publish", _away)
        result = made.snapshot()
        assert (result.manifest, result.why, result.wrong) == (None, "the bucket is away", True)
    made.write({b"key-00002": b"later"})
    manifest = made.snapshot().manifest
    assert manifest is not None
    assert (manifest.deltas, made.restored()) == (1, found(made.storage))


def _away(_: Any) -> Any:
    raise ObjectStoreError("the bucket is away")


def test_files_are_encrypted_with_the_key_that_is_given(tmp_path: Path, manager: RangeStateManager) -> None:
    made = Made(tmp_path / "snapshots", manager, key=K1)
    made.write(rows(0, 100, b"a secret"))
    manifest = made.snapshot().manifest
    assert manifest is not None
    assert {file.key_id for file in manifest.files} == {"k1"}
    assert made.restored() == rows(0, 100, b"a secret")
    made.repository = SnapshotRepository(f"file://{made.directory}/remote", "words")
    with pytest.raises(StateError, match="needs the key of the id 'k1'"):
        made.fetched()


def test_the_other_engine_has_the_same_checkpoints_and_takes_files_in_by_writing(tmp_path: Path) -> None:
    pytest.importorskip("rocksdb")
    manager = RangeStateManager(directory_of(tmp_path / "state"), open_engines("rocksdb"), "m6")
    made = Made(tmp_path / "snapshots", manager)
    made.write(rows(0, 3_000))
    assert made.snapshot().manifest is not None
    made.write({**rows(0, 10, b"changed"), b"key-00020": None})
    manifest = made.snapshot().manifest
    assert manifest is not None
    assert (manifest.deltas, made.restored()) == (1, found(made.storage))
    made.storage.close()
    manager.release()


def test_a_task_that_was_not_there_at_the_moment_is_passed_over(made: Made) -> None:
    made.write(rows(0, 1))
    result = made.snapshot(task=TaskId(0, 9), changelog=TopicPartition(CHANGELOG.topic, 9))
    assert (result.manifest, result.wrong) == (None, False)
