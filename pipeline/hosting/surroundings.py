"""Makes what a stream thread gives to its parts, for a single task in a Spark process.

*Guarantees*: everything that the parts of the runtime need is here. The only thread that is started fetches snapshots,
if `snapshot_url` is set. Under `exactly_once_v2`, no earlier attempt at the task can commit after this attempt has its
producer. So committed offsets that are read after that are final. An attempt whose generation is over makes no
producer, so that it fences no other attempt. One attempt at a time uses the task's state directory. If an attempt finds
the directory locked and changelogs have all state, it uses a temporary directory, which is removed at the end.
*Assumes*: closed at the end.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from milestones.common.assignment.model import SPARK
from milestones.common.clock import Clock
from milestones.common.config import StreamsConfig
from milestones.common.errors import StateError, StateLockedError
from milestones.common.kafka.admin import AdminCall, OwnAdmin
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.kafka.groups import GroupReader
from milestones.common.kafka.membership import BorrowedMembership
from milestones.common.kafka.producer import OutputProducer
from milestones.common.kafka.retry import RetryPolicy
from milestones.common.kafka.topic_metadata import Described
from milestones.common.kafka.topics import Cluster
from milestones.common.mailbox import Mailbox
from milestones.common.memory import MemoryBudget
from milestones.common.metrics import Metrics
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.disk import make_directory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.global_stores import GlobalStores
from milestones.common.state.spark_folders import spark_attempts_folder, spark_task_folder
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.steps import Steps, to_the_end
from milestones.common.topology.topology import SubTopology
from milestones.instance.admin_thread import AskBounds, Request, bounds_of
from milestones.instance.application import Application
from milestones.instance.context import ThreadContext, UncaughtExceptionResponse
from milestones.instance.identity import AttemptIdentity
from milestones.instance.instance import rocks_settings
from milestones.instance.listeners import Listeners, StateRestoreListener
from milestones.instance.snapshot_fetcher import snapshot_source
from milestones.pipeline.bounded import BoundedConsumer
from milestones.pipeline.hosting.ranges import TaskRange
from milestones.pipeline.hosting.worker_globals import WorkerGlobals
from milestones.shared_parts.clients import initialise

log: Final = logging.getLogger(__name__)

LOCK_PATIENCE_MS = 2_000
"""How long an earlier attempt, which is fenced by now, may take to release the state directory."""


class HostedClients:
    """The clients of one attempt, the context for its parts, and its state. `spent`: True if the producer can make no
    further transaction.
    """

    everyone: WorkerGlobals | None

    spent: bool = False

    def __init__(
        self,
        config: StreamsConfig,
        application: Application,
        work: TaskRange,
        clock: Clock,
        history: str | None = None,
        everyone: WorkerGlobals | None = None,
        *,
        isolation: BatchIsolation | None = None,
    ) -> None:
        """`everyone`: the global stores of this process. `isolation`: decides how the producer divides outputs into
        batches. `StaleGenerationError`.
        """
        name = transactional_id(application.id, work.task)
        self._config, self._name, self.everyone = config, name, everyone
        with ExitStack() as closing:
            self.member: BorrowedMembership = BorrowedMembership(config.member_settings(name, SPARK), work.lent, clock)
            closing.callback(self.member.close)
            self.member.confirm()
            transactional = name if config.exactly_once else None
            self._admin = OwnAdmin(lambda: Cluster(config.admin_settings(name)))
            self.producer: OutputProducer = OutputProducer(
                config.producer_settings(name, transactional), clock,
                admin=self._admin, isolation=isolation,
            )  # fmt: skip
            closing.callback(self.producer.close)
            if transactional is not None:
                retry_policy = RetryPolicy(config.task_timeout_ms, clock)
                to_the_end(initialise(self.producer, transactional, clock, retry_policy, config.task_timeout_ms))
            self.offsets: GroupReader = GroupReader(
                config.admin_settings(name),
                application.id,
                timeout_ms=config.task_timeout_ms,
                clock=clock,
                coordinator=self.member.coordinator,
            )
            closing.callback(self.offsets.close)
            self.consumer: BoundedConsumer = _consumer(config.consumer_settings(name), work, history)
            closing.callback(self.consumer.close)
            self.restored: RestoreCounter = RestoreCounter()
            state = _open_state(config, application, work.task, clock, closing)
            snapshots = snapshot_source(config, f"{name}-snapshots", state.directory.path, clock)
            snapshots.start()
            closing.callback(snapshots.close)
            self.context: ThreadContext = ThreadContext(
                identity=AttemptIdentity(name),
                stage=SPARK,
                config=config,
                clock=clock,
                application=application,
                process_id=state.directory.process_id,
                transactional_id=name,
                state=state,
                metrics=Metrics(clock, level=config.metrics_recording_level),
                housekeeper=AnsweringHousekeeper(name, self._admin),
                notify=lambda _: None,
                decide=lambda *_, **__: UncaughtExceptionResponse.SHUTDOWN_CLIENT,
                memory=MemoryBudget(config).join(),
                listeners=_told(self.restored),
                snapshots=snapshots,
                global_stores=GlobalStores() if everyone is None else everyone.stores,
            )
            self._closing = closing.pop_all()

    def topics(self, names: Collection[str]) -> Mapping[str, Described]:
        """Return those of these topics that exist."""
        return self._admin.cluster.look(names)

    def new_restore_consumer(self) -> AssignedConsumer:
        return AssignedConsumer(self._config.restore_consumer_settings(self._name))

    def renew_producer(self, within_ms: int | None = None, *, isolation: BatchIsolation | None = None) -> Steps[None]:
        """Replace the producer, if it has no transactions. With transactions, a new producer might fence a later
        attempt that has committed in the meantime. So the range ends, and the next range begins with a new producer.
        """
        if self.producer.transactional:
            self.spent = True
            return
        old, settings = self.producer, self._config.producer_settings(self._name, None)
        self.producer = OutputProducer(settings, self.context.clock, admin=self._admin, isolation=isolation)
        self._closing.callback(self.producer.close)
        yield from old.closing()

    def close(self) -> None:
        """Close all clients and the state. An open transaction is aborted."""
        self._closing.close()


def _consumer(settings: Mapping[str, Any], work: TaskRange, history: str | None) -> BoundedConsumer:
    if history is None:
        return BoundedConsumer(settings, work.ends)
    from milestones.pipeline.backfill.consumer import ArchiveConsumer

    return ArchiveConsumer(settings, work.ends, history)


class AnsweringHousekeeper(Mailbox[Request]):
    """Answers immediately in the calling thread, with that thread's admin client. Purges are left to the driver."""

    def __init__(self, name: str, admin: OwnAdmin) -> None:
        super().__init__(1, f"{name} requests")
        self._admin = admin

    def put(self, item: Request, timeout_ms: int, *, first: bool = False) -> None:
        if isinstance(item, AskBounds):
            item.reply_to.try_put(bounds_of(self._admin.cluster, item))

    def try_put(self, item: Request) -> bool:
        if not isinstance(item, AdminCall):
            return False
        self._admin.take(item)
        return True


class RestoreCounter(StateRestoreListener):
    """Counts what was restored."""

    def __init__(self) -> None:
        self.records: int = 0

    def on_batch_restored(
        self, partition: TopicPartition, store: str, batch_end_offset: int, num_restored: int
    ) -> None:
        self.records += num_restored


def _told(restored: RestoreCounter) -> Listeners:
    listeners = Listeners()
    listeners.restore = restored
    return listeners


def transactional_id(application_id: str, task: TaskId) -> str:
    """Return the transactional id of a task on Spark. A later attempt fences an earlier one by this id, wherever they
    run.
    """
    return f"{application_id}-spark-{task}"


def state_folder(config: StreamsConfig, task: TaskId) -> Path:
    """Return the task's own state directory. Each task needs its own, because several processes run tasks at the same
    time.
    """
    return spark_task_folder(config.state_dir, config.application_id, task)


def stores_without_changelog(subtopology: SubTopology) -> list[StoreSpec]:
    """Return the stores without a changelog, whose state is only on a disk or in memory."""
    return [spec for spec in subtopology.stores if spec.name not in subtopology.changelogs]


def _open_state(
    config: StreamsConfig, application: Application, task: TaskId, clock: Clock, closing: ExitStack
) -> LocalStateManager:
    """Open the task's state directory. Raises a `StateLockedError` if another attempt uses the directory and a store
    has no changelog.
    """
    folder = state_folder(config, task)
    only_here = stores_without_changelog(application.subtopology(task.subtopology))
    try:
        directory = _locked(folder, config.application_id, clock)
    except StateLockedError as error:
        if only_here:
            names = ", ".join(spec.name for spec in only_here)
            raise StateLockedError(
                f"task {task}: another attempt at it still has its state, and the stores {names} have no changelog to "
                f"restore them from elsewhere; this attempt is made again ({error})"
            ) from error
        attempts = spark_attempts_folder(config.state_dir, config.application_id)
        make_directory(attempts)
        _sweep(attempts, config.application_id)
        scratch = tempfile.mkdtemp(prefix=f"{task}-", dir=attempts)
        closing.callback(_remove, Path(scratch))
        log.warning("task %s: an earlier attempt still has its state (%s); this one restores anew", task, error)
        directory = StateDirectory(scratch, config.application_id, clock)
    closing.callback(directory.close)
    return LocalStateManager(directory, open_engines(config.rocksdb_engine, rocks_settings(config)), SPARK)


def _remove(scratch: Path) -> None:
    """Remove a temporary directory. Its parent folder is removed with the last one, because it lies among the folders
    of applications.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    with suppress(OSError):
        scratch.parent.rmdir()


def _sweep(attempts: Path, application_id: str) -> None:
    """Remove the directories that killed attempts have left behind."""
    for left in attempts.iterdir():
        with suppress(StateError):
            StateDirectory(left, application_id).close()  # raises if a process has it
            shutil.rmtree(left, ignore_errors=True)


def _locked(folder: Path, application_id: str, clock: Clock) -> StateDirectory:
    until_ms = clock.monotonic_ms() + LOCK_PATIENCE_MS
    while True:
        try:
            return StateDirectory(folder, application_id, clock)
        except StateLockedError:
            if clock.monotonic_ms() >= until_ms:
                raise
        clock.sleep_ms(50)
