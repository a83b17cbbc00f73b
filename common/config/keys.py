"""The table of config keys. Names, types, ranges and defaults are those of Kafka Streams. Names are in snake case.

*Guarantees*: each key has one row, and its default is written only here.
*Assumes*: durations are milliseconds, sizes bytes.
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
"""The actions of `task_failed`, for a task that fails for good."""
AT_LEAST_ONCE, EXACTLY_ONCE_V2 = "at_least_once", "exactly_once_v2"
OLDER_PROTOCOLS = ("v1",)
"""The group's protocols without the newest."""
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
    """The application, and how it processes."""

    _values: Mapping[str, Any]

    application_id: Final = ConfigKey(
        legal_name("an application id"), REQUIRED, "high",
        doc="Names the application: its consumer group, the prefix of its internal topics, its state directory. "
        "Instances with the same id share the work.",
    )
    bootstrap_servers: Final = ConfigKey(
        SERVERS, "localhost:9092", "high",
        doc="Brokers to ask for the rest of the cluster. As a list, or as text with commas. Leave it out of the code: "
        "a file or `MILESTONES_BOOTSTRAP_SERVERS` says it for each place where the application runs.",
    )
    milestones: Final = ConfigKey(
        STAGE, frozenset({"baseline"}), "high",
        doc="Which runtime executes the topology: a stage (`m3` means it and all before it) or single flags. "
        "`milestones stages` lists what this version has.",
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
        doc="What a failure may do to results: repeat some (`at_least_once`), or nothing at all "
        "(`exactly_once_v2`: outputs, state and input offsets are committed in one Kafka transaction).",
    )
    num_stream_threads: Final = ConfigKey(
        integer(at_least=1), 1, "medium",
        doc="Stream threads of this instance, up to m3. Each one has its own clients and its share of the tasks. From "
        "m4 on the default of `num_processing_threads`.",
    )
    client_id: Final = ConfigKey(
        optional(legal_name("a client id")), Derived(lambda _: None, "`<application_id>-<process id>`"), "medium",
        doc="Prefix of the names of threads and clients, as brokers and metrics show them.",
    )
    commit_interval_ms: Final = ConfigKey(
        integer(at_least=0), Derived(_commit_interval, "30000, or 100 under `exactly_once_v2`"), "low",
        doc="Time between two commits. Under `exactly_once_v2` outputs are visible from their commit on.",
    )
    poll_ms: Final = ConfigKey(
        integer(at_least=0), 100, "low",
        doc="The longest wait for input when there is nothing else to do.",
    )
    max_poll_records: Final = ConfigKey(
        integer(at_least=1, at_most=1_000_000), 1000, "low",
        doc="Records taken from the client in one call. Kafka Streams has it as `consumer.max.poll.records`.",
    )
    max_task_idle_ms: Final = ConfigKey(
        integer(at_least=-1), 0, "medium",
        doc="How long a task with several input partitions waits for new records on an empty one, so that it takes "
        "records in timestamp order. 0: only until what the brokers already have was fetched. -1: never waits.",
    )
    task_timeout_ms: Final = ConfigKey(
        integer(at_least=0), 300_000, "medium",
        doc="How long calls to Kafka are repeated after passing errors, before the task fails.",
    )
    task_failed: Final = ConfigKey(
        choice(SHUTDOWN_CLIENT, END_TASK, REPLACE), SHUTDOWN_CLIENT, "high",
        doc="What a task that has failed for good does, on every stage. `shutdown_client`: the instance ends, with an "
        "exit code. `end_task`: the task ends, its partitions stand still, the others go on. `replace`: the task is "
        "opened anew, after a pause. An uncaught exception handler that is set in code decides instead. See "
        "`docs/operations.md`.",
    )
    auto_offset_reset: Final = ConfigKey(
        RESET, "earliest", "medium",
        doc="Where to begin on an input partition that has no committed offset, or whose offset is gone. `none` "
        "fails; `by_duration:PT1H`, or a `timedelta`, begins with records that are an hour old (KIP-1106), at the end "
        "where there are none. A source may have its own. Kafka Streams has it as `consumer.auto.offset.reset`.",
    )
    default_key_serde: Final = ConfigKey(
        optional(SERDE), None, "medium",
        doc="Serde of keys wherever the topology names none.",
    )
    default_value_serde: Final = ConfigKey(
        optional(SERDE), None, "medium",
        doc="Serde of values wherever the topology names none.",
    )
    default_timestamp_extractor: Final = ConfigKey(
        optional(EXTRACTOR), Derived(lambda _: None, f"`{EXTRACTORS[0]}`"), "medium",
        doc="Where a record's time comes from, for sources that name no extractor: the record's own timestamp, and "
        "what to do when that is negative. Unset (None), the key and value needn't be read for it.",
    )
    processor_wrapper: Final = ConfigKey(
        optional(WRAPPER), None, "low",
        doc="A `ProcessorWrapper`, or its class: it is asked for each processor of the topology, and may put code of "
        "its own around it (KIP-1112).",
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
        doc="What happens to a record for which the user's code raised. Its partial effects are dropped either way.",
    )
    production_exception_handler: Final = ConfigKey(
        handler("a production exception handler", RETRY_OR_FAIL, LOG_AND_FAIL, LOG_AND_CONTINUE),
        RETRY_OR_FAIL, "medium", settle=built_in,
        doc="What happens to an output that can't be serialised, that the client refuses (it is larger than "
        "`producer_message_max_bytes`), or that the broker refuses, be it in a batch with others. Under "
        "`exactly_once_v2` anything that the broker refuses ends the application, whatever the handler says; but not "
        "with `fencing_tolerance`, which has the handler decide about each of them.",
    )
    topology_optimization: Final = ConfigKey(
        optional(OPTIMIZATION), None, "medium",
        doc="Optimisations of topologies that a `StreamsBuilder` makes: `reuse.ktable.source.topics` (the topic of a "
        "table serves as its changelog), `merge.repartition.topics`, `single.store.self.join`; `all`, or `none`. Unset "
        "(None), the topology is as `build` made it, by default without. It changes stores and internal topics: see "
        "`docs/optimization.md` before it is switched for an application that has run.",
    )
    ensure_explicit_internal_resource_naming: Final = ConfigKey(
        BOOLEAN, False, "high",
        doc="Refuse a topology in which a store, a changelog or a repartition topic has a generated name (KIP-1111): "
        "another operator before it would change the number in the name, and leave its data behind.",
    )
    dsl_store_format: Final = ConfigKey(
        choice(DEFAULT_FORMAT, HEADERS_FORMAT), DEFAULT_FORMAT, "low",
        doc="What the stores on the disk that operators of the DSL keep their rows in have beside values and their "
        "time: nothing, or the headers of a record, `headers` (KIP-1271, Kafka Streams 4.3). Operators give rows no "
        "headers, as in Kafka Streams; a processor that uses such a store may. See `docs/stores.md` before it is "
        "switched for an application that has run.",
    )
    stream_join_unmatched: Final = ConfigKey(
        choice(AFTER_GRACE, AT_ONCE), AFTER_GRACE, "low",
        doc="When a left or an outer join of two streams sends a record without a partner that comes when its window "
        "is over: `after_grace`, once the grace is over too, after which it finds no more partner, so that no record "
        "has both kinds of result; `at_once`, as Kafka Streams, which joins it again with each partner that comes "
        "later. See `docs/stream-joins.md`.",
    )
    errors_dead_letter_queue_topic_name: Final = ConfigKey(
        optional(legal_name("a topic name")), None, "medium",
        doc="Topic to which `log_and_continue` writes the bytes of a record that it skips, with headers that say what "
        "happened (KIP-1034). The topic must exist. A handler that fails writes nothing: the record isn't passed, and "
        "is met again at the next start.",
    )


class StateKeys:
    """State: its place on the disk, its memory, standbys and snapshots."""

    _values: Mapping[str, Any]

    state_dir: Final = ConfigKey(
        PATH, Derived(_state_dir, "`milestones` in the system's directory for temporary files"), "high",
        doc="Directory of local state; each application has its own below it. Put it on a disk that survives a "
        "restart: what is lost is restored from the changelogs.",
    )
    state_cleanup_delay_ms: Final = ConfigKey(
        integer(at_least=0), 600_000, "low",
        doc="How long the state of a task that moved away is kept, in case it comes back; from m6 on also that of a "
        "store that the topology doesn't have any more, if it has a changelog. Time for which an instance runs on the "
        "directory counts, over restarts; a clock that is set changes nothing. Nothing is removed while the client "
        "isn't RUNNING. A removal that fails is a warning, and made again a tenth of the delay later.",
    )
    state_sync_interval_ms: Final = ConfigKey(
        integer(at_least=1), 1_000, "low", stage="m6",
        doc="How often what was written is synced to the disk: the commits of this time, and those that waited "
        "(`state_write_interval_ms`), are replayed after a power failure. A database with a store that has no "
        "changelog is synced at each commit.",
    )
    state_full: Final = ConfigKey(
        choice("wait", "stop"), "wait", "medium", stage="m6",
        doc="When the disk of a sub-topology's state is full. `wait`: its tasks wait for room, no others. "
        "`stop`: the client ends, with exit code 4. So it is on a disk that is full at the start.",
    )
    unlogged_state: Final = ConfigKey(
        choice("accept", "refuse"), "accept", "medium", stage="m6",
        doc="A store on disk without changelog that isn't of the task's last commit, as Kafka's offsets say: after a "
        "crash between Kafka and the disk, a power failure, or a time on another instance. `accept`: a warning names "
        "it, and the task begins. `refuse`: the task doesn't begin.",
    )
    statestore_cache_max_bytes: Final = ConfigKey(
        integer(at_least=0), 0, "medium",
        doc="Memory for caches in front of stores, shared by all tasks of this instance. 0: every update is emitted; "
        "above, up to m4, an aggregation emits the last update per key and commit. From m5 on it changes no output. "
        "Kafka Streams' default is 10 MiB.",
    )
    statestore_read_cache_max_bytes: Final = ConfigKey(
        integer(at_least=0), 64 * MIB, "low",
        doc="Memory for values that stores keep so as not to read and decode them again, shared in equal parts by all "
        "stores of this instance; the least recently used go first. 0: none are kept.",
    )
    statestore_uncommitted_max_bytes: Final = ConfigKey(
        integer(at_least=-1), 64 * MIB, "medium",
        doc="State written since the last commit, in bytes of memory; reaching it (from m5 on half of it) asks for an "
        "early commit (KIP-892), and nothing is processed beyond it while commits fail. -1: no bound.",
    )
    state_write_interval_ms: Final = ConfigKey(
        integer(at_least=0), 5_000, "low",
        doc="How long what commits have confirmed waits in memory, to be written to the stores on disk with later "
        "commits, each key once: this much is replayed after a crash. Only of tasks whose stores on disk "
        "are key-value stores with changelogs. 0: each commit is written at once.",
    )
    statestore_waiting_max_bytes: Final = ConfigKey(
        integer(at_least=0), 32 * MIB, "low",
        doc="Memory for what `state_write_interval_ms` has wait, shared by all tasks of this instance: a commit with "
        "which there is more is written, with those before it.",
    )
    buffered_records_per_partition: Final = ConfigKey(
        integer(at_least=1), 5000, "low",
        doc="Records that wait in a task's input buffer, per partition, for which a partition that was paused is "
        "fetched again; at twice as many it pauses. Kafka Streams' default is 1000.",
    )
    input_buffer_max_bytes: Final = ConfigKey(
        integer(at_least=1), 512 * MIB, "medium",
        doc="Bytes of keys and values that wait in the input buffers of all tasks of this instance (KIP-770).",
    )
    windowstore_changelog_additional_retention_ms: Final = ConfigKey(
        integer(at_least=0), 86_400_000, "low",
        doc="How much longer than its store a changelog of windows or sessions keeps records, by the store's own time: "
        "the instance deletes them, no broker does by its clock. At least the time by which a record may be older than "
        "the end of the session, or the start of the window, that it changes.",
    )
    rocksdb_engine: Final = ConfigKey(
        choice("rocksdict", "rocksdb"), "rocksdict", "low",
        doc="Python binding of RocksDB: `rocksdict`, or `rocksdb` (extra `milestones[rocksdb]`). With `state_manager` "
        "`rocksdict` compresses the write-ahead log, which `rocksdb` can't read and refuses.",
    )
    rocksdb_block_cache_bytes: Final = ConfigKey(
        integer(at_least=0), 50 * MIB, "low",
        doc="RocksDB's cache of blocks, indexes and filters, one for all persistent stores (Kafka Streams has one of "
        "this size per store).",
    )
    rocksdb_write_buffer_bytes: Final = ConfigKey(
        integer(at_least=64 * 1024), 16 * MIB, "low",
        doc="Size of one memtable of a persistent store. From m6 on all tasks of an instance share a store's memtable, "
        "which is up to four times as large.",
    )
    rocksdb_max_write_buffers: Final = ConfigKey(
        integer(at_least=2), 3, "low",
        doc="Memtables of a persistent store, the one being written included.",
    )
    restore_active_weight: Final = ConfigKey(
        integer(at_least=1), 4, "low", stage="m1",
        doc="While active tasks have much to restore, the state updater (from m1 on) takes one record of standbys for "
        "so many of theirs.",
    )
    snapshot_url: Final = ConfigKey(
        optional(TEXT), None, "medium",
        doc="Where snapshots of stores lie, as instances (from m6 on) and `milestones spark snapshot` make them: "
        "`file:///mnt/snapshots`, "
        "`s3://bucket/snapshots`, `gs://...`, `abfss://...`, or, to read only, `https://...` (extra "
        "`milestones[snapshots]`). A store that is empty begins with the newest one, and reads the rest from its "
        "changelog. Where there is none, or it can't be used, all is read from the changelog.",
    )
    snapshot_options: Final = ConfigKey(
        OPTIONS, dict[str, str](), "medium",
        doc="Options of the store behind `snapshot_url`, by the names that obstore has for them, over those in the "
        "environment (`AWS_ACCESS_KEY_ID` and the like): credentials (`aws_access_key_id`, `aws_secret_access_key`), "
        "`aws_region`, `aws_endpoint`, encryption by the store (`aws_server_side_encryption`), `allow_http`, "
        "`proxy_url`. Never printed.",
    )
    snapshot_encryption_key: Final = ConfigKey(
        optional(ENCRYPTION_KEYS), None, "medium",
        doc="Encrypts the files of snapshots before they leave the machine (AES-256-GCM): an id of your choice, a "
        "colon, and 32 random bytes in base64 (`openssl rand -base64 32`). Further pairs, after commas, are older "
        "keys, with which files are only read. Never printed. The local disk is the system's to encrypt.",
    )
    snapshot_interval_ms: Final = ConfigKey(
        integer(at_least=1_000), 600_000, "medium", stage="m6",
        doc="How often a running instance makes snapshots of its stores at `snapshot_url`, if there is one that can be "
        "written to; sooner when a changelog has grown by a tenth of its store. With `num_standby_replicas` standbys "
        "make them, and an active task only when none has for two intervals.",
    )
    snapshot_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 30_000, "low",
        doc="When `snapshot_url` gives nothing for this time, the changelog is read instead; so it is when what "
        "comes takes as much longer than a second for each 4 MiB.",
    )
    num_standby_replicas: Final = ConfigKey(
        integer(at_least=0), 0, "high",
        doc="Copies of each stateful task's state that other instances keep warm.",
    )
    max_warmup_replicas: Final = ConfigKey(
        integer(at_least=1), 2, "medium",
        doc="Tasks that may warm up at once on instances that are to take them over.",
    )
    acceptable_recovery_lag: Final = ConfigKey(
        integer(at_least=0), 10_000, "medium",
        doc="Changelog records that an instance may lag behind and still count as caught up.",
    )
    task_assignor: Final = ConfigKey(
        handler("a task assignor", *TASK_ASSIGNORS, called="Assignor"), TASK_ASSIGNORS[0], "medium",
        doc="The assignor, which gives tasks to members: `high_availability` moves a stateful task only when its new "
        "owner has caught up, `sticky` at once. A callable takes `(members, plan, rules)` and returns a "
        "`milestones.assignment.Placement` (KIP-924). That of the group's leader counts.",
    )
    client_tags: Final = ConfigKey(
        PAIRS, dict[str, str](), "low",
        doc="Where this instance runs, such as `{zone = 'a'}`: at most 5 tags, names up to 20 and values up to 30 "
        "characters long.",
    )
    rack_aware_assignment_tags: Final = ConfigKey(
        NAMES, (), "medium",
        doc="Tags over whose values standbys are spread.",
    )


class KafkaKeys:
    """Group, transactions, internal topics, metrics."""

    _values: Mapping[str, Any]

    replication_factor: Final = ConfigKey(
        integer(at_least=-1), -1, "medium",
        doc="Replicas of internal topics. -1: the brokers' default.",
    )
    repartition_purge_interval_ms: Final = ConfigKey(
        integer(at_least=0), 30_000, "low",
        doc="Time between two deletions of records that were processed from repartition topics, and of what changelogs "
        "of windows no longer need.",
    )
    group_instance_id: Final = ConfigKey(
        optional(legal_name("a group instance id")), None, "medium",
        doc="Makes members static: an instance that returns within `session_timeout_ms` finds its tasks unmoved. "
        "Unique per instance; each thread adds its number, a run on Spark `spark`.",
    )
    upgrade_from: Final = ConfigKey(
        optional(choice(*OLDER_PROTOCOLS)), None, "low",
        doc="Speak this older version of the group protocol only. Unset, an instance offers all that it knows, and the "
        "group takes the newest that all of its members know: an upgrade needs no setting. To go back to a release "
        "that doesn't know the newest one, restart the instances one by one with this set, before.",
    )
    close_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 25_000, "medium",
        doc="How long the end of an instance waits for functions of yours, and for Kafka. What hangs then is named in "
        "the log, and the process ends, with exit code 1: nothing is lost, what wasn't committed is processed again. "
        "Keep it below what a container or service manager waits before it kills, often 30 s.",
    )
    request_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 40_000, "low",
        doc="How long one call to Kafka may take, before it counts as failed and is repeated (see `task_timeout_ms`).",
    )
    session_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 45_000, "medium",
        doc="A member silent for this time is dead to its group. The broker has bounds of its own (6 s to 30 min "
        "by default); below 10 s a long call that keeps Python's lock may end a live member.",
    )
    heartbeat_interval_ms: Final = ConfigKey(
        integer(at_least=1), 1_000, "low",
        doc="Time between two heartbeats; a third of `session_timeout_ms` or less is sound. It is also how long the "
        "tasks of a member that leaves may wait for the others to hear of it (in Kafka Streams 3000).",
    )
    max_poll_interval_ms: Final = ConfigKey(
        integer(at_least=1), 300_000, "medium",
        doc="A thread that doesn't come back to its loop for this time leaves the group; also the time a rebalance "
        "waits for its members.",
    )
    transaction_timeout_ms: Final = ConfigKey(
        integer(at_least=1), 10_000, "medium",
        doc="The broker aborts a transaction that is open for longer; it is committed before half of that. Only under "
        "`exactly_once_v2`.",
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
