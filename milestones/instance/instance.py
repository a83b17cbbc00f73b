"""`Instance`: the state directory, the identity and the transactional ids of one instance.

*Guarantees*: one live instance per state directory and application; ids that an earlier stage or thread count of this
state directory used are retired before a thread joins the group (`InstanceIds`).
*Assumes*: closed after every stream thread has ended.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from milestones.common.config.handlers import unused_dead_letters
from milestones.common.errors import SourceTopicError
from milestones.common.kafka.login import Login, log_in
from milestones.common.kafka.membership.metadata import verify_group_metadata_format
from milestones.common.kafka.topics import Cluster
from milestones.common.memory import Account, MemoryBudget
from milestones.common.records import TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.rocks import RocksSettings
from milestones.common.state.global_stores import GlobalStores
from milestones.instance.context import Decide, ThreadContext, ThreadEvent
from milestones.instance.global_watch import uncompacted
from milestones.instance.ids import InstanceIds
from milestones.instance.lost_topics import SECOND_LOOK_MS, refuse_deleted
from milestones.instance.memory_metrics import resident_bytes
from milestones.instance.snapshot_fetcher import snapshot_source
from milestones.instance.topic_ids import refuse_skipped

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.metrics import Metrics
    from milestones.common.state.engine import EngineMemory, Engines
    from milestones.common.state.storage import StateManager
    from milestones.instance.admin_thread import Requests
    from milestones.instance.application import Application
    from milestones.instance.identity import ThreadIdentity
    from milestones.instance.listeners import Listeners
    from milestones.instance.thread_registry import ThreadRegistry

log: Final = logging.getLogger(__name__)

MANY_FILES = 1 << 20

COORDINATOR_MS = 60_000
"""How long a start waits for the group's coordinator, which a new cluster has to make first."""


class Instance:
    """An instance's identity and local state, shared by its threads. The state manager has a lock of its own."""

    stage: str

    def __init__(
        self,
        config: StreamsConfig,
        application: Application,
        stage: str,
        clock: Clock,
        state_manager: Callable[[StateDirectory, Engines, str, str | None, Mapping[int, int]], StateManager],
    ) -> None:
        """`state_manager`: the part of that name."""
        self._config, self._application, self._clock, self.stage = config, application, clock, stage
        allow_many_files()
        self.sources: frozenset[str] = frozenset()
        self.global_stores: GlobalStores = GlobalStores()
        self.global_partitions: frozenset[TopicPartition] = frozenset()
        self.memory: MemoryBudget = MemoryBudget(config)
        self.memory.own.say(Account.PROGRAM, resident_bytes())
        self._held = ExitStack()
        try:
            self._take(state_manager)
        except BaseException:
            self._held.close()
            raise

    def _take(self, state_manager: Callable[..., StateManager]) -> None:
        """Lock the state directory and open the state. `_held` releases each resource, and is set in the same
        statement.
        """
        config, enter = self._config, self._held.enter_context
        self._directory = enter(closing(StateDirectory(config.state_dir, config.application_id, self._clock)))
        self.process_id: str = self._directory.process_id
        self.client_id: str = config.client_id or f"{config.application_id}-{self.process_id}"
        self._ids = InstanceIds(config, self._directory, self.client_id, self._clock)
        settings = rocks_settings(config)
        engines = open_engines(config.rocksdb_engine, settings)
        self.memory.limit(Account.BLOCK_CACHE, settings.block_cache_bytes)
        fetcher = partial(snapshot_source, config, f"{self.client_id}-snapshots", self._directory.path, self._clock)
        self._snapshots = enter(closing(fetcher()))
        state = partial(state_manager, self._directory, engines, self.stage, config.group_instance_id)
        self.state: StateManager = enter(_Released(state(config.task_priorities)))
        self.memory.count(lambda: by_account(self.state.memory()))

    def prepare(self, numbers: Iterable[int]) -> None:
        """Check the client library, Kafka, the topology's source and output topics and each client's login, and retire
        obsolete ids. Sets `sources`, the source topics that exist, and `global_partitions`. `numbers`: the numbers of
        the first polling threads, whose ids aren't obsolete."""
        verify_group_metadata_format()
        settings, application = self._config.admin_settings(f"{self.client_id}-start"), self._application
        cluster = Cluster(settings, login=Login(settings))
        existing = cluster.partition_counts(None if application.source_patterns else application.named_topics)
        log_in(
            settings,
            self._config.consumer_settings(self.client_id),
            self._config.restore_consumer_settings(self.client_id),
            self._config.producer_settings(self.client_id),
        )
        if application.missing_topics(existing) is not None:
            forbidden = cluster.seen(application.named_topics - existing.keys()).forbidden
            raise SourceTopicError(application.missing_topics(existing, forbidden))
        self.sources = frozenset(application.external_topics(existing))
        self._compare_sources(cluster)
        self._compare_internal(cluster)
        self.global_partitions = application.global_partitions(existing)
        if self.global_partitions:
            self.memory.own.client_queues_max = self._config.global_queue_bytes(self.client_id)
        config = self._config
        for warning in (unused_dead_letters(config), application.fed_back(), application.passing_state(config)):
            if warning is not None:
                log.warning("%s", warning)
        self._warn_of_lost_rows(cluster)
        self._ids.retire_others(numbers)
        self._snapshots.start()

    def _compare_sources(self, cluster: Cluster) -> None:
        """Compare the ids of topics that aren't read from their first record with those at the last start. Raises a
        `SourceTopicError` if a topic was made anew since.
        """
        policies = {topic: self._application.offset_reset(topic) for topic in self.sources}
        begun_late = {t for t, policy in policies.items() if (policy or self._config.auto_offset_reset) != "earliest"}
        found = cluster.look(begun_late) if begun_late else {}
        ids = {topic: told.id for topic, told in found.items() if told.id is not None}
        known = self._directory.source_ids
        if any(known.get(topic, id) != id for topic, id in ids.items()):
            partitions = [TopicPartition(t, number) for t in ids for number in range(found[t].partitions)]
            refuse_skipped(found, known, cluster.committed(self._config.application_id, partitions).keys())
        self._directory.record_sources({**known, **ids} if ids else known)

    def _compare_internal(self, cluster: Cluster) -> None:
        """Compare the application's internal topics with those that its last commits and this state directory name.
        Raises a `SourceTopicError` if one was deleted since.
        """
        ids = refuse_deleted(
            self._application, self.sources, cluster.seen,
            lambda: cluster.all_committed(self._config.application_id, COORDINATOR_MS),
            self._directory.internal_ids, lambda: self._clock.sleep_ms(SECOND_LOOK_MS),
        )  # fmt: skip
        self._directory.record_internal(ids)

    def note_internal(self, ids: Mapping[str, str]) -> None:
        """Record the ids of the application's internal topics, for the next start."""
        self._directory.record_internal({**self._directory.internal_ids, **ids})

    def _warn_of_lost_rows(self, cluster: Cluster) -> None:
        """Log a warning about topics of global stores that aren't compacted, if the principal may read their settings.
        """
        try:
            warning = uncompacted(cluster.topic_settings(self._application.global_topics))
        except KafkaException as error:
            log.info("the settings of the topics of global stores can't be seen: %s", error)
            return
        if warning is not None:
            log.warning("%s", warning)

    def cleaner(self) -> Callable[[], bool]:
        """Return a function that removes the state of tasks that have left this instance."""
        return lambda: self.state.clean(self._directory.now_ms(), self._config.state_cleanup_delay_ms)

    def thread_context(
        self,
        identity: ThreadIdentity,
        metrics: Metrics,
        housekeeper: Requests,
        notify: Callable[[ThreadEvent], None],
        decide: Decide,
        thread_registry: ThreadRegistry,
        listeners: Listeners,
    ) -> ThreadContext:
        """Return the context of a polling thread. Records the thread's ids first, and gives the thread a share of the
        memory.
        """
        self._ids.record([identity.number])
        memory = self.memory.join()
        memory.client_queues_max = self._config.client_queue_bytes(identity.name)
        return ThreadContext(
            identity=identity,
            stage=self.stage,
            config=self._config,
            clock=self._clock,
            application=self._application,
            process_id=self.process_id,
            transactional_id=self._ids.transactional(identity.number),
            state=self.state,
            metrics=metrics,
            housekeeper=housekeeper,
            notify=notify,
            decide=decide,
            memory=memory,
            thread_registry=thread_registry,
            listeners=listeners,
            snapshots=self._snapshots,
            global_stores=self.global_stores,
        )

    def left_group(self, number: int) -> None:
        """Forget the static id of the thread with this number, because its member has left the group."""
        self._ids.forget_static(number)

    def close(self) -> None:
        """Release everything in reverse order, also if a release raises an error. Harmless when repeated."""
        self._held.close()


class _Released:
    """A context manager that releases the state at its end."""

    def __init__(self, state: StateManager) -> None:
        self._state = state

    def __enter__(self) -> StateManager:
        return self._state

    def __exit__(self, *_: object) -> None:
        self._state.release()


def allow_many_files() -> None:
    """Raise the soft limit of file descriptors to the hard limit. Each persistent store uses about seven, so that the
    usual 1,024 are enough for only a hundred and fifty stores.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, MANY_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def by_account(memory: EngineMemory) -> Mapping[Account, int]:
    """Return the accounts of the engines' memory."""
    return {
        Account.BLOCK_CACHE: memory.block_cache,
        Account.MEMTABLES: memory.memtables,
        Account.TABLE_READERS: memory.table_readers,
        Account.STORES_IN_MEMORY: memory.content,
        Account.CHANGED_KEYS: memory.changed_keys,
    }


def rocks_settings(config: StreamsConfig) -> RocksSettings:
    """Return the sizes of the engines' buffers and caches, from the config."""
    return RocksSettings(
        block_cache_bytes=config.rocksdb_block_cache_bytes,
        write_buffer_bytes=config.rocksdb_write_buffer_bytes,
        max_write_buffers=config.rocksdb_max_write_buffers,
    )
