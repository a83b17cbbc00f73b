"""The cache of jars: whole or not there, whatever interrupts it."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import requests

from milestones.common.kafka.embedded import jars
from milestones.common.kafka.embedded.errors import JarsError

COORDINATES = ("org.example:broker:1",)


class Repository:
    """Takes the place of the download: writes two jars into the folder it is given."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    def download(self, folder: Path, coordinates: Sequence[str]) -> list[Path]:
        assert coordinates == COORDINATES
        self.calls += 1
        folder.mkdir(parents=True)
        written = [folder / "a.jar", folder / "b.jar"]
        for jar in written:
            with zipfile.ZipFile(jar, "w") as archive:
                archive.writestr("x", "y" * 100)
            if self.failures:
                raise self.failures.pop(0)
        return written


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    fake = Repository()
    monkeypatch.setattr(jars, "_download", fake.download)
    monkeypatch.setattr(jars.time, "sleep", lambda _: None)
    return fake


def test_jars_are_downloaded_once(tmp_path: Path, repository: Repository) -> None:
    first = jars.resolve("broker", COORDINATES, cache=tmp_path)
    assert sorted(jar.name for jar in first.glob("*.jar")) == ["a.jar", "b.jar"]
    assert jars.resolve("broker", COORDINATES, cache=tmp_path) == first
    assert repository.calls == 1


def test_other_coordinates_have_another_folder(tmp_path: Path, repository: Repository) -> None:
    first = jars.resolve("broker", COORDINATES, cache=tmp_path)
    other = tmp_path / "other"
    assert jars.resolve("broker", COORDINATES, cache=other).name == first.name


def test_a_network_that_fails_once_is_asked_again(tmp_path: Path, repository: Repository) -> None:
    repository.failures = [requests.ConnectionError("reset")]
    said: list[str] = []
    folder = jars.resolve("broker", COORDINATES, cache=tmp_path, log=said.append)
    assert len(list(folder.glob("*.jar"))) == 2
    assert said == ["downloading the jars failed (ConnectionError: reset): trying once more"]


def test_a_network_that_stays_away_is_an_error_that_says_what_to_check(tmp_path: Path, repository: Repository) -> None:
    repository.failures = [requests.ConnectionError("no route")] * 3
    with pytest.raises(JarsError, match=r"no route.*https_proxy.*REQUESTS_CA_BUNDLE.*MILESTONES_MAVEN_REPOSITORY"):
        jars.resolve("broker", COORDINATES, cache=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_what_an_interrupted_download_left_is_never_used(tmp_path: Path, repository: Repository) -> None:
    whole = jars.resolve("broker", COORDINATES, cache=tmp_path)
    (whole / "jars.json").unlink()
    leftover = tmp_path / f"{jars._PARTIAL}{whole.name}-dead"
    leftover.mkdir()
    assert jars.resolve("broker", COORDINATES, cache=tmp_path) == whole
    assert repository.calls == 2
    assert not leftover.exists()


def test_a_jar_that_was_cut_short_is_downloaded_again(tmp_path: Path, repository: Repository) -> None:
    folder = jars.resolve("broker", COORDINATES, cache=tmp_path)
    with (folder / "a.jar").open("r+b") as jar:
        jar.truncate(10)
    jars.resolve("broker", COORDINATES, cache=tmp_path)
    assert repository.calls == 2
    assert zipfile.is_zipfile(folder / "a.jar")


def test_two_at_once_download_once(tmp_path: Path, repository: Repository) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(jars.resolve("broker", COORDINATES, cache=tmp_path)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4
    assert len(set(found)) == 1
    assert repository.calls == 1


def test_a_damaged_jar_is_refused(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("x", "y" * 1000)
    content = bytearray(jar.read_bytes())
    content[200] ^= 0xFF
    jar.write_bytes(content)
    with pytest.raises(zipfile.BadZipFile, match=r"a\.jar is damaged at x"):
        jars._checked(jar)


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path, repository: Repository) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JarsError, match="XDG_CACHE_HOME"):
        jars.resolve("broker", COORDINATES, cache=tmp_path / "file")
