"""`SnapshotMaker` makes the snapshots of an instance, one step at a time, when the state thread has no request.

    due --AskBounds, settings--> housekeeper --answers--> a checkpoint per sub-topology, the most important one first
        --CheckpointJob--> helper process --SnapshotResult--> the changed keys are forgotten, or kept for the next time

*Why this way*:
- A helper process does all work per entry: it would hold Python's lock, and stop the threads that process records.
- The helper reads a checkpoint, a copy of one moment, so that the tasks go on writing.
- The state thread takes one step and returns, so that tasks' stores are opened and closed without delay.
- A snapshot is never needed: the changelog has everything. So an error costs this snapshot, and no more.

*Guarantees*: no step waits for Kafka, the object store or the helper process. A checkpoint shows a moment when no task
is between two steps of a write; tasks for which there is no such moment are left out. Whatever goes wrong is a warning
and a metric, and is retried after the interval.
*Assumes*: the state thread makes all calls. The checkpoints' directory is on the disk of the databases.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError, StateError
from milestones.common.kafka.answers import settings_in
from milestones.common.mailbox import Mailbox
from milestones.common.metrics import SnapshotMetrics
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.disk import remove_tree, scratch
from milestones.common.state.snapshots.snapshot import SnapshotManifest, usable_until
from milestones.common.testing.faults import reach
from milestones.instance.admin_thread import AskBounds, Bounds
from milestones.m6_state_manager.helper import SnapshotHelper, launch
from milestones.m6_state_manager.mending.database_folder import DATABASE
from milestones.m6_state_manager.snapshots.jobs import CheckpointJob, PartitionJob, SnapshotResult
from milestones.m6_state_manager.snapshots.moments import Moments, Taken
from milestones.m6_state_manager.snapshots.schedule import Timetable, behind, by_importance, fresh, grown, prunable
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.m6_state_manager.manager import RangeStateManager
    from milestones.m6_state_manager.snapshots.changed_keys import Changes
    from milestones.m6_state_manager.state_thread import Snapshots

log: Final = logging.getLogger(__name__)

ANSWER_MS: Final = 30_000
"""The maker waits for Kafka's answers for this time."""

WAIT_MS: Final = 1_000
"""The time between two steps while the state thread gets no request."""

Launch = Callable[[CheckpointJob], SnapshotHelper]


class NoneMade:
    """Stands for `SnapshotMaker` in an instance that makes no snapshots."""

    def run_once(self) -> None: ...

    def wait_ms(self) -> int | None:
        return None

    def close(self) -> None: ...


@dataclass
class _Asked:
    """Questions that Kafka hasn't answered yet, about the databases of `subtopologies`."""

    subtopologies: list[int]
    bounds: Mailbox[Bounds]
    settings: Any
    at_ms: int


@dataclass(frozen=True)
class _Known:
    """Kafka's answers: the ends, ids and settings of the changelogs. `asked_ms`: when Kafka was asked (wall clock)."""

    bounds: Bounds
    settings: Mapping[str, Mapping[str, str]]
    asked_ms: int


@dataclass
class _Making:
    """A helper process that works on a sub-topology. `taken`: the changes that its snapshots contain, by store
    partition."""

    subtopology: int
    job: CheckpointJob
    helper: SnapshotHelper
    taken: Taken


class SnapshotMaker:
    """See `Snapshots`. *Owns*: the checkpoints, the helper process. *Receives*: `Bounds`, settings of topics,
    `SnapshotResult`s. *Sends*: `AskBounds`, `CheckpointJob`s."""

    def __init__(self, manager: RangeStateManager, context: ThreadContext, start: Launch = launch) -> None:
        """`start`: starts a helper process; tests give another one than the default."""
        self._manager, self._context, self._launch, self._clock = manager, context, start, context.clock
        self._moments = Moments(manager.changed)
        config = context.config
        self._times = Timetable(config.snapshot_interval_ms, config.num_standby_replicas > 0)
        self._began_ms = self._clock.monotonic_ms()
        self._tried: dict[int, int] = {}
        self._last: dict[tuple[TaskId, str], SnapshotManifest] = {}
        self._pruned_ms: dict[tuple[TaskId, str], int] = {}
        self._asked: _Asked | None = None
        self._queue: list[tuple[int, _Known]] = []
        self._making: _Making | None = None
        self._scope = context.metrics.add(SnapshotMetrics, thread_id=context.identity.helper("State"))

    def wait_ms(self) -> int | None:
        return WAIT_MS

    def run_once(self) -> None:
        """Take one step: 1. take the helper's results, if it has ended; 2. make the next checkpoint; 3. take Kafka's
        answers; 4. ask Kafka, if snapshots are due. Then publish the metrics."""
        try:
            if self._making is not None:
                self._look_after(self._making)
            elif self._queue:
                self._begin(*self._queue.pop(0))
            elif self._asked is not None:
                self._take_answers(self._asked)
            else:
                self._ask()
        except Exception as error:
            log.exception("a bug: a step of the snapshots has failed")
            self._give_up()
            self._warn(str(error))
        self._scope.changed_keys_bytes.value = self._manager.changed.bytes
        self._scope.publish(self._clock.monotonic_ms())

    # -- what is due

    def _ask(self) -> None:
        now_ms = self._clock.monotonic_ms()
        due = [database.number for database in self._manager.databases() if self._due(database, now_ms)]
        if not due or self._context.thread_registry.generation < 0:
            return
        changelogs = {at for number in due for at in self._changelogs(number).values()}
        self._tried |= dict.fromkeys(due, now_ms)
        if not changelogs:
            return
        answers: Mailbox[Bounds] = Mailbox(1, "where changelogs end, for snapshots")
        try:
            question = AskBounds(TaskId(due[0], 0), frozenset(changelogs), answers, topic_ids=True)
            self._context.housekeeper.put(question, timeout_ms=0)
            topics = sorted({at.topic for at in changelogs})
            settings = self._context.admin.ask(lambda cluster: cluster.start_reading_settings(topics))
        except Exception as error:
            self._warn(f"Kafka can't be asked where changelogs end: {error}")
            return
        self._asked = _Asked(due, answers, settings, now_ms)

    def _due(self, database: SubtopologyEngine, now_ms: int) -> bool:
        tasks = self._manager.tasks(database.number)
        moved = any(
            grown(offset, self._last.get((task.task, store)))
            for task in tasks
            if (row := database.rows.get(task.task.partition)) is not None
            for store, offset in row.offsets.items()
        )
        return bool(tasks) and self._times.due(now_ms, self._tried.get(database.number, self._began_ms), moved)

    def _changelogs(self, subtopology: int) -> dict[tuple[TaskId, str], TopicPartition]:
        """Return the changelog partitions of the open tasks' persistent stores, for one sub-topology."""
        topics = self._context.application.subtopology(subtopology).changelogs
        return {
            (task.task, spec.name): TopicPartition(topics[spec.name], task.task.partition)
            for task in self._manager.tasks(subtopology)
            for spec in task.persistent
            if spec.name in topics
        }

    def _take_answers(self, asked: _Asked) -> None:
        settings = asked.settings
        if len(asked.bounds) and settings.done():
            self._asked = None
            (bounds,) = asked.bounds.drain()
            try:
                if bounds.error is not None:
                    raise bounds.error
                found = {topic: settings_in(future.result()) for topic, future in settings.result().items()}
            except (KafkaException, MilestonesError) as error:
                self._warn(f"Kafka refuses questions about changelogs: {error}")
                return
            known = _Known(bounds, found, self._clock.wall_ms() - (self._clock.monotonic_ms() - asked.at_ms))
            weights = self._context.config.task_priorities
            self._queue = [(number, known) for number in by_importance(asked.subtopologies, weights)]
        elif self._clock.monotonic_ms() - asked.at_ms >= ANSWER_MS:
            self._asked = None
            settings.cancel()
            self._warn("Kafka hasn't said where changelogs end")

    # -- a checkpoint

    def _begin(self, subtopology: int, known: _Known) -> None:
        """Make a checkpoint of the sub-topology, and start a helper process that makes snapshots from it."""
        database = next((one for one in self._manager.databases() if one.number == subtopology), None)
        if database is None:
            return
        started = False
        directory: Path | None = None
        try:
            directory, began_ns = scratch(self._manager.directory.path), time.perf_counter_ns()
            wanted = partial(self._wanted, database, known)
            taken, jobs = self._moments.checkpoint(database, directory / DATABASE, wanted)
            took_ns = time.perf_counter_ns() - began_ns
            self._scope.checkpoint.add(took_ns)
            log.info("sub-topology %d: a checkpoint took %.1f ms", subtopology, took_ns / 1e6)
            reach("snapshot.checkpoint")
            started = bool(jobs) and self._start(database, directory, taken, jobs)
        except StateError as error:
            self._warn(f"no checkpoint of sub-topology {subtopology} can be made: {error}")
        finally:
            if not started:
                self._remove(directory)

    def _wanted(self, database: SubtopologyEngine, known: _Known) -> list[PartitionJob]:
        """Return the jobs for stores that have changed, or whose old snapshots must be pruned, the smallest first. The
        changed keys aren't in them yet."""
        found, wall_ms, now_ms, config = [], self._clock.wall_ms(), self._clock.monotonic_ms(), self._context.config
        changelogs = self._changelogs(database.number)
        # The database lacks writes that wait to be written, and all that came since Kafka was asked: deletions, too.
        content_ms = known.asked_ms - config.state_write_interval_ms
        for task in self._manager.tasks(database.number):
            leads = self._manager.changed.range(*task.task).leads
            row = database.rows.get(task.task.partition)
            offsets, followed = ({}, {}) if row is None else (row.offsets, row.changelog_ids)
            for spec in task.persistent:
                changelog, offset = changelogs.get((task.task, spec.name)), offsets.get(spec.name)
                bounds = known.bounds.bounds.get(changelog) if changelog is not None else None
                if changelog is None or offset is None or bounds is None:
                    continue
                topic_id = known.bounds.topic_ids.get(changelog.topic)
                if topic_id is not None and followed.get(spec.name, topic_id) != topic_id:
                    continue  # the topic was deleted and made anew: the store has records that the new one lacks
                last = self._last.get((task.task, spec.name))
                if behind(offset, bounds[1], leads, config.acceptable_recovery_lag) or (
                    last is not None
                    and last.offset == offset
                    and fresh(last, wall_ms)
                    and not prunable(now_ms, self._pruned_ms[task.task, spec.name])
                ):
                    continue
                found.append(PartitionJob.of(
                    task.task, spec, changelog,
                    changelog_id=topic_id,
                    usable_until_ms=usable_until(known.settings[changelog.topic], content_ms),
                    leads=leads, since_ms=self._times.since_ms(wall_ms, leads),
                ))  # fmt: skip
        return sorted(found, key=lambda job: (self._size(job), job.place))

    def _size(self, job: PartitionJob) -> int:
        last = self._last.get(job.place)
        return 0 if last is None else last.size

    # -- the helper

    def _start(
        self,
        database: SubtopologyEngine,
        directory: Path,
        taken: Taken,
        jobs: list[PartitionJob],
    ) -> bool:
        """Start the helper process. Returns False if it can't be started."""
        config = self._context.config
        stores = tuple(_with(job, taken[job.place][1]) for job in jobs)
        assert config.snapshot_url is not None  # otherwise `NoneMade`
        job = CheckpointJob(
            directory, database.number, config.application_id, self._context.thread_registry.generation,
            self._clock.wall_ms(), stores, config.snapshot_url, config.snapshot_options,
            config.snapshot_encryption_key, config.snapshot_timeout_ms, config.exactly_once,
        )  # fmt: skip
        try:
            self._making = _Making(database.number, job, self._launch(job), taken)
        except OSError as error:
            self._moments.put_back(taken)
            self._warn(f"the helper process can't be started: {error}")
            return False
        return True

    def _look_after(self, making: _Making) -> None:
        """Take the results of the helper process, if it has ended."""
        if not making.helper.ended():
            return
        self._making = None
        told = {(result.task, result.store): result for result in making.helper.results()}
        wrong: list[str] = []
        for job in making.job.stores:
            of, changes = making.taken[job.place]
            result = told.get(job.place) or SnapshotResult(*job.place, None, making.helper.trouble(), wrong=True)
            if result.manifest is not None:
                self._manager.changed.published(of, job.store, changes, result.manifest)
                self._note(job, result.manifest)
                continue
            self._manager.changed.put_back(of, job.store, changes)
            if result.there is not None:
                self._note_newest(job, result.there)
            log.debug("no snapshot of %s of task %s: %s", job.store, job.task, result.why)
            if result.wrong:
                self._scope.failed.total += 1
                wrong.append(result.why)
        if wrong:
            log.warning(
                "%d of %d snapshots of sub-topology %d weren't made, and are tried again later: %s",
                len(wrong), len(making.job.stores), making.subtopology, wrong[0],
            )  # fmt: skip
        self._pass_on(making)
        self._remove(making.job.directory)

    def _pass_on(self, making: _Making) -> None:
        """Log the first warning of the helper process, and the number of the others: they are often the same."""
        warnings = list(dict.fromkeys(making.helper.warnings()))
        if warnings:
            more = f" (and {len(warnings) - 1} more)" if warnings[1:] else ""
            log.warning("in making snapshots of sub-topology %d: %s%s", making.subtopology, warnings[0], more)

    def _note_newest(self, job: PartitionJob, manifest: SnapshotManifest) -> None:
        """Note the newest snapshot of a store partition, which the helper has also pruned."""
        self._last[job.place] = manifest
        self._pruned_ms[job.place] = self._clock.monotonic_ms()

    def _note(self, job: PartitionJob, manifest: SnapshotManifest) -> None:
        self._note_newest(job, manifest)
        self._scope.made.total += 1
        self._scope.deltas.total += manifest.base is not None
        self._scope.made_bytes.total += sum(file.bytes for file in manifest.files if not file.folder)
        log.info(
            "task %s: a snapshot of store %s is there, at offset %d: %s",
            job.task, job.store, manifest.offset, "a base" if manifest.base is None else f"delta {manifest.deltas}",
        )  # fmt: skip

    def _warn(self, why: str) -> None:
        self._scope.failed.total += 1
        log.warning("no snapshots are made, until they are due again: %s", why)

    def _remove(self, directory: Path | None) -> None:
        try:
            if directory is not None:
                remove_tree(directory)
        except StateError as error:
            log.warning("a checkpoint stays until the next start: %s", error)

    def _give_up(self) -> None:
        """End the helper process, and forget questions and checkpoints that wait."""
        making, self._making, self._asked, self._queue = self._making, None, None, []
        if making is not None:
            making.helper.kill()
            self._moments.put_back(making.taken)
            self._remove(making.job.directory)

    def close(self) -> None:
        self._give_up()
        self._context.metrics.remove(self._scope)


def _with(job: PartitionJob, changes: Changes) -> PartitionJob:
    """Return the job with the changed keys, if they are known."""
    if changes.on is None or changes.keys is None:
        return job
    return replace(job, on=changes.on, keys=changes.keys, gone=changes.gone)


def snapshots(manager: RangeStateManager, context: ThreadContext) -> Snapshots:
    """Return a `SnapshotMaker`, or `NoneMade` if the settings allow no snapshots to be made."""
    url = context.config.snapshot_url
    if url is None:
        return NoneMade()
    if urlsplit(url).scheme.lower() in ("http", "https"):
        log.info("snapshots are read from a server that can't be written to, and none are made")
        return NoneMade()
    return SnapshotMaker(manager, context)
