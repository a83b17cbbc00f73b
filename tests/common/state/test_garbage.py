"""What goes of old snapshots, and what stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milestones.common.errors import StateError
from milestones.common.records import TopicPartition
from milestones.common.state.snapshots import garbage, repository
from milestones.common.state.snapshots.garbage import GRACE_MS, Pruned, prune
from milestones.common.state.snapshots.manifest_json import encode
from milestones.common.state.snapshots.repository import LocalSnapshot, SnapshotError, SnapshotRepository, described
from milestones.common.state.snapshots.snapshot import SnapshotManifest
from milestones.common.testing import StepClock
from milestones.common.testing.faults import InjectedFault
from tests.common.state.fake_objects import FakeObjects
from tests.common.state.test_repository import CHANGELOG, first_format, local
from tests.common.state.test_snapshot import MANIFEST

TEN_MINUTES_MS = 600_000


class Kept:
    """A repository whose store and owner have one clock."""

    def __init__(self, directory: Path, late_ms: int = 0) -> None:
        self.clock, self.directory = StepClock(10**12), directory
        self.objects = FakeObjects(self.clock, late_ms)
        self.repository = SnapshotRepository("fake://", "app", objects=self.objects)
        self.offset = 0

    def publish(self, on: SnapshotManifest | None = None, *, size: int = 100, **fields: object) -> SnapshotManifest:
        """A base, or a delta, of one file of that size."""
        self.offset += 1
        own = local(self.directory, **{"offset": self.offset, "created_ms": self.clock.wall_ms(), **fields})  # type: ignore[arg-type]
        own.files[0].write_bytes(b"x" * size)
        draft = replace(own.manifest, files=(described(own.files[0], 1),))
        return self.repository.publish(LocalSnapshot(draft if on is None else on.with_delta(draft), own.directory))

    def prune(self, changelog_id: str | None = None) -> Pruned:
        return prune(self.repository, CHANGELOG, self.clock, changelog_id=changelog_id)

    def publish_and_prune(self) -> None:
        self.publish()
        self.prune()

    def usable(self, manifest: SnapshotManifest) -> bool:
        """Whether all of its files are there."""
        try:
            for file in manifest.files:
                self.repository.verify(manifest, file)
        except SnapshotError:
            return False
        return True

    @property
    def manifests(self) -> list[SnapshotManifest | None]:
        return [one.manifest for one in self.repository.published(CHANGELOG)]


@pytest.fixture
def k(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_the_two_newest_stay_and_older_ones_go_an_hour_after_the_second_newer_one_came(k: Kept) -> None:
    made = [k.publish(), k.publish()]
    k.clock.advance(5 * GRACE_MS)
    assert k.prune() == Pruned()
    made.append(k.publish())
    k.clock.advance(GRACE_MS - 1)
    assert k.prune() == Pruned()
    assert all(map(k.usable, made))
    k.clock.advance(1)
    assert k.prune().objects == 2
    assert k.manifests == [made[2], made[1]]
    assert [k.usable(one) for one in made] == [False, True, True]
    assert k.prune() == Pruned()


def test_a_base_stays_for_as_long_as_a_delta_needs_it(k: Kept) -> None:
    newest = base = k.publish()
    for _ in range(6):
        newest = k.publish(newest, size=5)
        k.clock.advance(2 * GRACE_MS)
        k.prune()
    assert base not in k.manifests
    assert k.usable(newest)
    folded = [k.publish(), k.publish()]
    k.clock.advance(GRACE_MS)
    k.prune()
    assert (k.manifests, k.usable(newest)) == (folded[::-1], False)
    assert len(k.objects.content) == 5


def test_files_that_no_manifest_names_go_after_an_hour(k: Kept) -> None:
    newest = k.publish()
    left = f"{k.repository.place(CHANGELOG)}/files/crashed/00000.sst"
    k.objects.write(left, b"left")
    k.clock.advance(GRACE_MS - 1)
    assert k.prune() == Pruned()
    k.clock.advance(1)
    assert k.prune() == Pruned(1, 4)
    assert (left in k.objects.content, k.usable(newest)) == (False, True)


def test_a_prune_that_broke_off_is_ended_by_the_next_one(k: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [k.publish() for _ in range(4)][2:]
    k.clock.advance(GRACE_MS)
    remove, left = k.objects.remove, [0]

    def breaking(path: str) -> None:
        if left[0] == 0:
            raise SnapshotError("away")
        left[0] -= 1
        remove(path)

    monkeypatch.setattr(k.objects, "remove", breaking)
    for _ in range(3):
        left[0] = 1
        with pytest.raises(SnapshotError, match="away"):
            k.prune()
        assert all(k.usable(one) for one in k.manifests if one is not None), "a manifest that is there is whole"
    left[0] = 100
    k.prune()
    assert (k.manifests, len(k.objects.content)) == (kept[::-1], 5)


def test_what_is_not_listed_yet_is_not_missed(tmp_path: Path) -> None:
    k = Kept(tmp_path, late_ms=GRACE_MS // 2)
    newest = k.publish()
    for _ in range(10):
        newest = k.publish(newest, size=5)
        k.clock.advance(GRACE_MS)
        k.objects.late_ms = 2 * GRACE_MS
        k.prune()
        assert k.usable(newest)


@pytest.mark.parametrize("stranger", ["newer format", "another application", "newer format, as a hint"])
def test_nothing_goes_where_something_lies_that_cannot_be_judged(k: Kept, stranger: str) -> None:
    made = [k.publish() for _ in range(4)]
    other = replace(MANIFEST, id="strange", generation=9)
    place = k.repository.place(CHANGELOG)
    path = f"{place}/latest.json" if "hint" in stranger else f"{place}/manifests/{other.name}.json"
    other = replace(other, application_id="other") if stranger == "another application" else other
    version = b'"format": 2' if stranger == "another application" else b'"format": 4'
    k.objects.write(path, encode(other).replace(b'"format": 2', version))
    k.clock.advance(2 * GRACE_MS)
    assert k.prune().held_up is not None
    assert all(map(k.usable, made))


def test_a_damaged_manifest_goes_after_an_hour_with_its_files(k: Kept) -> None:
    made = [k.publish() for _ in range(3)]
    k.objects.write(f"{k.repository.place(CHANGELOG)}/manifests/{made[0].name}.json", b"{")
    k.clock.advance(GRACE_MS)
    assert k.prune().objects == 2
    assert k.manifests == [made[2], made[1]]


def test_a_zombies_snapshots_do_not_push_the_owners_out(k: Kept) -> None:
    owner = [k.publish(generation=10) for _ in range(2)]
    for _ in range(3):
        k.publish(generation=9)
    k.clock.advance(GRACE_MS)
    k.prune()
    assert k.manifests == owner[::-1]


def test_snapshots_of_a_topic_that_is_gone_and_those_that_are_too_old_do_not_push_good_ones_out(k: Kept) -> None:
    for _ in range(3):
        k.publish(generation=90, changelog_id="then")
        k.publish(generation=80, usable_until_ms=k.clock.wall_ms() + 1)
    good = [k.publish(generation=1) for _ in range(3)]
    k.clock.advance(GRACE_MS)
    k.prune(changelog_id="topic-1")
    assert k.manifests == [good[2], good[1]]


def test_the_hint_is_mended(k: Kept) -> None:
    newest = [k.publish() for _ in range(2)][1]
    k.objects.write(f"{k.repository.place(CHANGELOG)}/latest.json", b"{")
    k.prune()
    assert k.repository.hint(CHANGELOG) == (newest, [])


def test_the_hint_follows_a_group_that_counts_anew_once_those_of_before_do_not_count(k: Kept) -> None:
    before = k.publish(generation=90, usable_until_ms=k.clock.wall_ms() + GRACE_MS)
    new = [k.publish(generation=1) for _ in range(2)][1]
    k.prune()
    assert k.repository.hint(CHANGELOG) == (before, [])
    k.clock.advance(2 * GRACE_MS)
    k.prune()
    assert k.repository.hint(CHANGELOG) == (new, [])


def test_who_does_not_know_the_topic_removes_those_of_another_one_than_the_hints(k: Kept) -> None:
    for _ in range(3):
        k.publish(generation=90, changelog_id="then")
    good = [k.publish(generation=1) for _ in range(2)]
    k.clock.advance(GRACE_MS)
    k.prune()
    assert k.manifests == good[::-1]
    assert k.repository.hint(CHANGELOG) == (good[1], [])


def test_of_the_first_formats_snapshots_the_same_is_kept(tmp_path: Path) -> None:
    first_format(tmp_path / "remote")
    repository = SnapshotRepository(f"file://{tmp_path}/remote", "app")
    clock = StepClock(10**13)
    assert prune(repository, CHANGELOG, clock) == Pruned()
    for offset in (200, 300):
        repository.publish(local(tmp_path, offset))
    assert prune(repository, CHANGELOG, clock).objects == 2
    assert not list((tmp_path / "remote").rglob("*-a1"))


def test_a_write_into_a_folder_that_broke_off_goes_too(tmp_path: Path) -> None:
    repository = SnapshotRepository(f"file://{tmp_path}/remote", "app")
    newest = repository.publish(local(tmp_path))
    place = tmp_path / "remote" / repository.place(CHANGELOG)
    left = place / "files" / "crashed" / "00000.sst#1"
    left.parent.mkdir()
    left.write_bytes(b"left")
    higher = place / "manifests" / f"{replace(newest, generation=9).name}.json#1"
    higher.write_bytes(encode(newest))
    assert repository.newest(CHANGELOG, "counts") == newest
    assert prune(repository, CHANGELOG, StepClock(10**13)).objects == 2
    assert (left.parent.exists(), higher.exists()) == (False, False)
    assert repository.newest(CHANGELOG, "counts") == newest


def test_partitions_are_pruned_apart(k: Kept) -> None:
    other = k.publish(partition=0)
    assert k.repository.partitions() == [TopicPartition(CHANGELOG.topic, 0)]
    for _ in range(4):
        k.publish()
    k.clock.advance(GRACE_MS)
    k.prune()
    assert k.usable(other)
    assert k.repository.partitions() == [TopicPartition(CHANGELOG.topic, 0), CHANGELOG]


@pytest.mark.parametrize("changed", [0.01, 0.06])
def test_a_day_of_snapshots_keeps_at_most_the_bytes_of_three_bases(k: Kept, changed: float) -> None:
    base_bytes = 10_000
    newest: SnapshotManifest | None = None
    most, kept = 0, 0
    for _ in range(24 * 6):
        size = int(base_bytes * changed)
        fits = newest is not None and newest.takes_delta(size)
        newest = k.publish(newest, size=size) if fits else k.publish(size=base_bytes)
        k.prune()
        stored = sum(len(data) for path, data in k.objects.content.items() if path.endswith(".sst"))
        most, kept = max(most, stored), max(kept, len(k.manifests))
        assert k.usable(newest)
        assert all(k.usable(one) for one in k.manifests if one is not None)
        k.clock.advance(TEN_MINUTES_MS)
    assert most <= 3 * base_bytes, most
    assert kept <= 2 + GRACE_MS // TEN_MINUTES_MS


def test_a_store_that_is_away_is_an_error(tmp_path: Path) -> None:
    repository = SnapshotRepository("http://127.0.0.1:1/x", "app", timeout_ms=300)
    with pytest.raises(StateError):
        prune(repository, CHANGELOG, StepClock())


@pytest.mark.parametrize("point", ["snapshot.written", "snapshot.published", "snapshot.pruning"])
def test_whoever_dies_on_the_way_leaves_a_whole_snapshot_and_after_an_hour_nothing_else(
    k: Kept, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(reached: str) -> None:
        if reached == point:
            raise InjectedFault(point)

    for _ in range(3):
        k.publish()
    k.clock.advance(GRACE_MS)
    with monkeypatch.context() as patch:
        for module in (repository, garbage):
            patch.setattr(module, "reach", dying)
        with pytest.raises(InjectedFault):
            k.publish_and_prune()
    newest = k.repository.newest(CHANGELOG, "counts")
    assert newest is not None
    assert k.usable(newest)
    assert newest.offset == (3 if point == "snapshot.written" else 4)
    k.clock.advance(GRACE_MS)
    k.prune()
    assert k.repository.newest(CHANGELOG, "counts") == newest
    assert (len(k.manifests), len(k.objects.content)) == (2, 5)
