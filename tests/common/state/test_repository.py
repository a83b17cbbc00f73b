"""Snapshots at a URL: all of one or nothing, whoever else writes there."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from compat_tests.network.serving import Quiet, serving
from milestones.common.errors import ConfigError, StateFormatError
from milestones.common.records import TopicPartition
from milestones.common.state.snapshots.manifest_json import decode, encode
from milestones.common.state.snapshots.repository import (
    AbandonedError,
    LocalSnapshot,
    SnapshotError,
    SnapshotRepository,
    described,
)
from milestones.common.state.snapshots.snapshot import SnapshotManifest
from milestones.common.testing import StepClock
from tests.common.state.fake_objects import FakeObjects
from tests.common.state.test_snapshot import MANIFEST, format_1

CHANGELOG = TopicPartition(MANIFEST.changelog, MANIFEST.partition)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A URL over HTTP on loopback, and the folder that it shows."""
    folder = tmp_path / "served"
    folder.mkdir()
    with serving(partial(Quiet, directory=str(folder))) as url:
        yield url, folder


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture(params=["file", "late"])
def repository(request: pytest.FixtureRequest, tmp_path: Path, clock: StepClock) -> SnapshotRepository:
    """In a folder, and in a store that lists what was written an hour later."""
    if request.param == "file":
        return SnapshotRepository(f"file://{tmp_path}/remote", "app")
    return SnapshotRepository("fake://", "app", objects=FakeObjects(clock, late_ms=3_600_000))


def local(
    directory: Path,
    offset: int = 100,
    created_ms: int = 1_000,
    content: bytes = b"entries",
    usable_until_ms: int | None = None,
    partition: int = MANIFEST.partition,
    **fields: Any,
) -> LocalSnapshot:
    """A snapshot of two files that is still here only. `fields`: more of its manifest."""
    folder = directory / uuid4().hex
    folder.mkdir(parents=True)
    paths = [folder / f"0000{number}.sst" for number in range(2)]
    for number, path in enumerate(paths):
        path.write_bytes(content + b"-%d" % number)
    files = tuple(described(path, 1) for path in paths)
    manifest = replace(
        MANIFEST, id=uuid4().hex[:12], offset=offset, created_ms=created_ms, usable_until_ms=usable_until_ms,
        files=files, partition=partition, **fields,
    )  # fmt: skip
    return LocalSnapshot(manifest, folder)


def test_what_is_published_is_the_newest_and_comes_back_whole(repository: SnapshotRepository, tmp_path: Path) -> None:
    assert repository.newest(CHANGELOG, "counts") is None
    for offset in (100, 200):
        snapshot = local(tmp_path, offset, created_ms=offset, content=b"%d" % offset)
        repository.publish(snapshot)
        assert repository.newest(CHANGELOG, "counts") == snapshot.manifest
        fetched = repository.fetch(snapshot.manifest, tmp_path / "fetched")
        assert [path.read_bytes() for path in fetched.files] == [b"%d-0" % offset, b"%d-1" % offset]
        fetched.remove()
        fetched.remove()
        assert not fetched.directory.exists()


def test_partitions_and_applications_are_apart(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/remote"
    SnapshotRepository(url, "app").publish(local(tmp_path))
    assert SnapshotRepository(url, "other").newest(CHANGELOG, "counts") is None
    assert SnapshotRepository(url, "app").newest(TopicPartition(MANIFEST.changelog, 0), "counts") is None


@pytest.mark.parametrize(
    ("application", "changelog", "store"),
    [
        ("app", TopicPartition(MANIFEST.changelog, 0), "counts"),
        ("app", TopicPartition("app-sums-changelog", MANIFEST.partition), "counts"),
        ("other", CHANGELOG, "counts"),
        ("app", CHANGELOG, "sums"),
    ],
)
def test_a_snapshot_that_was_copied_to_where_it_does_not_belong_is_an_error(
    tmp_path: Path, application: str, changelog: TopicPartition, store: str
) -> None:
    url = f"file://{tmp_path}/remote"
    repository = SnapshotRepository(url, application)
    SnapshotRepository(url, "app").publish(local(tmp_path))
    place = tmp_path / "remote" / application / changelog.topic / str(changelog.partition)
    own = tmp_path / "remote" / "app" / CHANGELOG.topic / str(CHANGELOG.partition)
    if place != own:
        shutil.copytree(own, place)
    with pytest.raises(SnapshotError, match=rf"it is of store 'counts' of application 'app', {CHANGELOG.topic}-3"):
        repository.newest(changelog, store)


def test_two_attempts_of_one_snapshot_do_not_disturb_each_other(repository: SnapshotRepository, tmp_path: Path) -> None:
    one, other = local(tmp_path, content=b"one"), local(tmp_path, content=b"other", created_ms=1_001)
    for snapshot in (one, other):
        repository.publish(snapshot)
    newest = repository.newest(CHANGELOG, "counts")
    assert newest == other.manifest
    assert repository.fetch(newest, tmp_path / "fetched").files[0].read_bytes() == b"other-0"
    assert repository.fetch(one.manifest, tmp_path / "fetched").files[0].read_bytes() == b"one-0"


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_snapshot_is_an_error_and_leaves_no_files_here(tmp_path: Path, damage: str) -> None:
    repository, snapshot = SnapshotRepository(f"file://{tmp_path}/remote", "app"), local(tmp_path)
    repository.publish(snapshot)
    remote = next((tmp_path / "remote").rglob("00001.sst"))
    if damage == "gone":
        remote.unlink()
    else:
        remote.write_bytes({"changed": b"ENTRIES-1", "cut": b"entr"}[damage])
    with pytest.raises(SnapshotError, match=r"00001\.sst"):
        repository.fetch(snapshot.manifest, tmp_path / "fetched")
    assert list((tmp_path / "fetched").iterdir()) == []


def test_a_damaged_manifest_is_an_error(tmp_path: Path) -> None:
    repository = SnapshotRepository(f"file://{tmp_path}/remote", "app")
    repository.publish(local(tmp_path))
    for manifest in (tmp_path / "remote").rglob("*.json"):
        manifest.write_bytes(manifest.read_bytes()[:40])
    with pytest.raises(StateFormatError, match=r"latest\.json"):
        repository.newest(CHANGELOG, "counts")


def test_nobody_who_waits_any_more_ends_a_fetch(repository: SnapshotRepository, tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise AbandonedError

    snapshot = local(tmp_path)
    repository.publish(snapshot)
    with pytest.raises(AbandonedError):
        repository.fetch(snapshot.manifest, tmp_path / "fetched", stop)
    assert list((tmp_path / "fetched").iterdir()) == []


def test_snapshots_are_read_over_http(served: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = served
    snapshot = local(tmp_path)
    SnapshotRepository(f"file://{folder}/deep", "app").publish(snapshot)
    reader = SnapshotRepository(f"{url}/deep/", "app")
    newest = reader.newest(CHANGELOG, "counts")
    assert newest == snapshot.manifest
    got: list[int] = []
    fetched = reader.fetch(newest, tmp_path / "fetched", got.append)
    assert [path.read_bytes() for path in fetched.files] == [b"entries-0", b"entries-1"]
    assert sum(got) == newest.size
    assert SnapshotRepository(url, "app").newest(CHANGELOG, "counts") is None


def test_a_server_that_is_away_is_an_error_that_names_the_url(served: tuple[str, Path]) -> None:
    with pytest.raises(SnapshotError, match=r"http://127\.0\.0\.1:1/"):
        SnapshotRepository("http://127.0.0.1:1/x", "app", timeout_ms=300).newest(CHANGELOG, "counts")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nonsense://bucket/x", "what works: file:///path, s3://bucket/path, gs://"),
        ("s3-but-wrong://x", "what works"),
        ("relative/path", "what works"),
        ("az://container/x", "Account must be specified"),
        ("memory://x", "memory of its own"),
        ("file://host/x", "of this machine"),
        ("file://", "file:///path"),
    ],
)
def test_a_url_that_cannot_be_used_is_a_config_error_that_says_what_works(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match="snapshot_url") as raised:
        SnapshotRepository(url, "app")
    assert why in str(raised.value)


# -- which one is the newest


def test_of_two_publishers_the_one_of_the_newer_generation_is_found_whoever_is_the_last_to_write(
    repository: SnapshotRepository, tmp_path: Path
) -> None:
    owner = local(tmp_path, offset=100, generation=10, created_ms=1)
    zombie = local(tmp_path, offset=5_000, generation=9, created_ms=2)
    for snapshot in (owner, zombie):
        repository.publish(snapshot)
    assert repository.newest(CHANGELOG, "counts") == owner.manifest
    hint, _ = repository.hint(CHANGELOG)
    assert hint == owner.manifest, "over plain HTTP, too"


OF_A_GROUP_THAT_IS_NO_MORE = [{"usable_until_ms": 2_000}, {"changelog_id": "then", "usable_until_ms": None}]


@pytest.mark.parametrize("fields", OF_A_GROUP_THAT_IS_NO_MORE, ids=["too old", "of a topic that is gone"])
def test_a_group_whose_generations_begin_anew_is_found_over_plain_http_too(
    served: tuple[str, Path], tmp_path: Path, fields: dict[str, Any]
) -> None:
    url, folder = served
    owner, reader = SnapshotRepository(f"file://{folder}", "app"), SnapshotRepository(url, "app")
    owner.publish(local(tmp_path, 900, generation=90, **fields))
    new = owner.publish(local(tmp_path, 10, generation=1, created_ms=3_000))
    assert reader.newest(CHANGELOG, "counts", now_ms=3_000) == new
    zombie = local(tmp_path, 950, generation=0, created_ms=3_000)
    owner.publish(zombie)
    assert reader.newest(CHANGELOG, "counts", now_ms=3_000) == new


def test_who_does_not_know_the_topic_takes_the_one_of_the_topic_that_the_hint_knows(
    repository: SnapshotRepository, tmp_path: Path
) -> None:
    repository.publish(local(tmp_path, 900, generation=90, changelog_id="then"))
    new = repository.publish(local(tmp_path, 10, generation=1))
    if isinstance(repository.objects, FakeObjects):
        repository.objects.late_ms = 0
    assert repository.newest(CHANGELOG, "counts", now_ms=3_000) == new


def test_those_that_count_are_told_the_newest_first(repository: SnapshotRepository, tmp_path: Path) -> None:
    good = [local(tmp_path, offset, generation=generation) for offset, generation in ((10, 3), (20, 2), (10, 2))]
    others = [
        local(tmp_path, 900, generation=9, usable_until_ms=2_000),
        local(tmp_path, 800, generation=8, changelog_id="then"),
    ]
    for snapshot in (*good, *others):
        repository.publish(snapshot)
    if isinstance(repository.objects, FakeObjects):
        repository.objects.late_ms = 0
    found = repository.counting(CHANGELOG, "counts", changelog_id="topic-1", now_ms=3_000)
    assert [*found] == [snapshot.manifest for snapshot in good]


def test_what_is_published_is_found_though_the_store_lists_it_late(tmp_path: Path, clock: StepClock) -> None:
    repository = SnapshotRepository("fake://", "app", objects=FakeObjects(clock, late_ms=60_000))
    made = [local(tmp_path, offset=offset) for offset in (100, 200)]
    for snapshot in made:
        repository.publish(snapshot)
        assert repository.newest(CHANGELOG, "counts") == snapshot.manifest
    clock.advance(60_000)
    repository.objects.remove(f"{repository.place(CHANGELOG)}/latest.json")
    assert repository.newest(CHANGELOG, "counts") == made[1].manifest


def test_a_listed_manifest_counts_more_than_an_older_hint(tmp_path: Path) -> None:
    repository = SnapshotRepository(f"file://{tmp_path}/remote", "app")
    repository.publish(local(tmp_path, offset=100))
    latest = next((tmp_path / "remote").rglob("latest.json"))
    older = latest.read_bytes()
    newer = local(tmp_path, offset=200)
    repository.publish(newer)
    latest.write_bytes(older)
    assert repository.newest(CHANGELOG, "counts") == newer.manifest


def test_a_manifest_is_never_replaced(repository: SnapshotRepository, tmp_path: Path) -> None:
    snapshot = local(tmp_path)
    repository.publish(snapshot)
    repository.publish(snapshot)
    changed = LocalSnapshot(replace(snapshot.manifest, usable_until_ms=7), snapshot.directory)
    with pytest.raises(SnapshotError, match="exists already, with other content"):
        repository.publish(changed)
    assert repository.newest(CHANGELOG, "counts") == snapshot.manifest


@pytest.mark.parametrize("trouble", ["newer format", "damaged", "foreign"])
def test_a_newest_one_that_cannot_be_read_is_passed_over_with_a_warning(
    repository: SnapshotRepository, tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    usable = local(tmp_path, offset=100)
    repository.publish(usable)
    other = replace(usable.manifest, offset=200, store="sums")
    content = {
        "newer format": encode(other).replace(b'"format": 2', b'"format": 4'),
        "damaged": b"{",
        "foreign": encode(other),
    }[trouble]
    for name in (f"manifests/{other.name}.json", "latest.json"):
        repository.objects.write(f"{repository.place(CHANGELOG)}/{name}", content)
    if isinstance(repository.objects, FakeObjects):
        repository.objects.late_ms = 0
    assert repository.newest(CHANGELOG, "counts") == usable.manifest
    assert "a snapshot is passed over" in caplog.text


def test_one_that_is_too_old_or_of_a_topic_that_is_gone_is_taken_for_want_of_another_only(
    repository: SnapshotRepository, tmp_path: Path
) -> None:
    dead = [
        local(tmp_path, 900, generation=50, usable_until_ms=2_000),
        local(tmp_path, 800, generation=40, changelog_id="then"),
    ]
    for snapshot in dead:
        repository.publish(snapshot)
    if isinstance(repository.objects, FakeObjects):
        repository.objects.late_ms = 0
    found = partial(repository.newest, CHANGELOG, "counts", changelog_id="topic-1", now_ms=3_000)
    assert found() == dead[0].manifest
    good = local(tmp_path, 10, generation=1)
    repository.publish(good)
    assert found() == good.manifest
    assert repository.newest(CHANGELOG, "counts") == dead[0].manifest


def first_format(folder: Path) -> SnapshotManifest:
    """A snapshot as the first version left it in `folder`."""
    place = folder / "app" / CHANGELOG.topic / str(CHANGELOG.partition)
    beside = place / "000000000001000-100-a1"
    beside.mkdir(parents=True)
    (beside / "00000.sst").write_bytes(b"old")
    file = described(beside / "00000.sst", 1)
    written = json.loads(format_1(usable_until_ms=None, files=[
        {"name": file.name, "bytes": file.bytes, "entries": 1, "sha256": file.sha256}
    ]))  # fmt: skip
    for path in (beside / "manifest.json", place / "latest.json"):
        path.write_text(json.dumps(written))
    return decode(json.dumps(written).encode(), "")


def test_a_snapshot_of_the_first_format_is_found_until_there_is_a_newer_one(tmp_path: Path) -> None:
    old = first_format(tmp_path / "remote")
    repository = SnapshotRepository(f"file://{tmp_path}/remote", "app")
    assert repository.newest(CHANGELOG, "counts") == old
    assert [path.read_bytes() for path in repository.fetch(old, tmp_path / "fetched").files] == [b"old"]
    assert [one.manifest for one in repository.published(CHANGELOG)] == [old]
    newer = local(tmp_path, offset=101)
    repository.publish(newer)
    assert repository.newest(CHANGELOG, "counts") == newer.manifest
    assert [one.manifest for one in repository.published(CHANGELOG)] == [newer.manifest, old]


# -- deltas


def test_a_delta_is_published_with_its_own_files_and_fetched_with_all(
    repository: SnapshotRepository, tmp_path: Path
) -> None:
    newest = repository.publish(local(tmp_path, 100, content=b"base"))
    for offset in (200, 300):
        own = local(tmp_path, offset, content=b"delta-%d" % offset)
        newest = repository.publish(LocalSnapshot(newest.with_delta(own.manifest), own.directory))
    assert repository.newest(CHANGELOG, "counts") == newest
    fetched = repository.fetch(newest, tmp_path / "fetched")
    assert [path.read_bytes() for path in fetched.files] == [
        b"base-0", b"base-1", b"delta-200-0", b"delta-200-1", b"delta-300-0", b"delta-300-1",
    ]  # fmt: skip
    assert len({path.name for path in fetched.files}) == 6


def test_a_delta_whose_base_was_removed_meanwhile_is_not_published(
    repository: SnapshotRepository, tmp_path: Path
) -> None:
    base = repository.publish(local(tmp_path, 100))
    own = local(tmp_path, 200)
    repository.objects.remove(f"{repository.place(CHANGELOG)}/{base.path_of(base.files[0])}")
    with pytest.raises(SnapshotError, match="which the snapshot is built on, was removed"):
        repository.publish(LocalSnapshot(base.with_delta(own.manifest), own.directory))
    assert repository.newest(CHANGELOG, "counts") == base


# -- plain HTTP


def test_nothing_is_written_or_listed_over_plain_http(served: tuple[str, Path], tmp_path: Path) -> None:
    repository = SnapshotRepository(served[0], "app")
    for call in (lambda: repository.publish(local(tmp_path)), lambda: repository.published(CHANGELOG)):
        with pytest.raises(SnapshotError, match="plain HTTP only reads"):
            call()


def test_user_and_password_of_an_http_url_are_sent_and_in_no_error(tmp_path: Path) -> None:
    seen: list[str | None] = []

    class Asking(Quiet):
        def do_GET(self) -> None:  # noqa: N802  as the library calls it
            seen.append(self.headers["authorization"])
            self.send_error(401)

    with serving(Asking) as url:
        repository = SnapshotRepository(url.replace("://", "://ann:sesa%3Ame@") + "/x?sig=sesame", "app")
        with pytest.raises(SnapshotError, match="Unauthenticated") as raised:
            repository.newest(CHANGELOG, "counts")
    assert seen == ["Basic " + b64encode(b"ann:sesa:me").decode()]
    assert "sesa" not in str(raised.value) + repository.url


def test_a_server_that_is_busy_for_a_while_is_waited_for(tmp_path: Path) -> None:
    answers = iter([503, 503, 500])

    class Busy(Quiet):
        def do_GET(self) -> None:  # noqa: N802  as the library calls it
            self.send_error(next(answers, 404))

    with serving(Busy) as url:
        assert SnapshotRepository(url, "app", timeout_ms=15_000).newest(CHANGELOG, "counts") is None
    assert next(answers, None) is None


# -- folders in trouble


def test_a_folder_that_is_not_there_has_no_snapshots_and_is_not_made_by_reading(tmp_path: Path) -> None:
    repository = SnapshotRepository(f"file://{tmp_path}/not/there", "app")
    assert repository.newest(CHANGELOG, "counts") is None
    assert (repository.partitions(), repository.published(CHANGELOG)) == ([], [])
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize("trouble", ["a file in its place", "read-only"])
def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path, trouble: str) -> None:
    folder = tmp_path / "remote" if trouble == "a file in its place" else Path("/proc/snapshots")
    if trouble == "a file in its place":
        folder.write_bytes(b"")
    repository = SnapshotRepository(folder.as_uri(), "app")
    with pytest.raises(SnapshotError, match=f"can't write .* at file://{folder}"):
        repository.publish(local(tmp_path))


def test_a_folders_name_may_have_any_characters(tmp_path: Path) -> None:
    folder = tmp_path / "ä folder#1 50% ?"
    repository, snapshot = SnapshotRepository(folder.as_uri(), "app"), local(tmp_path)
    repository.publish(snapshot)
    assert repository.newest(CHANGELOG, "counts") == snapshot.manifest
    assert len(repository.fetch(snapshot.manifest, tmp_path / "fetched").files) == 2
    assert len(list(folder.rglob("*.sst"))) == 2
