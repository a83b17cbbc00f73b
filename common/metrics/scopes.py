"""The table of metrics: one class per group, one row per sensor, with Kafka Streams' names.

A row `task_created = count(...)` of the group `stream-thread-metrics` is published as two metrics, `task-created-rate`
and `task-created-total`. `docs/metrics.md` lists all metrics.

*Guarantees*: a scope's sensors are plain attributes, so that recording costs one attribute access and one addition.
*Assumes*: a scope has one owner thread at a time, which records and publishes. When a task moves to another thread,
that thread becomes the owner of the task's scopes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar, overload

from milestones.common.metrics.sensors import Count, Gauge, Number, Sensor, Statistic, Text, Timing, Total, Value

S = TypeVar("S", bound=Sensor)
Level = Literal["INFO", "DEBUG"]
MS, NS = 1_000_000, 1
TURN = "timed per turn of the loop, so that the maximum is the mean of the slowest turn"


class SensorSpec(Generic[S]):
    """One sensor of a group: how it is made, its level, and its meaning. `own`: Kafka Streams has no metric of this
    name."""

    doc: str
    own: bool

    name: str

    def __init__(self, make: Callable[[int], S], doc: str, *, level: Level = "INFO", own: bool = False) -> None:
        self.make: Callable[[int], S] = make
        self.doc, self.level, self.own = doc, level, own

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> SensorSpec[S]: ...
    @overload
    def __get__(self, instance: Scope, owner: type) -> S: ...
    def __get__(self, instance: Scope | None, owner: type) -> SensorSpec[S] | S:
        # As there is no __set__, an instance's own attribute comes first. So this runs only on the class.
        return self


def count(doc: str, *, hourly: bool = False, level: Level = "INFO", own: bool = False) -> SensorSpec[Count]:
    return SensorSpec(lambda now_ms: Count(now_ms, hourly=hourly), doc, level=level, own=own)


def total(doc: str, *, own: bool = False) -> SensorSpec[Total]:
    return SensorSpec(Total, doc, own=own)


def value(doc: str, *, level: Level = "INFO", own: bool = False) -> SensorSpec[Value]:
    return SensorSpec(Value, doc, level=level, own=own)


def gauge(doc: str, *, own: bool = False) -> SensorSpec[Gauge]:
    return SensorSpec(Gauge, doc, own=own)


def text(doc: str, *, own: bool = False) -> SensorSpec[Text]:
    return SensorSpec(Text, doc, own=own)


def timing(
    doc: str, *, unit_ns: int = MS, ratio: bool = False, hourly: bool = False, own: bool = False
) -> SensorSpec[Timing]:
    unit = "ms" if unit_ns == MS else "ns"

    def make(now_ms: int) -> Timing:
        return Timing(now_ms, unit_ns=unit_ns, ratio=ratio, hourly=hourly)

    return SensorSpec(make, f"{doc}; latencies in {unit}", own=own)


class Published(NamedTuple):
    """The last publication of a scope. A publication never changes."""

    at_ms: int
    values: Mapping[str, Number | str]


class Scope:
    """All metrics of one group about one thread, task or other thing, which `tags` name.

    *Concurrency*: only the owner uses the sensors. The owner replaces `published` as a whole, and any thread may read
    it. As `published` is one reference to an immutable object, a reader sees either the old publication or the new one,
    without a lock. This is also true without Python's global lock, since storing and loading a reference are atomic.
    """

    group: ClassVar[str]
    tag_names: ClassVar[tuple[str, ...]]
    rows: ClassVar[dict[str, SensorSpec[Any]]]

    def __init_subclass__(cls) -> None:
        cls.rows = {name: row for name, row in vars(cls).items() if isinstance(row, SensorSpec)}

    def __init__(self, tags: Mapping[str, str], now_ms: int, window_ms: int, level: str) -> None:
        self.tags: dict[str, str] = dict(tags)
        self._window_ms = window_ms
        made: list[tuple[str, Sensor]] = []
        for name, row in self.rows.items():
            sensor = row.make(now_ms)
            self.__dict__[name] = sensor
            if row.level == "INFO" or level != "INFO":
                made.append((metric_name(name), sensor))
        self._sensors = tuple(made)
        self.published: Published = Published(now_ms, {})

    def publish(self, now_ms: int) -> None:
        """Make the present values of all sensors visible to other threads."""
        values = {
            name + suffix: value
            for name, sensor in self._sensors
            for suffix, value in sensor.publish(now_ms, self._window_ms)
        }
        self.published = Published(now_ms, values)

    def statistics(self) -> Iterator[tuple[str, Statistic]]:
        """Return the names of the metrics that this scope publishes, each with its kind."""
        return ((name + suffix, kind) for name, sensor in self._sensors for suffix, kind in sensor.statistics.items())


def metric_name(row: str) -> str:
    """Return the name as Kafka writes it, with dashes."""
    return row.replace("_", "-")


class ClientMetrics(Scope):
    """The client as a whole. Owner: the thread that runs the client."""

    group: ClassVar[str] = "stream-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("client-id",)
    version: Final = text("version of this package")
    application_id: Final = text("application id")
    state: Final = text("state of the client")
    stage: Final = text("stage, or flags, that execute the topology", own=True)
    alive_stream_threads: Final = gauge("stream threads that run or take part in a rebalance")
    failed_stream_threads: Final = gauge("stream threads that died of an error since the start")
    longest_call_seconds: Final = gauge(
        "how long the longest call of one of your functions has lasted that is under way, 0 when none takes a second; "
        "`/status` names it",
        own=True,
    )


class MemoryMetrics(Scope):
    """Memory of the process that runs the instance. Owner: the thread that runs the client."""

    group: ClassVar[str] = "stream-memory-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("client-id",)
    resident_bytes: Final = gauge(
        "resident memory of the process; where the system doesn't tell, the most it had", own=True
    )
    other_bytes: Final = gauge("resident memory that is in no account; below 0 if estimates are too high", own=True)
    client_queues_max_bytes: Final = gauge(
        "bytes that the queues of the Kafka clients may take, by their settings; what they take is in no account",
        own=True,
    )


class MemoryAccountMetrics(Scope):
    """One account of the instance's memory. Owner: the thread that runs the client."""

    group: ClassVar[str] = "stream-memory-account-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("client-id", "account")
    bytes: Final = gauge("bytes in use, about", own=True)
    limit_bytes: Final = gauge("the most bytes that may be in use, by the settings; -1 without a limit", own=True)


class ThreadMetrics(Scope):
    """One stream thread. Owner: that thread."""

    group: ClassVar[str] = "stream-thread-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id",)
    commit: Final = timing("commits that succeeded", ratio=True)
    commit_sending: Final = timing("times that a commit handed the rest of its outputs to the client", own=True)
    commit_flushing: Final = timing("times that a commit waited until Kafka had acknowledged its outputs", own=True)
    commit_offsets: Final = timing("times that a commit put its offsets into the transaction", own=True)
    commit_ending: Final = timing("times that a commit waited until Kafka had made it", own=True)
    poll: Final = timing("polls for input, their waits included", ratio=True)
    poll_records: Final = value("records that one poll brought, of those that brought any")
    process: Final = timing(f"records processed, skipped ones included; {TURN}", ratio=True)
    process_records: Final = value("records processed in one turn of the loop, of those that processed any")
    punctuate: Final = timing(f"punctuations; {TURN}", ratio=True)
    task_created: Final = count("tasks created")
    task_closed: Final = count("tasks closed")
    blocked_time_ns: Final = total("time that the thread waited for Kafka (in polls, flushes, commits), in ns")
    thread_start_time: Final = gauge("when the thread started, in ms since the epoch")
    thread_state: Final = text("state of the thread")
    active_tasks: Final = gauge("active tasks of the thread, those that wait or restore included", own=True)
    restoring_tasks: Final = gauge("active tasks that are restoring their state", own=True)
    standby_updating_tasks: Final = gauge("standby tasks that follow their changelogs, warm-ups included", own=True)
    input_buffer_bytes_total: Final = gauge("bytes of the records in the input buffers of the thread's tasks, about")
    paused_partitions: Final = gauge(
        "input partitions not fetched now: their buffers are full, or they are paused", own=True
    )
    pauses: Final = count(
        "times that fetching of a partition was paused, which throws away what was prefetched", own=True
    )
    warm_up_tasks: Final = gauge("standby tasks that have the group assign anew once they have caught up", own=True)
    rolled_back: Final = count("times that uncommitted work was rolled back, its transaction aborted", own=True)
    rolled_back_records: Final = count("records that were processed in vain, as their work was rolled back", own=True)
    rolled_back_ms: Final = total("time from a roll-back until its tasks processed again, in ms", own=True)
    producer_fenced: Final = count(
        "times that the producer's transaction timed out, or its id was taken over", own=True
    )
    producer_recovered: Final = count(
        "times that a dead producer was replaced and the tasks went on in place", own=True
    )
    producer_lost: Final = count(
        "times that a failed transaction cost the tasks of the thread, which rejoined", own=True
    )
    transaction_age_ms: Final = value(
        "age of the open transaction, looked at in each turn of the loop, in ms", own=True
    )
    time_between_poll: Final = value("time between two looks at the group, in ms", own=True)
    commit_age_ms: Final = gauge("age of the commit that is under way, in ms; 0 without one", own=True)
    sent_again: Final = count("outputs that were sent again, as their transaction had failed, from m5 on", own=True)
    suppressed: Final = count(
        "outputs of upsert sinks that weren't sent, as a later one of their key and commit was, from m5 on", own=True
    )
    ended_tasks: Final = gauge("tasks that have failed for good, and stand still", own=True)
    unplaced_tasks: Final = gauge("tasks that can't learn where their input begins, and ask again", own=True)


class SchedulerMetrics(Scope):
    """The scheduler between a stream thread and its processing threads (m2 on). Owner: the stream thread."""

    group: ClassVar[str] = "stream-scheduler-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id",)
    processing_threads: Final = gauge("processing threads")
    running_tasks: Final = gauge("tasks that a processing thread works on")
    ready_tasks: Final = gauge("tasks that wait for a processing thread")
    quarantined_tasks: Final = gauge("tasks that fail, and are tried again")
    busy_tasks: Final = gauge("tasks whose last commit waits to be written to their stores: the disk is slow, or full")
    held_back_tasks: Final = gauge("tasks that wait until their outputs are sent: these have filled their buffer")
    held_back: Final = count("times that a task had to wait for that")
    task_wait: Final = timing("waits of ready tasks for a processing thread")
    task_pause: Final = timing(
        "pauses of tasks that have input: until a processing thread has the task, a commit is over, or outputs are sent"
    )
    output_buffer_bytes_total: Final = gauge("bytes of the outputs that wait to be sent, about")
    rest: Final = count("turns of the loop that fetched nothing, as the processing threads had enough to do")


class ProcessingThreadMetrics(Scope):
    """One processing thread (m2 on). Owner: that thread. During a long call the values are those from before the call.
    """

    group: ClassVar[str] = "stream-processing-thread-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id",)
    process: Final = count("records processed, skipped ones included")
    turn: Final = timing("times that it had a task", ratio=True)


class TaskMetrics(Scope):
    """One task. Owner: the thread that has the task."""

    group: ClassVar[str] = "stream-task-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id", "task-id")
    process: Final = timing(f"records processed, skipped ones included; {TURN}", unit_ns=NS)
    punctuate: Final = timing(f"punctuations; {TURN}", unit_ns=NS)
    dropped_records: Final = count("records skipped (null key, late, bad timestamp, a handler's decision)")
    active_buffer_count: Final = gauge("records in the input buffers")
    cache_size_bytes_total: Final = gauge("bytes that wait in the caches of the task's stores")
    restore: Final = count("changelog records restored")
    restore_remaining_records_total: Final = gauge("changelog records still to restore")
    uncommitted_bytes: Final = gauge("bytes of state written and not in the stores yet", own=True)
    rolled_back: Final = count("times that the task's uncommitted work was rolled back", own=True)


class GlobalThreadMetrics(Scope):
    """The global thread of an instance. Owner: that thread."""

    group: ClassVar[str] = "stream-global-thread-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id",)
    thread_state: Final = text("state of the thread: CREATED until the global stores are complete", own=True)
    process: Final = count("records of the topics of global stores, skipped ones included", own=True)
    dropped_records: Final = count("records skipped (null key, a handler's decision)", own=True)
    restore: Final = count("records restored before the tasks started", own=True)
    restore_remaining_records_total: Final = gauge("records still to restore before the tasks start", own=True)
    records_lag: Final = gauge("records of the topics that aren't in the stores yet, at the last fetch", own=True)


class QuarantineMetrics(Scope):
    """One task in quarantine (m2 on). The scope exists as long as the quarantine. Owner: the stream thread."""

    group: ClassVar[str] = "stream-task-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id", "task-id")
    quarantine_error: Final = text("the class of the error of its last try; `/status` has its text", own=True)
    quarantine_seconds_left: Final = gauge(
        "time until the task has failed for `task_timeout_ms`, and ends as `task_failed` says", own=True
    )


class EndedTaskMetrics(Scope):
    """One task that has ended. The scope exists as long as the task's thread has the task. Owner: the thread that has
    the task."""

    group: ClassVar[str] = "stream-task-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id", "task-id")
    ended: Final = gauge("1: the task has failed for good, and its partitions stand still", own=True)
    ended_error: Final = text("the class of the error that it ended of; `/status` has its text", own=True)


class StandbyMetrics(Scope):
    """One standby task. Owner: the thread that has the task."""

    group: ClassVar[str] = "stream-task-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id", "task-id")
    update: Final = count("changelog records that the standby task has taken")
    standby_records_lag: Final = gauge(
        "changelog records that the standby task is behind, at the last fetch; -1 while it isn't known", own=True
    )


class UpdaterMetrics(Scope):
    """One state updater (m1 on). Owner: its thread. Ratios are those of the last second."""

    group: ClassVar[str] = "stream-state-updater-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id",)
    active_restoring_tasks: Final = gauge("active tasks that restore their state")
    standby_updating_tasks: Final = gauge("standby tasks that follow their changelogs")
    active_paused_tasks: Final = gauge("active tasks whose restoration is paused")
    standby_paused_tasks: Final = gauge("standby tasks that are paused")
    idle_ratio: Final = gauge("part of the time that the thread waited")
    active_restore_ratio: Final = gauge("part of the time that went into the stores of active tasks")
    standby_update_ratio: Final = gauge("part of the time that went into the stores of standby tasks")
    restore_records: Final = count("changelog records taken, those of standby tasks included")
    restore_call: Final = count("fetches that brought any")


class RestorationMetrics(Scope):
    """One store that an active task restores (m1 on). The scope exists as long as the restoration. Owner: the state
    updater."""

    group: ClassVar[str] = "stream-state-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id", "task-id", "state-id")
    restore: Final = count("changelog records restored")
    restore_remaining_records_total: Final = gauge("changelog records still to restore", own=True)
    restore_remaining_bytes_total: Final = gauge("their keys and values, by the mean of those that came", own=True)
    restore_remaining_seconds: Final = gauge("time left at the rate of the last ten seconds; -1: unknown", own=True)


class EngineMetrics(Scope):
    """One persistent store's engine, measured by RocksDB's own properties (m1 on). Owner: the client's metrics thread.
    """

    group: ClassVar[str] = "stream-state-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("task-id", "rocksdb-state-id")
    background_errors: Final = gauge("errors of flushes and compactions")
    compaction_pending: Final = gauge("1 if a compaction is due, else 0")
    cur_size_all_mem_tables: Final = gauge("bytes in memtables, those that are being flushed included")
    estimate_num_keys: Final = gauge("entries, about")
    estimate_pending_compaction_bytes: Final = gauge("bytes that compactions have to rewrite, about")
    estimate_table_readers_mem: Final = gauge("bytes of memory for reading table files, the block cache not included")
    live_sst_files_size: Final = gauge("bytes of the table files of the newest version")
    mem_table_flush_pending: Final = gauge("1 if a flush is due, else 0")
    num_immutable_mem_table: Final = gauge("memtables that wait for their flush")
    num_running_compactions: Final = gauge("compactions at work")
    num_running_flushes: Final = gauge("flushes at work")
    total_sst_files_size: Final = gauge("bytes of all table files")


class SnapshotMetrics(Scope):
    """The snapshots that an instance makes (m6 on). Owner: the state thread."""

    group: ClassVar[str] = "stream-snapshot-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id",)
    made: Final = count("snapshots of store partitions that were published", own=True)
    made_bytes: Final = total("bytes of the files that were published, deltas without their bases", own=True)
    deltas: Final = count("those of them that only have what has changed", own=True)
    failed: Final = count("snapshots of store partitions that couldn't be made or published", own=True)
    checkpoint: Final = timing("checkpoints of a sub-topology's database", own=True)
    changed_keys_bytes: Final = gauge("bytes of the keys that have changed since the last snapshots, about", own=True)


class StateDatabaseMetrics(Scope):
    """The database of one sub-topology, from m6 on. Owner: the state thread."""

    group: ClassVar[str] = "stream-state-database-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("subtopology-id",)
    size_bytes: Final = gauge("bytes of its files", own=True)
    files: Final = gauge("its files", own=True)
    writes_wait: Final = gauge("why: 0 they don't, 1 its disk is full, 2 it is damaged and being mended", own=True)
    unsynced_ms: Final = gauge("since when something is written that isn't synced, ms; 0 when all is", own=True)


class NodeMetrics(Scope):
    """One node of a task's topology. Owner: the thread that has the task."""

    group: ClassVar[str] = "stream-processor-node-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id", "task-id", "processor-node-id")
    process: Final = count("records that the node was given", level="DEBUG")


class SuppressNodeMetrics(Scope):
    """One node of suppress. Owner: the thread that has the task."""

    group: ClassVar[str] = "stream-processor-node-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id", "task-id", "processor-node-id")
    suppression_emit: Final = count("updates that were kept back, and then sent", level="DEBUG")


class SuppressBufferMetrics(Scope):
    """The buffer of one node of suppress, measured at each publication. Owner: the thread that has the task."""

    group: ClassVar[str] = "stream-state-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("thread-id", "task-id", "in-memory-suppression-id")
    suppression_buffer_count: Final = value("updates that are kept back", level="DEBUG")
    suppression_buffer_size: Final = value(
        "bytes of the updates that are kept back, as `max_bytes` counts", level="DEBUG"
    )


class GroupMetrics(Scope):
    """One member of the consumer group. Owner: the member's stream thread."""

    group: ClassVar[str] = "consumer-coordinator-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("client-id",)
    rebalance: Final = timing("rebalances that ended with an assignment, from our join on", hourly=True)
    failed_rebalance: Final = count(
        "rebalances that ended without one: membership lost, or another join needed", hourly=True
    )
    assigned_partitions: Final = gauge("input partitions of the member's tasks")
    last_rebalance_seconds_ago: Final = gauge("seconds since the last rebalance ended, -1 before the first")


class HeartbeatMetrics(Scope):
    """The connection of a member to its group. Owner: the membership thread, which never waits for user code."""

    group: ClassVar[str] = "consumer-coordinator-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("client-id",)
    last_heartbeat_seconds_ago: Final = gauge(
        "seconds since the group's coordinator last answered a heartbeat or a commit: it grows while no broker answers"
    )


class PartitionMetrics(Scope):
    """One input partition. Owner: the thread whose consumer has it."""

    group: ClassVar[str] = "consumer-fetch-manager-metrics"
    tag_names: ClassVar[tuple[str, ...]] = ("client-id", "topic", "partition")
    records_lag: Final = gauge(
        "records of the partition that aren't processed yet, by the last fetch; buffered ones count. A partition "
        "that isn't fetched keeps its series: what stands still is asked for again, see `records_lag_age_seconds`"
    )
    records_lag_age_seconds: Final = gauge(
        "how long ago the lag was known last: it grows while Kafka doesn't tell where the partition ends", own=True
    )


SCOPES: tuple[type[Scope], ...] = (
    ClientMetrics,
    MemoryMetrics,
    ThreadMetrics,
    SchedulerMetrics,
    ProcessingThreadMetrics,
    TaskMetrics,
    GlobalThreadMetrics,
    QuarantineMetrics,
    EndedTaskMetrics,
    StandbyMetrics,
    UpdaterMetrics,
    RestorationMetrics,
    EngineMetrics,
    SnapshotMetrics,
    StateDatabaseMetrics,
    NodeMetrics,
    SuppressNodeMetrics,
    SuppressBufferMetrics,
    GroupMetrics,
    HeartbeatMetrics,
    PartitionMetrics,
)
