"""The table of config keys. Names, types, ranges and defaults are those of Kafka Streams. Names are in snake case.

*Guarantees*: each key has one row. Its default is written only in this row.
*Assumes*: durations are in milliseconds, sizes in bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from milestones.common.config.handlers import LOG_AND_CONTINUE, LOG_AND_FAIL, RETRY_OR_FAIL, built_in
from milestones.common.config.key import REQUIRED, ConfigKey, Derived
from milestones.common.config.thread_keys import ThreadKeys
from milestones.common.config.value_types import (
    BOOLEAN,
    ENCRYPTION_KEYS,
    EXTRACTOR,
    EXTRACTORS,
    NAMES,
    OPTIMIZATION,
    OPTIONS,
    PAIRS,
    PATH,
    RESET,
    SERDE,
    SERVERS,
    STAGE,
    TEXT,
    WRAPPER,
    choice,
    handler,
    integer,
    legal_name,
    optional,
)
from milestones.common.config.watch_keys import WatchKeys
from milestones.common.errors import ConfigError
from milestones.common.state.spec import DEFAULT_FORMAT, HEADERS_FORMAT
from milestones.common.windowed import AFTER_GRACE, AT_ONCE

SHUTDOWN_CLIENT, END_TASK, REPLACE = "shutdown_client", "end_task", "replace"
"""The values of `task_failed`: what happens to a task whose error can't be retried."""
AT_LEAST_ONCE, EXACTLY_ONCE_V2 = "at_least_once", "exactly_once_v2"
OLDER_PROTOCOLS = ("v1",)
"""The versions of the group protocol that are older than the newest one."""
TASK_ASSIGNORS = ("high_availability", "sticky")
MIB = 1024 * 1024


def _commit_interval(values: Mapping[str, Any]) -> int:
    return 100 if values["processing_guarantee"] == EXACTLY_ONCE_V2 else 30_000


def _state_dir(_: Mapping[str, Any]) -> str:
    try:
        return str(Path(tempfile.gettempdir()) / "milestones")
    except FileNotFoundError as error:
        reason = f"its default lies in the directory for temporary files, and none can be used ({error}); set state_dir"
        raise ConfigError("state_dir", None, reason) from error


class ApplicationKeys:
    """The keys of the application and of its processing."""

    _values: Mapping[str, Any]

    application_id: Final = ConfigKey(
        legal_name("an application id"), REQUIRED, "high",
        doc="Names the application: its consumer group, the prefix of its internal topics, its state directory. "
        "Instances with the same id share the work.",
    )
    bootstrap_servers: Final = ConfigKey(
        SERVERS, "localhost:9092", "high",
        doc="Brokers to ask for the rest of the cluster. As a list, or as text with commas. Don't write it into the "
        "code: set it in a file or with `MILESTONES_BOOTSTRAP_SERVERS` for each place where the application runs.",
    )
    milestones: Final = ConfigKey(
        STAGE, frozenset({"baseline"}), "high",
        doc="The runtime that executes the topology: a stage (`m3` includes all stages before it) or single flags. "
        "`milestones stages` lists the stages of this version.",
    )
    processing_guarantee: Final = ConfigKey(
        choice(
            AT_LEAST_ONCE,
            EXACTLY_ONCE_V2,
            hints={
                "exactly_once": "exactly_once was removed from Kafka Streams: use exactly_once_v2",
                "exactly_once_beta": "exactly_once_beta is called exactly_once_v2 today",
            },
        ), AT_LEAST_ONCE, "medium",
        doc="What a failure may do to results. Under `at_least_once` some results may be repeated. Under "
        "`exactly_once_v2` no result is lost or repeated: outputs, state and input offsets are committed in one Kafka "
        "transaction.",
    )
    num_stream_threads: Final = ConfigKey(
        integer(at_least=1), 1, "medium",
        doc="Number of stream threads of this instance, up to m3. Each one has its own clients and its share of the "
        "tasks. From m4 on this is only the default of `num_processing_threads`.",
    )
    client_id: Final = ConfigKey(
        optional(legal_name("a client id")), Derived(lambda _: None, "`<application_id>-<process id>`"), "medium",
        doc="Prefix of the names of threads and clients, as brokers and metrics show them.",
    )
    commit_interval_ms: Final = ConfigKey(
        integer(at_least=0), Derived(_commit_interval, "30000, or 100 under `exactly_once_v2`"), "low",
        doc="Time between two commits. Under `exactly_once_v2` other programs see outputs after their commit.",
    )
    poll_ms: Final = ConfigKey(
        integer(at_least=0), 100, "low",
        doc="The longest wait for input of a thread that has nothing else to do.",
    )
    max_poll_records: Final = ConfigKey(
        integer(at_least=1, at_most=1_000_000), 1000, "low",
        doc="Records taken from the client in one call. Kafka Streams has it as `consumer.max.poll.records`.",
    )
    max_task_idle_ms: Final = ConfigKey(
        integer(at_least=-1), 0, "medium",
        doc="How long a task with several input partitions waits for new records of an empty partition, so that it "
        "processes records in timestamp order. 0: it waits only until all records that brokers have already were "
        "fetched. -1: it never waits.",
    )
    task_timeout_ms: Final = ConfigKey(
        integer(at_least=0), 300_000, "medium",
        doc="How long calls to Kafka are repeated after passing errors, before the task fails.",
    )
    task_failed: Final = ConfigKey(
        choice(SHUTDOWN_CLIENT, END_TASK, REPLACE), SHUTDOWN_CLIENT, "high",
        doc="What happens to a task that has failed and isn't retried any more. `shutdown_client`: the instance ends, "
        "with an exit code. `end_task`: the task ends, so its partitions aren't processed any more; other tasks go on. "
        "`replace`: the task is closed and opened once more, after a pause. If an uncaught exception handler is set in "
        "code, it decides instead. See `docs/operations.md`.",
    )
    auto_offset_reset: Final = ConfigKey(
        RESET, "earliest", "medium",
        doc="Where to begin on an input partition that has no committed offset, or whose committed offset no longer "
        "exists. `none` is an error. `by_duration:PT1H`, or a `timedelta`, begins with the first record that is at "
        "most an hour old (KIP-1106), or at the end if there is no such record. A source may have a value of its own. "
        "Kafka Streams calls the key `consumer.auto.offset.reset`.",
    )
    default_key_serde: Final = ConfigKey(
        optional(SERDE), None, "medium",
        doc="Serde of keys for operators to which the topology gives no key serde.",
    )
    default_value_serde: Final = ConfigKey(
        optional(SERDE), None, "medium",
        doc="Serde of values for operators to which the topology gives no value serde.",
    )
    default_timestamp_extractor: Final = ConfigKey(
        optional(EXTRACTOR), Derived(lambda _: None, f"`{EXTRACTORS[0]}`"), "medium",
        doc="Chooses the time of a record, for sources without an extractor of their own. The built-in extractors take "
        "the record's timestamp, and differ in what they do if it is negative. If the key isn't set, the record's key "
        "and value needn't be read to find the time.",
    )
    processor_wrapper: Final = ConfigKey(
        optional(WRAPPER), None, "low",
        doc="A `ProcessorWrapper`, or its class. It is called for each processor of the topology, and may wrap the "
        "processor into code of its own (KIP-1112).",
    )
    deserialization_exception_handler: Final = ConfigKey(
        handler("a deserialization exception handler", LOG_AND_FAIL, LOG_AND_CONTINUE),
        LOG_AND_FAIL, "medium", settle=built_in,
        doc="What happens to an input record whose key or value can't be read. A callable takes `(context, error)` "
        "and returns a `milestones.Response`.",
    )
    processing_exception_handler: Final = ConfigKey(
        handler("a processing exception handler", LOG_AND_FAIL, LOG_AND_CONTINUE),
        LOG_AND_FAIL, "medium", settle=built_in,
        doc="What happens to a record for which the user's code raised an error. The record's outputs and store writes "
        "are dropped in every case.",
    )
    production_exception_handler: Final = ConfigKey(
        handler("a production exception handler", RETRY_OR_FAIL, LOG_AND_FAIL, LOG_AND_CONTINUE),
        RETRY_OR_FAIL, "medium", settle=built_in,
        doc="What happens to an output that can't be serialised, that the client refuses (because it is larger than "
        "`producer_message_max_bytes`), or that the broker refuses. Under `exactly_once_v2` without "
        "`fencing_tolerance`, an output that the broker refuses ends the application, and the handler isn't asked. "
        "With `fencing_tolerance` the handler decides about each such output.",
    )
    topology_optimization: Final = ConfigKey(
        optional(OPTIMIZATION), None, "medium",
        doc="Optimisations of topologies that a `StreamsBuilder` makes: `reuse.ktable.source.topics` (the topic of a "
        "table serves as its changelog), `merge.repartition.topics`, `single.store.self.join`; or `all`, or `none`. If "
        "the key isn't set, the argument of `build` decides; its default is no optimisation. An optimisation changes "
        "stores and internal topics: read `docs/optimization.md` before you switch it for an application that has run.",
    )
    ensure_explicit_internal_resource_naming: Final = ConfigKey(
        BOOLEAN, False, "high",
        doc="Refuse a topology in which a store, a changelog or a repartition topic has a generated name (KIP-1111). "
        "Such a name contains a number. If a later version of the program adds an operator, the number changes, and "
        "the data under the old name isn't found.",
    )
    dsl_store_format: Final = ConfigKey(
        choice(DEFAULT_FORMAT, HEADERS_FORMAT), DEFAULT_FORMAT, "low",
        doc="The format of the rows in persistent stores of DSL operators. The default format has a value and its "
        "time. `headers` has record headers, too (KIP-1271, Kafka Streams 4.3). As in Kafka Streams, DSL operators "
        "write rows without headers; a processor that uses such a store may write headers. Read `docs/stores.md` "
        "before you switch it for an application that has run.",
    )
    stream_join_unmatched: Final = ConfigKey(
        choice(AFTER_GRACE, AT_ONCE), AFTER_GRACE, "low",
        doc="When a left or an outer join of two streams sends a record that comes after the end of its window and has "
        "no partner. `after_grace`: when the grace period is over. Then no partner can come any more, so a record "
        "never gets a result without a partner and later a result with one. `at_once`: immediately, as in Kafka "
        "Streams. The record is joined with partners that come later, too. See `docs/stream-joins.md`.",
    )
    errors_dead_letter_queue_topic_name: Final = ConfigKey(
        optional(legal_name("a topic name")), None, "medium",
        doc="Topic to which `log_and_continue` writes the bytes of each record that it skips, with headers that "
        "describe the error (KIP-1034). The topic must exist. A handler that fails writes no dead letter: its record "
        "isn't skipped, and is processed at the next start.",
    )


class StateKeys:
    """The keys of state: its place on the disk, its memory, standbys and snapshots."""

    _values: Mapping[str, Any]

    state_dir: Final = ConfigKey(
        PATH, Derived(_state_dir, "`milestones` in the system's directory for temporary files"), "high",
        doc="Directory of local state. Each application has a directory of its own in it. Put it on a disk that "
        "survives a restart, because lost state must be restored from the changelogs.",
    )
    state_cleanup_delay_ms: Final = ConfigKey(
        integer(at_least=0), 600_000, "low",
        doc="How long the state of a task is kept on the disk after the task has moved to another instance, in case it "
        "comes back. From m6 on this also holds for a store that the topology no longer has, if the store has a "
        "changelog. Only the time counts in which an instance uses the directory, over several runs; changes of the "
        "system clock don't matter. State is removed only while the client is RUNNING. If a removal fails, the log "
        "gets a warning, and the removal is tried once more after a tenth of the delay.",
    )
    state_sync_interval_ms: Final = ConfigKey(
        integer(at_least=1), 1_000, "low", stage="m6",
        doc="Time between two syncs of written state to the disk. After a power failure the commits since the last "
        "sync are restored from the changelogs, and also the commits that waited for `state_write_interval_ms`. A "
        "database with a store that has no changelog is synced at each commit.",
    )
    state_full: Final = ConfigKey(
        choice("wait", "stop"), "wait", "medium", stage="m6",
        doc="What happens when the disk with a sub-topology's state is full. `wait`: the tasks of this sub-topology "
        "wait for room, other tasks go on. `stop`: the client ends, with exit code 4. The same holds for a disk "
        "that is full at the start.",
    )
    unlogged_state: Final = ConfigKey(
        choice("accept", "refuse"), "accept", "medium", stage="m6",
        doc="What happens if a persistent store without a changelog doesn't have the data of the task's last commit. "
        "This can be so after a crash between the commit in Kafka and the write to the disk, after a power failure, or "
        "if the task ran on another instance. `accept`: the log gets a warning, and the task begins. `refuse`: the "
        "task doesn't begin.",
    )
    statestore_cache_max_bytes: Final = ConfigKey(
        integer(at_least=0), 0, "medium",
        doc="Memory for caches in front of stores, shared by all tasks of this instance. With 0 every update is "
        "emitted. Above 0, up to m4, an aggregation emits only the last update of a key per commit. From m5 on the key "
        "has no effect on outputs. Kafka Streams' default is 10 MiB.",
    )
    statestore_read_cache_max_bytes: Final = ConfigKey(
        integer(at_least=0), 64 * MIB, "low",
        doc="Memory for decoded values that stores keep, so that they needn't read and decode them a second time. All "
        "stores of this instance have equal parts of it. The least recently used values are dropped first. 0: no "
        "values are kept.",
    )
    statestore_uncommitted_max_bytes: Final = ConfigKey(
        integer(at_least=-1), 64 * MIB, "medium",
        doc="Limit for the memory of state that was written since the last commit. When the limit is reached, from m5 "
        "on when half of it is reached, an early commit begins (KIP-892). While commits fail, no records are processed "
        "beyond the limit. -1: no limit.",
    )
    state_write_interval_ms: Final = ConfigKey(
        integer(at_least=0), 5_000, "low",
        doc="How long the writes of confirmed commits wait in memory, so that they can be written to the stores on "
        "disk together with those of later commits, each key once. After a crash these writes are restored from the "
        "changelogs. This holds only for tasks whose persistent stores are all key-value, window or session stores "
        "with changelogs. 0: each commit is written immediately.",
    )
    statestore_waiting_max_bytes: Final = ConfigKey(
        integer(at_least=0), 32 * MIB, "low",
        doc="Memory for writes that wait for `state_write_interval_ms`, shared by all tasks of this instance. When a "
        "commit would exceed it, this commit and those before it are written immediately.",
    )
    buffered_records_per_partition: Final = ConfigKey(
        integer(at_least=1), 5000, "low",
        doc="If fewer records of a partition than this wait in a task's input buffer, a paused partition is resumed. "
        "The partition is paused at twice this number. Kafka Streams' default is 1000.",
    )
    input_buffer_max_bytes: Final = ConfigKey(
        integer(at_least=1), 512 * MIB, "medium",
        doc="Limit for the bytes of keys and values in the input buffers of all tasks of this instance (KIP-770).",
    )
    windowstore_changelog_additional_retention_ms: Final = ConfigKey(
        integer(at_least=0), 86_400_000, "low",
        doc="How much longer than its store the changelog of a window or session store keeps records. The time is the "
        "stream time of the store: the instance deletes the records, brokers don't delete them by their clock. Set it "
        "to at least the time by which a record may be older than the end of the session, or the start of the window, "
        "that it changes.",
    )
    rocksdb_engine: Final = ConfigKey(
        choice("rocksdict", "rocksdb"), "rocksdict", "low",
        doc="Python binding of RocksDB: `rocksdict`, or `rocksdb` (extra `milestones[rocksdb]`). With `state_manager` "
        "`rocksdict` compresses the write-ahead log, which `rocksdb` can't read and refuses.",
    )
    rocksdb_block_cache_bytes: Final = ConfigKey(
        integer(at_least=0), 50 * MIB, "low",
        doc="Size of RocksDB's cache of blocks, indexes and filters. All persistent stores share one cache. Kafka "
        "Streams has one of this size per store.",
    )
    rocksdb_write_buffer_bytes: Final = ConfigKey(
        integer(at_least=64 * 1024), 16 * MIB, "low",
        doc="Size of one memtable of a persistent store. From m6 on all tasks of an instance share a store's memtable, "
        "which is up to four times as large.",
    )
    rocksdb_max_write_buffers: Final = ConfigKey(
        integer(at_least=2), 3, "low",
        doc="Largest number of memtables of a persistent store, including the one that is being written.",
    )
    restore_active_weight: Final = ConfigKey(
        integer(at_least=1), 4, "low", stage="m1",
        doc="While active tasks have much to restore, the state updater (from m1 on) takes this number of their "
        "records for each record of a standby.",
    )
    snapshot_url: Final = ConfigKey(
        optional(TEXT), None, "medium",
        doc="URL of snapshots of stores, which instances (from m6 on) and `milestones spark snapshot` write: "
        "`file:///mnt/snapshots`, "
        "`s3://bucket/snapshots`, `gs://...`, `abfss://...`, or, for reading only, `https://...` (extra "
        "`milestones[snapshots]`). An empty store begins with the newest snapshot, and reads the rest from its "
        "changelog. If there is no usable snapshot, everything is read from the changelog.",
    )
    snapshot_options: Final = ConfigKey(
        OPTIONS, dict[str, str](), "medium",
        doc="Options of the object store at `snapshot_url`, with obstore's names: credentials (`aws_access_key_id`, "
        "`aws_secret_access_key`), `aws_region`, `aws_endpoint`, encryption by the object store "
        "(`aws_server_side_encryption`), `allow_http`, `proxy_url`. They override those in the environment, such as "
        "`AWS_ACCESS_KEY_ID`. They are never printed.",
    )
    snapshot_encryption_key: Final = ConfigKey(
        optional(ENCRYPTION_KEYS), None, "medium",
        doc="Key with which files of snapshots are encrypted before they are uploaded (AES-256-GCM). Write an id of "
        "your choice, a colon, and 32 random bytes in base64 (`openssl rand -base64 32`). More pairs may follow after "
        "commas: these are older keys, which are used for reading only. The key is never printed. Files on the local "
        "disk aren't encrypted: use an encrypted disk.",
    )
    snapshot_interval_ms: Final = ConfigKey(
        integer(at_least=1_000), 600_000, "medium", stage="m6",
        doc="How often a running instance makes snapshots of its stores, if `snapshot_url` is set and can be written. "
        "A snapshot is made sooner when a changelog has grown by a tenth of its store. With `num_standby_replicas` the "
        "standbys make snapshots. Then an active task makes one only if no standby has made one for two intervals.",
    )
    snapshot_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 30_000, "low",
        doc="If `snapshot_url` sends no data for this time, the changelog is read instead. The same happens if a "
        "download takes this much longer than one second for each 4 MiB.",
    )
    num_standby_replicas: Final = ConfigKey(
        integer(at_least=0), 0, "high",
        doc="Number of standbys: copies of each stateful task's state on other instances.",
    )
    max_warmup_replicas: Final = ConfigKey(
        integer(at_least=1), 2, "medium",
        doc="Largest number of warm-ups at a time. A warm-up restores the state of a task on the instance that will "
        "get the task.",
    )
    acceptable_recovery_lag: Final = ConfigKey(
        integer(at_least=0), 10_000, "medium",
        doc="A copy of a task's state counts as caught up if it lags at most this number of changelog records.",
    )
    task_assignor: Final = ConfigKey(
        handler("a task assignor", *TASK_ASSIGNORS, called="Assignor"), TASK_ASSIGNORS[0], "medium",
        doc="The assignor, which assigns tasks to members. `high_availability` moves a stateful task only after its "
        "new owner has restored the state. `sticky` moves it immediately. A callable takes `(members, plan, rules)` "
        "and returns a `milestones.assignment.Placement` (KIP-924). The group uses the assignor of its leader.",
    )
    client_tags: Final = ConfigKey(
        PAIRS, dict[str, str](), "low",
        doc="Tags that describe where this instance runs, such as `{zone = 'a'}`. At most 5 tags, with names of up to "
        "20 and values of up to 30 characters.",
    )
    rack_aware_assignment_tags: Final = ConfigKey(
        NAMES, (), "medium",
        doc="Names of tags in `client_tags`. The standbys of a task are placed on instances with different values of "
        "these tags.",
    )


class KafkaKeys:
    """The keys of the group, of transactions and of internal topics."""

    _values: Mapping[str, Any]

    replication_factor: Final = ConfigKey(
        integer(at_least=-1), -1, "medium",
        doc="Replicas of internal topics. -1: the brokers' default.",
    )
    repartition_purge_interval_ms: Final = ConfigKey(
        integer(at_least=0), 30_000, "low",
        doc="Time between two deletions of records that are no longer needed: processed records of repartition topics, "
        "and expired records of window changelogs.",
    )
    group_instance_id: Final = ConfigKey(
        optional(legal_name("a group instance id")), None, "medium",
        doc="Makes the members of this instance static: if the instance restarts within `session_timeout_ms`, it keeps "
        "its tasks. Each instance needs an id of its own. Each thread adds its number to the id, and a run on Spark "
        "adds `spark`.",
    )
    upgrade_from: Final = ConfigKey(
        optional(choice(*OLDER_PROTOCOLS)), None, "low",
        doc="Offer only this older version of the group protocol. If the key isn't set, an instance offers all "
        "versions that it knows, and the group uses the newest version that all members know. So an upgrade needs no "
        "setting. Before you return to a release that doesn't know the newest version, restart the instances one by "
        "one with this key.",
    )
    close_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 25_000, "medium",
        doc="How long an instance that ends waits for your functions and for Kafka. After that the log names the "
        "functions that hang, and the process ends with exit code 1. No data is lost: uncommitted records are "
        "processed once more. Choose less than the time after which a container or service manager kills the process, "
        "often 30 s.",
    )
    request_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 40_000, "low",
        doc="How long one call to Kafka may take. After that it counts as failed and is repeated (see "
        "`task_timeout_ms`).",
    )
    session_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 45_000, "medium",
        doc="If a member sends no heartbeat for this time, the group removes it. The broker limits the value (6 s to "
        "30 min by default). With less than 10 s the group may remove a live member during a long call that keeps "
        "Python's lock.",
    )
    heartbeat_interval_ms: Final = ConfigKey(
        integer(at_least=1), 1_000, "low",
        doc="Time between two heartbeats. Choose a third of `session_timeout_ms` or less. When a member leaves, its "
        "tasks may wait this long, until the other members know of it. Kafka Streams' default is 3000.",
    )
    max_poll_interval_ms: Final = ConfigKey(
        integer(at_least=1), 300_000, "medium",
        doc="If a thread doesn't return to its loop for this time, its member leaves the group. A rebalance also waits "
        "at most this time for its members.",
    )
    transaction_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 10_000, "medium",
        doc="The broker aborts a transaction that is open for longer than this. The runtime commits a transaction "
        "before half of this time is over. Only under `exactly_once_v2`.",
    )


class Keys(ApplicationKeys, ThreadKeys, StateKeys, KafkaKeys, WatchKeys):
    """All keys, as typed attributes of a config."""

    _values: Mapping[str, Any]


KEYS: Mapping[str, ConfigKey[Any]] = {
    name: key
    for group in (ApplicationKeys, ThreadKeys, StateKeys, KafkaKeys, WatchKeys)
    for name, key in vars(group).items()
    if isinstance(key, ConfigKey)
}
