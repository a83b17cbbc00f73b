"""The metrics of a stream thread, and of its tasks, its membership and its input partitions.

*Guarantees*: nothing is measured per record. The parts count in ints. Each turn of the loop takes the differences, and
looks only at tasks that have changed. When a task, a partition or the thread is gone, its metrics are removed.
*Assumes*: made and driven by the thread that owns the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milestones.common.diagnostics import class_of
from milestones.common.memory import Account
from milestones.common.metrics import (
    PUBLISH_INTERVAL_MS,
    EndedTaskMetrics,
    GroupMetrics,
    Metrics,
    NodeMetrics,
    PartitionMetrics,
    StandbyMetrics,
    SuppressBufferMetrics,
    SuppressNodeMetrics,
    TaskMetrics,
    ThreadMetrics,
)
from milestones.common.records import TaskId, TopicPartition
from milestones.common.topology.operators.suppression import SUPPRESSION_EMIT
from milestones.parts.transaction import CommitStage
from milestones.stream_thread.commits.timed_commit import StepTime, TimedCommit

if TYPE_CHECKING:
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext, ThreadReport
    from milestones.instance.states import ThreadState
    from milestones.parts import Clients, OutputCollection, Recovery, Restoration
    from milestones.stream_thread.inputs import Inputs
    from milestones.stream_thread.lags import Lag
    from milestones.stream_thread.rebalance import Rebalance
    from milestones.stream_thread.tasks import ThreadTasks


IDLE = 0, 0, 0, 0


class Growth:
    """Computes how much a counter has grown since the last look. If a counter begins anew, as a new client's counter
    does, its growth is counted from 0."""

    def __init__(self) -> None:
        self._seen = 0

    def to(self, now: int) -> int:
        grown = now - self._seen if now >= self._seen else now
        self._seen = now
        return grown


@dataclass(frozen=True)
class Measured:
    """The parts of a thread that count."""

    clients: Clients
    inputs: Inputs
    tasks: ThreadTasks
    restoration: Restoration
    collection: OutputCollection
    commit: TimedCommit
    rebalance: Rebalance
    recovery: Recovery


class TaskMeasures:
    scope: TaskMetrics
    task: Task

    def __init__(self, task: Task, metrics: Metrics, thread: str, dropped_before: int) -> None:
        """`dropped_before`: the number of outputs that were dropped for an earlier task of the same id in this
        thread."""
        self.task, self._dropped_before = task, dropped_before
        self._tags = {"thread_id": thread, "task_id": str(task.id)}
        self._metrics, self.scope = metrics, metrics.add(TaskMetrics, **self._tags)
        self._nodes: dict[str, NodeMetrics] = {}
        self._suppressing: dict[str, SuppressNodeMetrics] = {}
        self._held: dict[str, SuppressBufferMetrics] = {}
        self._seen = 0, 0
        self._processed, self._process_ns = Growth(), Growth()
        self._punctuated, self._punctuate_ns = Growth(), Growth()

    def turn(self) -> tuple[int, int, int, int]:
        """Return the task's work since the last turn: the number of records, their time in ns, the number of
        punctuations, and their time in ns."""
        counters = self.task.counters
        if (counters.processed, counters.punctuated) == self._seen:
            return IDLE
        self._seen = counters.processed, counters.punctuated
        records, record_ns = self._processed.to(counters.processed), self._process_ns.to(counters.process_ns)
        calls, call_ns = self._punctuated.to(counters.punctuated), self._punctuate_ns.to(counters.punctuate_ns)
        self.scope.process.add(record_ns, records)
        self.scope.punctuate.add(call_ns, calls)
        return records, record_ns, calls, call_ns

    def publish(self, now_ms: int, dropped_outputs: int, to_restore: int) -> None:
        scope, task = self.scope, self.task
        scope.dropped_records.total = task.dropped_records + dropped_outputs - self._dropped_before
        scope.restore.total = task.counters.restored
        scope.restore_remaining_records_total.value = to_restore
        scope.active_buffer_count.value = task.input.waiting()
        scope.cache_size_bytes_total.value = task.cache_bytes()
        scope.uncommitted_bytes.value = task.uncommitted_bytes()
        scope.rolled_back.total = task.counters.rolled_back
        scope.publish(now_ms)
        for name, counters in list(task.counters.nodes.items()):
            node = self._nodes.get(name)
            if node is None:
                node = self._nodes[name] = self._metrics.add(NodeMetrics, **self._tags, processor_node_id=name)
            node.process.total = counters.processed
            node.publish(now_ms)
        if self._metrics.debug:
            self._publish_suppress(now_ms)

    def _publish_suppress(self, now_ms: int) -> None:
        for (name, what), tally in list(self.task.counters.tallies.items()):
            if what == SUPPRESSION_EMIT:
                if name not in self._suppressing:
                    tags = {**self._tags, "processor_node_id": name}
                    self._suppressing[name] = self._metrics.add(SuppressNodeMetrics, **tags)
                self._suppressing[name].suppression_emit.total = tally.total
                self._suppressing[name].publish(now_ms)
        for store, (records, size) in self.task.held().items():
            if store not in self._held:
                tags = {**self._tags, "in_memory_suppression_id": store}
                self._held[store] = self._metrics.add(SuppressBufferMetrics, **tags)
            self._held[store].suppression_buffer_count.add(records)
            self._held[store].suppression_buffer_size.add(size)
            self._held[store].publish(now_ms)

    def close(self) -> None:
        for scope in (self.scope, *self._nodes.values(), *self._suppressing.values(), *self._held.values()):
            self._metrics.remove(scope)


class StandbyMeasures:
    def __init__(self, task: StandbyTask, metrics: Metrics, thread: str) -> None:
        self.task, self._metrics = task, metrics
        self.scope: StandbyMetrics = metrics.add(StandbyMetrics, thread_id=thread, task_id=str(task.id))

    def publish(self, now_ms: int, lag: int) -> None:
        self.scope.update.total = self.task.counters.restored
        self.scope.standby_records_lag.value = lag
        self.scope.publish(now_ms)

    def close(self) -> None:
        self._metrics.remove(self.scope)


class ThreadMeasures:
    """Publishes the metrics of the thread. *Owns*: the metrics of the thread, its member, its tasks and its input
    partitions."""

    def __init__(self, context: ThreadContext, measured: Measured) -> None:
        self._metrics, self._name, self._clock = context.metrics, context.name, context.clock
        self._memory = context.memory
        self._client = f"{context.name}-consumer"
        self._measured = measured
        self._thread = self._metrics.add(ThreadMetrics, thread_id=self._name)
        self._group = self._metrics.add(GroupMetrics, client_id=self._client)
        self._tasks: dict[TaskId, TaskMeasures] = {}
        self._standbys: dict[TaskId, StandbyMeasures] = {}
        self._ended: dict[TaskId, EndedTaskMetrics] = {}
        self._partitions: dict[TopicPartition, PartitionMetrics] = {}
        self._polls, self._poll_ns, self._fetched = Growth(), Growth(), Growth()
        self._commits, self._commit_ns = Growth(), Growth()
        self._timings = {
            CommitStage.SENDING: self._thread.commit_sending,
            CommitStage.FLUSHING: self._thread.commit_flushing,
            CommitStage.OFFSETS: self._thread.commit_offsets,
            CommitStage.ENDING: self._thread.commit_ending,
        }
        self._steps = {step: (Growth(), Growth()) for step in self._timings}
        self._rebalances, self._rebalance_ns = Growth(), Growth()
        self._blocked = tuple(Growth() for _ in range(4))
        self._next_publication_ms = 0
        self._seen = 0, 0
        self._moves = 0
        self._thread.thread_start_time.value = context.clock.wall_ms()
        self._turn_ms = context.clock.monotonic_ms()

    def moved(self, state: ThreadState) -> None:
        """Publish the thread's new state immediately."""
        self._thread.thread_state.value = state.value
        self._thread.publish(self._clock.monotonic_ms())

    def turn(self, changed: Iterable[Task]) -> None:
        """Count what happened in a turn of the loop. No other task than these has changed."""
        thread, parts = self._thread, self._measured
        now_ms = self._clock.monotonic_ms()
        thread.time_between_poll.add(now_ms - self._turn_ms)
        self._turn_ms = now_ms
        if (parts.tasks.created, parts.tasks.closed) != self._seen:
            self.follow()
        thread.poll.add(self._poll_ns.to(parts.inputs.poll_ns), self._polls.to(parts.inputs.polls))
        fetched = self._fetched.to(parts.inputs.fetched)
        if fetched:
            thread.poll_records.add(fetched)
        records = record_ns = calls = call_ns = 0
        for measures in filter(None, map(self._measures_of, changed)):
            counters = measures.turn()
            records, record_ns = records + counters[0], record_ns + counters[1]
            calls, call_ns = calls + counters[2], call_ns + counters[3]
        thread.process.add(record_ns, records)
        thread.punctuate.add(call_ns, calls)
        if records:
            thread.process_records.add(records)
        thread.commit.add(self._commit_ns.to(parts.commit.elapsed_ns), self._commits.to(parts.commit.calls))
        if parts.commit.moves != self._moves:
            self._moves = parts.commit.moves
            self._note_steps(parts.commit.steps)
        if (age_ms := parts.clients.producer.age_ms()) is not None:
            thread.transaction_age_ms.add(age_ms)
        rebalance = parts.rebalance
        self._group.rebalance.add(self._rebalance_ns.to(rebalance.elapsed_ns), self._rebalances.to(rebalance.completed))

    def _note_steps(self, steps: Mapping[CommitStage, StepTime]) -> None:
        for step, (times, spent_ns) in self._steps.items():
            self._timings[step].add(spent_ns.to(steps[step].elapsed_ns), times.to(steps[step].calls))

    def _measures_of(self, task: Task) -> TaskMeasures | None:
        """Return the metrics of the task, or None if the task is about to leave."""
        measures = self._tasks.get(task.id)
        if measures is not None and measures.task is task:
            return measures
        if self._measured.tasks.processing.get(task.id) is not task:
            return None
        if measures is not None:
            measures.close()
        return self._begin(task)

    def _begin(self, task: Task) -> TaskMeasures:
        dropped = self._measured.collection.dropped.get(task.id, 0)
        measures = self._tasks[task.id] = TaskMeasures(task, self._metrics, self._name, dropped)
        return measures

    def follow(self) -> None:
        """Create metrics for new tasks, and remove the metrics of tasks that are gone. If a task was closed and has
        come back, its metrics begin anew."""
        tasks = self._measured.tasks
        self._seen = tasks.created, tasks.closed
        self._follow(tasks.open, tasks.standbys)

    def _follow(self, tasks: Mapping[TaskId, Task], standbys: Mapping[TaskId, StandbyTask]) -> None:
        for id in [id for id, measures in self._tasks.items() if tasks.get(id) is not measures.task]:
            self._tasks.pop(id).close()
        for id in [id for id, follower in self._standbys.items() if standbys.get(id) is not follower.task]:
            self._standbys.pop(id).close()
        for id in tasks.keys() - self._tasks.keys():
            self._begin(tasks[id])
        for id in standbys.keys() - self._standbys.keys():
            self._standbys[id] = StandbyMeasures(standbys[id], self._metrics, self._name)

    def publish(self, now_ms: int, report: ThreadReport, lags: Mapping[TopicPartition, Lag]) -> None:
        """Publish all metrics, about once a second. `report`: the thread's newest report. `lags`: the lags with their
        times."""
        if now_ms < self._next_publication_ms:
            return
        self._next_publication_ms = now_ms + PUBLISH_INTERVAL_MS
        self._publish_thread(now_ms, report)
        self._publish_group(now_ms)
        dropped = self._measured.collection.dropped
        for id, measures in self._tasks.items():
            measures.publish(now_ms, dropped.get(id, 0), report.restoring.get(id, 0))
        for id, follower in self._standbys.items():
            follower.publish(now_ms, report.standby_lags.get(id, -1))
        self._publish_ended(now_ms)
        self._publish_partitions(now_ms, lags)
        self._say_memory()

    def _say_memory(self) -> None:
        """Tell the instance how much memory the thread's tasks hold."""
        tasks = self._tasks.values()
        self._memory.say(Account.INPUT, self._measured.inputs.buffered_bytes)
        self._memory.say(Account.UNCOMMITTED, sum(int(measures.scope.uncommitted_bytes.value) for measures in tasks))
        self._memory.say(Account.KEPT_BACK, sum(measures.task.kept_bytes() for measures in tasks))
        self._memory.say(Account.OUTPUTS, sum(measures.task.output_bytes() for measures in tasks))

    def _publish_thread(self, now_ms: int, report: ThreadReport) -> None:
        thread, clients, tasks = self._thread, self._measured.clients, self._measured.tasks
        thread.task_created.total, thread.task_closed.total = tasks.created, tasks.closed
        rolled, recovery = tasks.roll_backs, self._measured.recovery
        thread.rolled_back.total, thread.rolled_back_records.total = rolled.count, rolled.records
        thread.rolled_back_ms.total = rolled.ms
        thread.producer_fenced.total, thread.producer_recovered.total = recovery.fenced, recovery.recovered
        thread.producer_lost.total = recovery.lost
        thread.active_tasks.value, thread.restoring_tasks.value = len(tasks.owned), len(report.restoring)
        thread.ended_tasks.value = len(report.ended)
        thread.unplaced_tasks.value = len(tasks.unplaced())
        thread.commit_age_ms.value = self._measured.commit.age_ns // 1_000_000
        thread.sent_again.total = self._measured.collection.sent_again
        thread.suppressed.total = self._measured.collection.suppressed
        thread.standby_updating_tasks.value = len(tasks.standbys)
        inputs = self._measured.inputs
        thread.input_buffer_bytes_total.value, thread.pauses.total = inputs.buffered_bytes, inputs.pauses
        thread.paused_partitions.value = len(clients.consumer.paused)
        thread.warm_up_tasks.value = len(self._measured.rebalance.warm_ups)
        waits = (
            clients.consumer.blocked_ns,
            self._measured.restoration.blocked_ns,
            clients.producer.blocked_ns,
            clients.member.blocked_ns,
        )
        thread.blocked_time_ns.total += sum(grown.to(ns) for grown, ns in zip(self._blocked, waits, strict=True))
        thread.publish(now_ms)

    def _publish_group(self, now_ms: int) -> None:
        group, rebalance = self._group, self._measured.rebalance
        group.failed_rebalance.total = rebalance.failed
        group.assigned_partitions.value = len(self._measured.tasks.assigned_partitions)
        ended_ms = rebalance.ended_ms
        group.last_rebalance_seconds_ago.value = -1 if ended_ms is None else (now_ms - ended_ms) // 1000
        group.publish(now_ms)

    def _publish_ended(self, now_ms: int) -> None:
        failed = self._measured.tasks.failed
        for id in self._ended.keys() - failed.keys():
            self._metrics.remove(self._ended.pop(id))
        for id, error in failed.items():
            scope = self._ended.get(id)
            if scope is None:
                scope = self._ended[id] = self._metrics.add(EndedTaskMetrics, thread_id=self._name, task_id=str(id))
            scope.ended.value, scope.ended_error.value = 1, class_of(error)
            scope.publish(now_ms)

    def _publish_partitions(self, now_ms: int, lags: Mapping[TopicPartition, Lag]) -> None:
        for partition in self._partitions.keys() - lags.keys():
            self._metrics.remove(self._partitions.pop(partition))
        for partition, lag in lags.items():
            scope = self._partitions.get(partition)
            if scope is None:
                scope = self._partitions[partition] = self._metrics.add(
                    PartitionMetrics,
                    client_id=self._client,
                    topic=partition.topic,
                    partition=str(partition.partition),
                )
            scope.records_lag.value = lag.records
            scope.records_lag_age_seconds.value = (now_ms - lag.known_ms) // 1000
            scope.publish(now_ms)

    def close(self) -> None:
        self._follow({}, {})
        for scope in (*self._partitions.values(), *self._ended.values(), self._group, self._thread):
            self._metrics.remove(scope)
        self._partitions.clear()
        self._ended.clear()
