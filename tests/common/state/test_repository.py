"""Snapshots at a URL: all of one or nothing, on every kind of file system."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest

from milestones.common.errors import ConfigError, StateFormatError
from milestones.common.records import TopicPartition
from milestones.common.state.snapshots.repository import (
    AbandonedError,
    LocalSnapshot,
    SnapshotError,
    SnapshotRepository,
    described,
)
from tests.common.state.test_snapshot import MANIFEST

CHANGELOG = TopicPartition(MANIFEST.changelog, MANIFEST.partition)


class Quiet(SimpleHTTPRequestHandler):
    def log_request(self, code: object = "-", size: object = "-") -> None: ...
    def log_error(self, *args: object) -> None: ...


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A URL over HTTP on loopback, and the folder that it shows."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["file", "memory"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotRepository:
    url = f"file://{tmp_path}/remote" if request.param == "file" else f"memory://{uuid4().hex}"
    return SnapshotRepository(url, "app")


def local(
    directory: Path,
    offset: int = 100,
    created_ms: int = 1_000,
    content: bytes = b"entries",
    usable_until_ms: int | None = None,
    partition: int = MANIFEST.partition,
) -> LocalSnapshot:
    """A snapshot of two files that is still here only."""
    folder = directory / uuid4().hex
    folder.mkdir(parents=True)
    paths = [folder / f"0000{number}.sst" for number in range(2)]
    for number, path in enumerate(paths):
        path.write_bytes(content + b"-%d" % number)
    files = tuple(described(path, 1) for path in paths)
    manifest = replace(
        MANIFEST, id=uuid4().hex[:12], offset=offset, created_ms=created_ms, usable_until_ms=usable_until_ms,
        files=files, partition=partition,
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


def test_the_last_but_one_stays_for_whoever_reads_it_and_older_ones_go(tmp_path: Path) -> None:
    repository = SnapshotRepository(f"file://{tmp_path}/remote", "app")
    made = [local(tmp_path, offset, created_ms=time) for time, offset in enumerate((500, 600, 50, 60), start=1)]
    for snapshot in made:
        repository.publish(snapshot)
    repository.fetch(made[-1].manifest, tmp_path / "fetched")
    repository.fetch(made[-2].manifest, tmp_path / "fetched")
    for snapshot in made[:2]:
        with pytest.raises(SnapshotError):
            repository.fetch(snapshot.manifest, tmp_path / "fetched")


def test_two_attempts_of_one_snapshot_do_not_disturb_each_other(repository: SnapshotRepository, tmp_path: Path) -> None:
    one, other = local(tmp_path, content=b"one"), local(tmp_path, content=b"other")
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
    remote = Path(repository.describe(snapshot.manifest)) / "00001.sst"
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
    for latest in (tmp_path / "remote").rglob("latest.json"):
        latest.write_bytes(latest.read_bytes()[:40])
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
        SnapshotRepository("http://127.0.0.1:1/x", "app").newest(CHANGELOG, "counts")


@pytest.mark.parametrize("url", ["nonsense://bucket/x", "s3-but-wrong://x"])
def test_a_kind_of_url_that_nobody_knows_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match="snapshot_url"):
        SnapshotRepository(url, "app")
