"""The snapshot fetcher consists of a few threads per client that download snapshots for empty stores.

    AskSnapshots of each task --> look for all of them --> bring the files: the most important sub-topology first, the
                                                           smallest task of it first, several tasks at once

*Guarantees*: a request never blocks its thread. The answer has the snapshots that exist, which may be none. A request
gives up when no byte has come for `snapshot_timeout_ms`. It also gives up `snapshot_timeout_ms` after it was made, plus
`PIECE_MS` for each piece that has been downloaded since, for any task. If a snapshot can't be fetched, a warning is
logged, and no error is raised. If the object store can't be reached, or is too slow, there is one warning for all tasks
that ask within that time.
*Assumes*: the thread that asks takes the answer, or closes the request.
"""

from __future__ import annotations

import heapq
import logging
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from milestones.common.errors import StateError
from milestones.common.last_words import like, named, report
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.disk import scratch
from milestones.common.state.snapshots.objects import AbandonedError, ObjectStoreError, SnapshotError
from milestones.common.state.snapshots.repository import LocalSnapshot, SnapshotRepository

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.state.snapshots.snapshot import SnapshotManifest
    from milestones.common.state.spec import StoreSpec
    from milestones.common.task.changelog_task import ChangelogTask

log: Final = logging.getLogger(__name__)

END_S = 1.0
"""How long, in seconds, a client's end waits for a fetcher that downloads. The process may end during the download."""

THREADS: Final = 4
"""The number of tasks whose files are downloaded at the same time."""

PIECE_MS, PIECE_BYTES = 1_000, 4 * 1024 * 1024
"""`PIECE_MS`: the time that a piece may take. A piece is `PIECE_BYTES` of a file, the beginning of a file, or a look at
the snapshots of a store partition. With slower pieces, a start from snapshots takes longer than a start from
changelogs."""

Snapshots = Mapping[str, LocalSnapshot]
"""The downloaded snapshots, keyed by store."""


@dataclass(frozen=True)
class AskSnapshots:
    """Fetch the newest snapshots of these stores, each given by name with its changelog partition and spec. `asked_ms`:
    monotonic."""

    task: TaskId
    stores: Mapping[str, tuple[TopicPartition, StoreSpec]]
    reply_to: Mailbox[Snapshots]
    asked_ms: int


@dataclass(frozen=True)
class FetchStep:
    """A step of a request. With `found` (snapshots by store), the files are downloaded. Without it, the snapshots are
    looked for.
    """

    request: AskSnapshots
    found: Mapping[str, SnapshotManifest] | None = None


class Fetching(Protocol):
    """A request under way, owned by the thread that asked."""

    def take(self, now_ms: int) -> Snapshots | None:
        """Return the snapshots, once. Returns None while the fetcher is still at work. `now_ms`: monotonic."""
        ...

    def close(self) -> None:
        """Cancel the request. Files that are still downloaded are deleted."""
        ...


class SnapshotSource(Protocol):
    """The source of snapshots, for restorations."""

    def ask(self, task: ChangelogTask) -> Fetching | None:
        """Request snapshots for the task's empty stores. Returns None if no store needs one."""
        ...

    def start(self) -> None: ...

    def close(self) -> None:
        """Ask the fetcher to end, and wait for its end, unless a download takes too long."""
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
        self._pieces = fetcher.pieces

    def take(self, now_ms: int) -> Snapshots | None:
        answers = self._answers.drain()
        if answers:
            return answers[0]
        why = self._gives_up(now_ms)
        if why is None:
            return None
        log.log(
            self._fetcher.away_level(self._asked_ms),
            "task %s: %s: its changelogs are read instead, and those of other tasks that wait", self._task, why,
        )  # fmt: skip
        self.close()
        return {}

    def _gives_up(self, now_ms: int) -> str | None:
        """Return the reason why the task should stop waiting, or None."""
        url, timeout_ms = self._fetcher.url, self._fetcher.timeout_ms
        if now_ms - max(self._asked_ms, self._fetcher.progress_ms) > timeout_ms:
            return f"nothing has come from {url} for {timeout_ms} ms (snapshot_timeout_ms)"
        waited_ms, pieces = now_ms - self._asked_ms, self._fetcher.pieces - self._pieces
        if waited_ms > timeout_ms + pieces * PIECE_MS:
            came = f"{pieces:.0f} times 4 MiB, or a file's beginning, in {waited_ms} ms"
            return f"{url} is too slow: {came} (snapshot_timeout_ms, and {PIECE_MS} ms each)"
        return None

    def close(self) -> None:
        self._answers.close()
        with suppress(MailboxClosedError):
            for answer in self._answers.drain():
                _remove(answer)


class FetchQueue:
    """The queue of the fetcher's jobs, the most urgent first. *Concurrency*: any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[tuple[int, ...], int, FetchStep]] = []
        self._put = 0
        self._ended: BaseException | None = None
        self.closed = False

    def put(self, job: FetchStep, urgency: tuple[int, ...]) -> None:
        """Add a job. Jobs with the lowest `urgency` come first, and equal ones in the order in which they were added.
        `MailboxClosedError`.
        """
        with self._changed:
            if self.closed:
                closed = MailboxClosedError("no snapshots are fetched any more")
                raise closed if self._ended is None else like(self._ended)
            self._put += 1
            heapq.heappush(self._heap, (urgency, self._put, job))
            self._changed.notify()

    def get(self, timeout_ms: int) -> FetchStep | None:
        """Return the most urgent job, or None if none came in time or the queue was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._heap, timeout_ms / 1000)
            return heapq.heappop(self._heap)[2] if self._heap and not self.closed else None

    def close(self, error: BaseException | None = None) -> None:
        """Close the queue. `error`: the error that `put` raises from now on."""
        with self._changed:
            self.closed, self._ended = True, self._ended or error
            self._changed.notify_all()


class SnapshotFetcher:
    """Fetches snapshots, those of several tasks at once.

    *Owns*: the connection to `snapshot_url`, its threads, a folder for downloads under way. *Receives*: `AskSnapshots`.
    *Sends*: `Snapshots`, which the receiver owns from then on. Publishes `progress_ms`: the monotonic time of the last
    progress; `pieces`: how many have come.
    """

    url: str
    timeout_ms: int

    def __init__(
        self,
        name: str,
        repository: SnapshotRepository,
        directory: Path,
        clock: Clock,
        timeout_ms: int,
        weights: Mapping[int, int] | None = None,
    ) -> None:
        """`weights`: `task_priorities`."""
        self.name, self._repository, self._clock, self._directory = name, repository, clock, scratch(directory)
        self.queue: FetchQueue = FetchQueue()
        self._weights = weights or {}
        self.url, self.timeout_ms = repository.url, timeout_ms
        self.progress_ms: int = clock.monotonic_ms()
        self.pieces = 0.0
        self._counting = threading.Lock()
        self._threads = [
            threading.Thread(target=self.run, name=f"{name}-{number}", daemon=True) for number in range(1, THREADS + 1)
        ]
        self._running = THREADS
        self._ending = threading.Lock()
        self._told_away_ms = -timeout_ms - 1
        self._telling = threading.Lock()

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
        now_ms = self._clock.monotonic_ms()
        try:
            self._put(FetchStep(AskSnapshots(task.id, stores, answers, now_ms)))
        except Exception as error:
            log.warning("task %s: no snapshots can be fetched, its changelogs are read instead: %s", task.id, error)
            return None
        return _Request(self, task.id, answers, now_ms)

    def away_level(self, asked_ms: int) -> int:
        """Return the log level for an object store that can't be reached. It is WARNING once for all requests until now
        and in the next `timeout_ms`. From any thread.
        """
        with self._telling:
            if asked_ms <= self._told_away_ms + self.timeout_ms:
                return logging.INFO
            self._told_away_ms = self._clock.monotonic_ms()
            return logging.WARNING

    def _put(self, job: FetchStep) -> None:
        """Add a step. Steps that look for snapshots come first, because they are short and find out the sizes of the
        files.
        """
        weight = self._weights.get(job.request.task.subtopology, 1)
        size = None if job.found is None else sum(manifest.size for manifest in job.found.values())
        self.queue.put(job, (0, -weight, 0) if size is None else (1, -weight, size))

    def run(self) -> None:
        """A thread's life."""
        try:
            while not self.queue.closed:
                self.run_once(1_000)
        except BaseException as error:
            self.queue.close(named(error))
            report(log, "%s died; state is restored from changelogs", self.name, error=error)
        finally:
            with self._ending:
                self._running -= 1
            if not self._running:
                shutil.rmtree(self._directory, ignore_errors=True)

    def run_once(self, timeout_ms: int) -> bool:
        """Look for the snapshots of a task, or download those that were found. Returns True if there was a job."""
        job = self.queue.get(timeout_ms)
        if job is None:
            return False
        if job.found is None:
            with suppress(MailboxClosedError):
                self._put(FetchStep(job.request, self._look(job.request)))
        else:
            self._bring(job.request, job.found)
        return True

    def _look(self, request: AskSnapshots) -> dict[str, SnapshotManifest]:
        """Return the snapshots from which the stores can be filled."""
        found: dict[str, SnapshotManifest] = {}
        for store, (changelog, spec) in request.stores.items():
            with self._told(request, store):
                self._wanted(request)
                manifest = self._repository.newest(changelog, store, now_ms=self._clock.wall_ms())
                self._progress(request, 1)
                if manifest is not None and (why := manifest.unfit(spec, self._clock.wall_ms())) is not None:
                    raise SnapshotError(why)
                if manifest is not None:
                    found[store] = manifest
        return found

    def _bring(self, request: AskSnapshots, manifests: Mapping[str, SnapshotManifest]) -> None:
        """Download them, and answer."""
        found: dict[str, LocalSnapshot] = {}
        for store, manifest in manifests.items():
            with self._told(request, store):
                self._wanted(request)
                found[store] = self._repository.fetch(manifest, self._directory, partial(self._came, request))
        try:
            request.reply_to.try_put(found)
        except MailboxClosedError:
            _remove(found)

    @contextmanager
    def _told(self, request: AskSnapshots, store: str) -> Iterator[None]:
        """Log an error of the block as a warning, and end the block. Also ends the block if the request was cancelled.
        """
        try:
            yield
        except AbandonedError:
            pass
        except ObjectStoreError as error:
            log.log(
                self.away_level(request.asked_ms),
                "task %s: store %s is restored from its changelog, and others that ask meanwhile, as snapshots can't "
                "be had: %s", request.task, store, error,
            )  # fmt: skip
        except StateError as error:
            log.warning(
                "task %s: store %s is restored from its changelog, its snapshot is no use: %s",
                request.task, store, error,
            )  # fmt: skip

    def _came(self, request: AskSnapshots, size: int) -> None:
        """Note that bytes of a file were downloaded; 0 at the beginning of a file."""
        self._progress(request, size / PIECE_BYTES or 1)

    def _progress(self, request: AskSnapshots, pieces: float) -> None:
        self.progress_ms = self._clock.monotonic_ms()
        with self._counting:
            self.pieces += pieces
        self._wanted(request)

    def _wanted(self, request: AskSnapshots) -> None:
        if request.reply_to.closed or self.queue.closed:
            raise AbandonedError

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self.queue.close()
        until = time.monotonic() + END_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))


def _remove(snapshots: Snapshots) -> None:
    for snapshot in snapshots.values():
        snapshot.remove()


def snapshot_source(config: StreamsConfig, name: str, directory: Path, clock: Clock) -> SnapshotSource:
    """The source that `snapshot_url` names. `ConfigError` for a URL that can't be used."""
    if config.snapshot_url is None:
        return NoSnapshots()
    repository, weights = SnapshotRepository.of(config), config.task_priorities
    return SnapshotFetcher(name, repository, directory, clock, config.snapshot_timeout_ms, weights)
