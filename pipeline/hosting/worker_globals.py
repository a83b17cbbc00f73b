"""The global stores of a process that runs Spark tasks. The first task opens them, and each task reads the newest
records into them before it begins.

*Guarantees*: a task finds all records that were committed in the topics of global stores when the task began. The
stores don't change while a task runs. Each process has its own copy, in the first folder `global-<n>` that no other
process uses. A later process continues with the files in that folder.
*Assumes*: one Spark task at a time in a process, as PySpark's workers run them. If another application, or a changed
one, runs in the same process, it opens stores of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Final

from milestones.common.assignment.model import SPARK
from milestones.common.errors import StateCorruptError, StateLockedError
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.retry import RetryPolicy
from milestones.common.kafka.topics import Cluster
from milestones.common.mailbox import Mailbox
from milestones.common.records import GLOBAL
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.global_stores import GlobalStores
from milestones.common.state.spark_folders import spark_global_folder
from milestones.common.state.state_manager import LocalStateManager
from milestones.global_stores.follower import GlobalFollower
from milestones.global_stores.thread import global_task
from milestones.instance.instance import rocks_settings
from milestones.instance.listeners import Listeners
from milestones.instance.partition_offsets import AskBounds, Bounds, bounds_of

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.instance.application import Application

log: Final = logging.getLogger(__name__)


class WorkerGlobals:
    """*Owns*: the stores of one application in this process, and their directory. `stores`: where tasks read them."""

    def __init__(self, application: Application, config: StreamsConfig, clock: Clock) -> None:
        assert application.globals is not None  # the caller has checked that
        self.stores: GlobalStores = GlobalStores()
        self._application, self._globals, self._config, self._clock = application, application.globals, config, clock
        self._name = f"{application.id}-spark-global"
        self._follower: GlobalFollower | None = None
        with ExitStack() as closing:
            directory = self._free_directory()
            closing.callback(directory.close)
            engines = open_engines(config.rocksdb_engine, rocks_settings(config))
            self._state = LocalStateManager(directory, engines, SPARK)
            self._closing = closing.pop_all()

    def _free_directory(self) -> StateDirectory:
        config = self._config
        for number in count():
            folder = spark_global_folder(config.state_dir, config.application_id, number)
            try:
                return StateDirectory(folder, config.application_id, self._clock)
            except StateLockedError:
                continue
        raise AssertionError  # `count` never ends

    def catch_up(self, check: Callable[[], object]) -> None:
        """Read all records into the stores that are committed in their topics now. `check` is called from time to time,
        and can end the wait by raising an error. Raises `StateError`, Kafka's errors, and the `ProcessingError` of a
        record.
        """
        bounds = self._bounds()
        follower = self._follower
        if follower is None or not follower.fits(bounds):
            follower = self._begin(bounds)
        else:
            follower.aim(bounds)
        try:
            follower.read_to_the_ends(lambda: check() or True, self._config.task_timeout_ms)
        except StateCorruptError as error:
            self._give_up(error)
            raise
        finally:
            follower.stop_fetching()
        follower.task.show(self.stores)

    def _begin(self, bounds: Bounds) -> GlobalFollower:
        """Open the stores, or close and reopen them, and continue at their positions."""
        self._give_up(None)
        task = global_task(
            self._globals, frozenset(bounds.bounds), self._config, self._clock, self._state, self.stores
        )
        settings = self._config.global_consumer_settings(self._name)
        follower = GlobalFollower(task, lambda: AssignedConsumer(settings), Listeners(), self._clock)
        try:
            task.open()
            follower.begin(bounds)
        except BaseException:
            follower.close()
            raise
        self._follower = follower
        return follower

    def _bounds(self) -> Bounds:
        """Return the present first and last offsets of all partitions. The request is repeated for `task_timeout_ms` at
        most.
        """
        timeout_ms = self._config.task_timeout_ms
        return RetryPolicy(timeout_ms, self._clock).retry(self._ask_bounds, is_passing)

    def _ask_bounds(self) -> Bounds:
        cluster = Cluster(self._config.admin_settings(self._name))
        partitions = self._application.global_partitions(cluster.partition_counts(self._application.global_topics))
        unread: Mailbox[Bounds] = Mailbox(1)
        answer = bounds_of(cluster, AskBounds(GLOBAL, partitions, unread, committed=True, topic_ids=True))
        if answer.error is not None:
            raise answer.error
        return answer

    def _give_up(self, error: StateCorruptError | None) -> None:
        """Set damaged stores aside, if the error names some, and close the stores."""
        follower, self._follower = self._follower, None
        if follower is None:
            return
        for damaged in error.damaged if error is not None else ():
            if damaged.task == GLOBAL:
                follower.task.clear(damaged.store, error)
        follower.close()

    def close(self) -> None:
        """Close the stores, and unlock their directory."""
        with self._closing:
            damage = self.stores.damage
            self._give_up(damage)


_OPEN: dict[str, WorkerGlobals] = {}
"""The global stores of this process, for one application at most, keyed by a digest of the bytes from which the
application was unpacked."""


def worker_globals(
    made_of: bytes, application: Application, config: StreamsConfig, clock: Clock
) -> WorkerGlobals | None:
    """Return the global stores of this process for the application that was unpacked from these bytes, or None if it
    has none.
    """
    if application.globals is None:
        return None
    key = sha256(made_of).hexdigest()
    found = _OPEN.get(key)
    if found is not None and found.stores.damage is None:
        return found
    close_worker_globals()
    _OPEN[key] = WorkerGlobals(application, config, clock)
    return _OPEN[key]


def close_worker_globals() -> None:
    """Close the stores of this process."""
    while _OPEN:
        _, left = _OPEN.popitem()
        try:
            left.close()
        except Exception:
            log.exception("global stores didn't close cleanly")
