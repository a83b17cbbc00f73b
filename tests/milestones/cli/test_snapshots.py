"""`milestones snapshots`: what there is, whether it is whole, what can go."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from milestones.cli.main import invoke
from milestones.common.clock import SystemClock
from milestones.common.errors import ConfigError, StateError
from milestones.common.state.snapshots.repository import LocalSnapshot, SnapshotRepository
from tests.common.state.test_repository import CHANGELOG, local
from tests.common.state.test_sealing import K1, K2
from tests.common.test_canary import CANARY
from tests.milestones.cli.conftest import plain

OLD_S = SystemClock().wall_ms() // 1000 - 7_200


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return tmp_path / "remote"


@pytest.fixture
def repository(remote: Path) -> SnapshotRepository:
    return SnapshotRepository(f"file://{remote}", "app")


def run(words: Path, remote: Path, *more: str) -> int:
    return invoke(["snapshots", str(words), "-a", "app", "--set", f"snapshot_url=file://{remote}", *more])


def aged(remote: Path) -> None:
    """All is two hours old."""
    for path in remote.rglob("*.*"):
        os.utime(path, (OLD_S, OLD_S))


def test_snapshots_are_listed_the_newest_first(
    words: Path, remote: Path, repository: SnapshotRepository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = repository.publish(local(tmp_path, 12_345, generation=7))
    own = local(tmp_path, 12_400, generation=7)
    repository.publish(LocalSnapshot(base.with_delta(own.manifest), own.directory))
    repository.publish(local(tmp_path, 5, partition=0))
    assert run(words, remote) == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines() if line.strip().startswith("counts")]
    places = [["counts-0", "0", "5", "2"], ["counts-3", "7", "12,400", "4"], ["counts-3", "7", "12,345", "2"]]
    assert [row[:4] for row in rows] == places
    assert [" ".join(row[5:-2]) for row in rows] == ["base", "delta 1", "base"]
    assert rows[0][-1] == "d"


def test_where_there_are_none_it_is_said(words: Path, remote: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(words, remote) == 0
    assert "there are no snapshots of app at file://" in plain(capfd.readouterr().err)


def test_another_applications_are_not_listed(
    words: Path, remote: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = local(tmp_path)
    SnapshotRepository(f"file://{remote}", "other").publish(
        LocalSnapshot(replace(other.manifest, application_id="other"), other.directory)
    )
    assert run(words, remote) == 0
    assert "there are no snapshots of app" in plain(capfd.readouterr().err)


@pytest.mark.parametrize("damage", [None, "changed", "gone", "manifest"])
def test_all_files_are_read_and_what_is_damaged_is_named(
    words: Path, remote: Path, repository: SnapshotRepository, tmp_path: Path, damage: str | None,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    repository.publish(local(tmp_path, 100))
    repository.publish(local(tmp_path, 200, content=b"other"))
    path = sorted(remote.rglob("*200*.json" if damage == "manifest" else "00001.sst"))[0]
    if damage == "gone":
        path.unlink()
    elif damage is not None:
        path.write_bytes(b"damage")
    assert run(words, remote, "--verify") == (0 if damage is None else StateError.exit_code)
    out, err = capfd.readouterr()
    assert out.count("whole") == (2 if damage is None else 1)
    assert damage is None or path.name in plain(err)
    assert run(words, remote) == (StateError.exit_code if damage == "manifest" else 0)


def test_encrypted_files_are_verified_with_their_key(
    words: Path, remote: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    SnapshotRepository(f"file://{remote}", "app", encryption_key=K1).publish(local(tmp_path))
    assert run(words, remote, "--verify", "--set", f"snapshot_encryption_key={K1}") == 0
    assert run(words, remote, "--verify", "--set", f"snapshot_encryption_key={K2}") == StateError.exit_code
    out, err = capfd.readouterr()
    assert "needs the key of the id 'k1'" in plain(err)
    assert K1[3:] not in out + err
    assert K2[3:] not in out + err


def test_what_nobody_needs_any_more_is_removed_when_it_is_asked_for(
    words: Path, remote: Path, repository: SnapshotRepository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = [repository.publish(local(tmp_path, offset)) for offset in (100, 200, 300)]
    assert run(words, remote, "--prune") == 0
    assert len(repository.published(CHANGELOG)) == 3, "it isn't an hour old"
    aged(remote)
    assert run(words, remote) == 0
    assert len(repository.published(CHANGELOG)) == 3
    assert run(words, remote, "--prune") == 0
    assert [one.manifest for one in repository.published(CHANGELOG)] == made[:0:-1]
    assert "3 objects of 0.0 MB were removed" in plain(capfd.readouterr().err)


def test_where_a_newer_version_has_been_nothing_is_removed(
    words: Path, remote: Path, repository: SnapshotRepository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for offset in (100, 200, 300):
        repository.publish(local(tmp_path, offset))
    manifest = max(remote.rglob("manifests/*"))
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 4'))
    aged(remote)
    assert run(words, remote, "--prune") == StateError.exit_code
    assert "has format 4" in plain(capfd.readouterr().err)
    assert len(list(remote.rglob("*.sst"))) == 6


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1:1/x", ConfigError.exit_code),
        (f"nonsense://ann:{CANARY}@x", ConfigError.exit_code),
        (f"file:///x?sig={CANARY}", 0),
    ],
)
def test_a_url_that_cannot_be_listed_is_a_config_error(
    words: Path, url: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["snapshots", str(words), "-a", "app", "--url", url]) == code
    assert CANARY not in "".join(capfd.readouterr())


def test_without_a_url_there_is_nowhere_to_look(words: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke(["snapshots", str(words), "-a", "app"]) == ConfigError.exit_code
    assert "snapshot_url" in capfd.readouterr().err
