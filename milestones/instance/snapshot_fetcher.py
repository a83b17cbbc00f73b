"""The snapshot fetcher: one thread per client that downloads snapshots for empty stores.

*Guarantees*: a request never blocks its thread. A request is answered with the snapshots that exist, which may be none,
or gives up once no byte has come for `snapshot_timeout_ms`. A snapshot that can't be fetched is a warning, no error.
*Assumes*: the thread that asks takes the answer, or closes the request.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from milestones.common.errors import StateError
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.disk import scratch
from milestones.common.state.snapshots.repository import AbandonedError, LocalSnapshot, SnapshotRepository

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.state.spec import StoreSpec
    from milestones.common.task.changelog_task import ChangelogTask

log: Final = logging.getLogger(__name__)

END_S = 1.0
"""How long a client's end waits for a fetcher that downloads: its process may end beside it."""

Snapshots = Mapping[str, LocalSnapshot]
"""Downloaded snapshots by store."""


@dataclass(frozen=True)
class AskSnapshots:
    """Fetch the newest snapshots of these stores, each given by name with its changelog partition and spec."""

    task: TaskId
    stores: Mapping[str, tuple[TopicPartition, StoreSpec]]
    reply_to: Mailbox[Snapshots]


class Fetching(Protocol):
    """A request under way, owned by the thread that asked."""

    def take(self, now_ms: int) -> Snapshots | None:
        """The snapshots, once; None while the fetcher is at work. `now_ms`: monotonic."""
        ...

    def close(self) -> None:
        """Give the request up; files that still come are deleted."""
        ...


class SnapshotSource(Protocol):
    """The source of snapshots, for restorations."""

    def ask(self, task: ChangelogTask) -> Fetching | None:
        """Request snapshots of the task's empty stores; None when no store needs one."""
        ...

    def start(self) -> None: ...

    def close(self) -> None:
        """Ask the fetcher to end, and wait for that unless a download holds it up."""
        ...


class NoSnapshots:
    """A source without snapshots: stores are restored from changelogs alone."""

    def ask(self, task: ChangelogTask) -> Fetching | None:
        return None

    def start(self) -> None: ...

    def close(self) -> None: ...


class _Request:
    """See `Fetching`."""

    def __init__(self, fetcher: SnapshotFetcher, task: TaskId, answers: Mailbox[Snapshots], now_ms: int) -> None:
        self._fetcher, self._task, self._answers, self._asked_ms = fetcher, task, answers, now_ms

    def take(self, now_ms: int) -> Snapshots | None:
        answers = self._answers.drain()
        if answers:
            return answers[0]
        if now_ms - max(self._asked_ms, self._fetcher.progress_ms) <= self._fetcher.timeout_ms:
            return None
        log.warning(
            "task %s: nothing has come from %s for %d ms (snapshot_timeout_ms): its changelogs are read instead",
            self._task, self._fetcher.url, self._fetcher.timeout_ms,
        )  # fmt: skip
        self.close()
        return {}

    def close(self) -> None:
        self._answers.close()
        with suppress(MailboxClosedError):
            for answer in self._answers.drain():
                _remove(answer)


class SnapshotFetcher(threading.Thread):
    """Fetches snapshots, one task after the other.

    *Owns*: the connection to `snapshot_url`, a folder for downloads under way. *Receives*: `AskSnapshots`. *Sends*:
    `Snapshots`, which the receiver owns from then on. Publishes `progress_ms`: the monotonic time of the last progress.
    """

    url: str
    timeout_ms: int

    def __init__(
        self, name: str, repository: SnapshotRepository, directory: Path, clock: Clock, timeout_ms: int
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._repository, self._clock, self._directory = repository, clock, scratch(directory)
        self._requests: Mailbox[AskSnapshots] = Mailbox(100_000, f"{name} requests")
        self.url, self.timeout_ms = repository.url, timeout_ms
        self.progress_ms: int = clock.monotonic_ms()

    def ask(self, task: ChangelogTask) -> Fetching | None:
        specs = {spec.name: spec for spec in task.subtopology.stores}
        stores = {
            store: (TopicPartition(task.subtopology.changelogs[store], task.id.partition), specs[store])
            for store, offset in task.changelog_offsets().items()
            if offset is None
        }
        if not stores:
            return None
        answers: Mailbox[Snapshots] = Mailbox(1, f"{self.name} answer to task {task.id}")
        try:
            self._requests.put(AskSnapshots(task.id, stores, answers), timeout_ms=0)
        except Exception as error:
            log.warning("task %s: no snapshots can be fetched, its changelogs are read instead: %s", task.id, error)
            return None
        return _Request(self, task.id, answers, self._clock.monotonic_ms())

    def run(self) -> None:
        try:
            while not self._requests.closed:
                request = self._requests.get(timeout_ms=1_000)
                if request is not None:
                    self.serve(request)
        except MailboxClosedError:
            pass
        except Exception as error:
            log.exception("%s died; state is restored from changelogs", self.name)
            self._requests.close(error)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def serve(self, request: AskSnapshots) -> None:
        found: dict[str, LocalSnapshot] = {}
        for store, (changelog, spec) in request.stores.items():
            snapshot = self._fetch(request, store, changelog, spec)
            if snapshot is not None:
                found[store] = snapshot
        try:
            request.reply_to.try_put(found)
        except MailboxClosedError:
            _remove(found)

    def _fetch(
        self, request: AskSnapshots, store: str, changelog: TopicPartition, spec: StoreSpec
    ) -> LocalSnapshot | None:
        """The downloaded snapshot of one store; None when there is none, or when the request was given up."""
        try:
            self._wanted(request)
            manifest = self._repository.newest(changelog, store, now_ms=self._clock.wall_ms())
            self._progress(request)
            if manifest is None:
                return None
            why = manifest.unfit(spec, self._clock.wall_ms())
            if why is None:
                return self._repository.fetch(manifest, self._directory, lambda _: self._progress(request))
        except AbandonedError:
            return None
        except StateError as error:
            why = str(error)
        log.warning(
            "task %s: store %s is restored from its changelog, its snapshot is no use: %s", request.task, store, why
        )
        return None

    def _progress(self, request: AskSnapshots) -> None:
        self.progress_ms = self._clock.monotonic_ms()
        self._wanted(request)

    def _wanted(self, request: AskSnapshots) -> None:
        if request.reply_to.closed or self._requests.closed:
            raise AbandonedError

    def close(self) -> None:
        self._requests.close()
        if self.is_alive():
            self.join(END_S)


def _remove(snapshots: Snapshots) -> None:
    for snapshot in snapshots.values():
        snapshot.remove()


def snapshot_source(config: StreamsConfig, name: str, directory: Path, clock: Clock) -> SnapshotSource:
    """The source that `snapshot_url` names. `ConfigError` for a URL that can't be used."""
    if config.snapshot_url is None:
        return NoSnapshots()
    return SnapshotFetcher(name, SnapshotRepository.of(config), directory, clock, config.snapshot_timeout_ms)
