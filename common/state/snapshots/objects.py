"""The object store behind a URL: S3, GCS, Azure, HTTP, or a folder. Needs the extra `milestones[snapshots]`.

*Guarantees*: an object is written completely or not at all. `create` never replaces an object. Each error is a
`SnapshotError` whose text has no credentials. A call is repeated while the store can't be reached or answers 5xx, for a
third of the time-out.
*Assumes*: a call may take as long as the network takes. So only the snapshot fetcher, helper processes, commands and
Spark tasks make calls.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from milestones.common.errors import ConfigError, StateError
from milestones.common.secrets import scrubbed, without_credentials

KINDS: Final = (
    "file:///path, s3://bucket/path, gs://bucket/path, az://container/path; to read only, https://host/path"
)
"""The forms of URLs that work, for error texts."""
CHUNK: Final = 1024 * 1024
CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
"""The options that concern the connection. All other options are settings of the store."""
_PUBLIC: Final = ("allow_http", "endpoint", "region")
"""Options whose names end with one of these aren't secret, so error texts may contain their values."""


class SnapshotError(StateError):
    """A snapshot can't be read or written. The message names the snapshot and the reason, without credentials."""

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))


class ObjectStoreError(SnapshotError):
    """The store can't be reached, or refuses a request. The error doesn't mean that a snapshot is bad."""


class AbandonedError(Exception):
    """The caller no longer wants the snapshot. `progress` raises this error to end a `fetch`."""


@dataclass(frozen=True)
class StoredObject:
    """An object that is in the store. `modified_ms`: the time of its last write, by the store's clock."""

    path: str
    bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Objects, keyed by a path with `/` between its parts. Every call may raise `ObjectStoreError`."""

    url: str
    """The store's URL without credentials, for messages."""
    lists: bool
    """True if the store can be listed and written. Plain HTTP can't."""

    def read(self, path: str) -> bytes | None:
        """Read a whole object. Returns None if there is none."""
        ...

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield an object's bytes piece by piece. Raises `SnapshotError` if there is no such object."""
        ...

    def size(self, path: str) -> int | None:
        """Return an object's size in bytes, None if there is no such object."""
        ...

    def below(self, folder: str) -> list[StoredObject]:
        """List the objects in a folder and its sub-folders. Empty if there is no such folder."""
        ...

    def write(self, path: str, content: bytes | Path) -> None:
        """Write an object. An existing one is replaced."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Write a new object. Returns False, and writes nothing, if there is one already."""
        ...

    def remove(self, path: str) -> None:
        """Remove an object. Does nothing if there is none."""
        ...


def open_store(url: str, options: Mapping[str, str] | None = None, timeout_ms: int = 30_000) -> ObjectStore:
    """Open the store behind `url`. Reads nothing. Raises `ConfigError`.

    `options`: credentials and other options of obstore, which override those in the environment. `timeout_ms`: the time
    for which the store may send nothing."""
    shown = without_credentials(url)
    try:
        import obstore  # noqa: F401  whether it is there
    except ImportError as error:
        reason = "needs the extra 'snapshots': pip install 'milestones[snapshots]'"
        raise ConfigError("snapshot_url", shown, reason) from error
    scheme = urlsplit(url).scheme.lower()
    if scheme == "memory":
        raise ConfigError("snapshot_url", shown, "each process has a memory of its own; use file:// or a remote URL")
    if scheme == "file":
        return FolderStore(url)
    options = dict(options or {})
    try:
        return RemoteStore(_connected(url, options, timeout_ms), url, options)
    except BaseException as error:  # obstore may raise even a BaseException, with all of its input in the text
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        why = reason_of(error, options)
    with_options = " with these snapshot_options" if options else ""
    raise ConfigError("snapshot_url", shown, f"can't be used{with_options}: {why}; what works: {KINDS}")


def _connected(url: str, options: Mapping[str, str], timeout_ms: int) -> Any:
    """Make obstore's object for a URL."""
    from obstore.store import from_url

    client = {name: value for name, value in options.items() if name in CLIENT_OPTIONS}
    own = {name: value for name, value in options.items() if name not in CLIENT_OPTIONS}
    third = timedelta(milliseconds=timeout_ms / 3)
    # A whole request has no time-out (but a day), because a large file may take long. A pause between bytes has one.
    defaults: dict[str, Any] = {
        "timeout": "1day", "read_timeout": f"{timeout_ms}ms", "connect_timeout": f"{max(1, timeout_ms // 3)}ms",
    }  # fmt: skip
    backoff = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2}
    retry: Any = {"max_retries": 1_000, "retry_timeout": third, "backoff": backoff}
    # obstore ignores the connection options of the environment once some are given here. So `allow_http` is taken over.
    allowed = (os.environ.get(f"{cloud}_ALLOW_HTTP", "").lower() == "true" for cloud in ("AWS", "AZURE", "GOOGLE"))
    if urlsplit(url).scheme.lower() == "http" or any(allowed):
        defaults["allow_http"] = True
    url, login = _without_login(url)
    if login is not None:
        defaults["default_headers"] = {"authorization": login}
    settings: Any = {"client_options": {**defaults, **client}, "retry_config": retry}
    if own:
        settings["config"] = own
    return from_url(url, **settings)


def _without_login(url: str) -> tuple[str, str | None]:
    """Take user and password out of an HTTP URL. Returns the URL without them, and the header that sends them (None if
    there are none)."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if parts.scheme.lower() not in ("http", "https") or not at:
        return url, None
    return urlunsplit(parts._replace(netloc=host)), "Basic " + b64encode(unquote(login).encode()).decode()


class RemoteStore:
    """An `ObjectStore` that obstore reaches. `store`: obstore's object. `options`: the options whose values error texts
    must not contain."""

    def __init__(self, store: Any, url: str, options: Mapping[str, str]) -> None:
        self._store, self._options = store, options
        self.url = without_credentials(url)
        self.lists = type(store).__name__ != "HTTPStore"

    def read(self, path: str) -> bytes | None:
        import obstore

        with self._told("read", path), suppress(FileNotFoundError):
            return bytes(obstore.get(self._store, self._at(path)).bytes())
        return None

    def chunks(self, path: str) -> Iterator[bytes]:
        import obstore

        with self._told("read", path):
            try:
                stream = iter(obstore.get(self._store, self._at(path)).stream(CHUNK))
            except FileNotFoundError:
                raise SnapshotError(f"{path} at {self.url} isn't there any more") from None
        while True:
            with self._told("read", path):
                chunk = next(stream, None)
            if chunk is None:
                return
            yield bytes(chunk)

    def size(self, path: str) -> int | None:
        import obstore

        with self._told("look at", path), suppress(FileNotFoundError):
            return int(obstore.head(self._store, self._at(path))["size"])
        return None

    def below(self, folder: str) -> list[StoredObject]:
        import obstore

        self._not_plain_http("listed")
        with self._told("list", folder):
            found = [item for chunk in obstore.list(self._store, folder) for item in chunk]
        return [
            StoredObject(str(item["path"]), int(item["size"]), int(item["last_modified"].timestamp() * 1000))
            for item in found
        ]

    def write(self, path: str, content: bytes | Path) -> None:
        import obstore

        self._not_plain_http("written")
        with self._told("write", path):
            obstore.put(self._store, self._at(path), content)

    def create(self, path: str, content: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        self._not_plain_http("written")
        with self._told("write", path):
            try:
                obstore.put(self._store, self._at(path), content, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def remove(self, path: str) -> None:
        import obstore

        self._not_plain_http("written")
        with self._told("remove", path), suppress(FileNotFoundError):
            obstore.delete(self._store, self._at(path))

    def _at(self, path: str) -> str:
        """Return the path that obstore's object uses for `path`."""
        return path

    def _not_plain_http(self, what: str) -> None:
        if not self.lists:
            raise SnapshotError(f"{self.url} can't be {what}: plain HTTP only reads, use the store's own URL")

    @contextmanager
    def _told(self, doing: str, path: str) -> Iterator[None]:
        """Turn any error into a `SnapshotError`."""
        try:
            yield
        except SnapshotError:
            raise
        except Exception as error:
            told = f"can't {doing} {path} at {self.url}: {reason_of(error, self._options)}"
            raise ObjectStoreError(told) from None  # the original error's text may have credentials


class FolderStore(RemoteStore):
    """An `ObjectStore` in a folder of this machine, or in a mounted one.

    A write that breaks off leaves a file of another name, which `below` lists, too. Files are written without fsync,
    because checksums show damage."""

    def __init__(self, url: str) -> None:
        """Check the URL. The first write makes the folder. Raises `ConfigError`."""
        from obstore.store import LocalStore

        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
            raise ConfigError("snapshot_url", without_credentials(url), "a folder is file:///path, of this machine")
        super().__init__(LocalStore(), url, {})
        self._root = Path(unquote(parts.path))

    def below(self, folder: str) -> list[StoredObject]:
        found = []
        with self._told("list", folder):
            for directory, _, names in os.walk(self._root / folder):
                for path in (Path(directory, name) for name in names):
                    with suppress(FileNotFoundError):  # the file was removed since `os.walk` listed it
                        told = path.stat()
                        at = path.relative_to(self._root).as_posix()
                        found.append(StoredObject(at, told.st_size, told.st_mtime_ns // 1_000_000))
        return found

    def remove(self, path: str) -> None:
        file = self._root / path
        with self._told("remove", path):
            file.unlink(missing_ok=True)
            with suppress(OSError):  # the folder isn't empty, or another process writes into it
                file.parent.rmdir()

    def _at(self, path: str) -> str:
        return (self._root / path).as_posix().lstrip("/")


def reason_of(error: BaseException, options: Mapping[str, str]) -> str:
    """Return the text of an obstore error in one line, without those values of `options` that may be secrets."""
    said = str(error).strip().splitlines() or [""]
    secrets = {f"snapshot_options.{name}": value for name, value in options.items() if not name.endswith(_PUBLIC)}
    return scrubbed(f"{type(error).__name__}: {said[0]}", secrets)
