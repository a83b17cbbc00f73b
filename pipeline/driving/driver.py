"""The driver of a run plans ranges of offsets and lets Spark process them, level by level.

One pass:
1. for each level of sub-topologies, upstream first: where do its tasks' inputs end, what is committed;
2. a Spark job over all its tasks that have something left;
3. at the end of the pass: delete what repartition topics and changelogs no longer need.

A batch ends after a pass that found no records in front of the batch's ends (`batch_ends`). Micro-batches are passes at
an interval.

*Guarantees*: one job runs at a time. It is planned from Kafka's committed offsets, under the present generation. If
Spark gives a job up, its work is planned once more, unless too many jobs in a row made no progress (`lost_attempts`). A
rebalance or a stop waits a little for the running job. After that, the generation of the job's tasks is over, so that
they end soon and can't commit. The member stays in the group while unfenced attempts may still be running.
*Assumes*: everything that the driver needs is passed to the constructor.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import KafkaException

from milestones.common.clock import Clock
from milestones.common.config import StreamsConfig
from milestones.common.diagnostics import text_of
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.failures import UNKNOWN_TOPIC, error_of, is_passing
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition
from milestones.instance.admin_thread import WATCH_INTERVAL_MS
from milestones.pipeline.driving.driver_membership import DriverMembership
from milestones.pipeline.driving.kafka import KafkaView
from milestones.pipeline.driving.lost_attempts import LostAttempts
from milestones.pipeline.driving.planning import KnownPunctuations, RunLimits, plan
from milestones.pipeline.driving.spark_thread import Begin, Finished, SparkThread
from milestones.pipeline.hosting.ranges import RangeEnd, RangeOutcome, TaskRange
from milestones.pipeline.progress import Progress, Round, RunState, round_of

log: Final = logging.getLogger(__name__)

LOOK_MS = 50
"""How often the group and the job are looked at."""

PATIENCE_MS = 5_000
"""How long a rebalance, or a stop, waits for the job that runs."""

PAUSE_MS = 1_000
"""The pause after a question that Kafka couldn't answer."""

LAST_JOB_MS = 10_000
"""How long the end after an error waits for a job that was cancelled."""

KILL_MS = 20_000
"""How long a stop waits for Spark tasks that have lost their generation. Then it cancels the job, because the user's
code may never return."""

Levels = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Pace:
    """The passes of a run. `interval_ms`: the time between the beginnings of two passes, or None for a batch. `limit`:
    records of a pass.
    """

    interval_ms: int | None
    limit: int | None = None

    @property
    def batch(self) -> bool:
        return self.interval_ms is None


class TaskFailedError(MilestonesError):
    """Raised when a task failed and another attempt would fail, too. The message has the task's error."""

    def __init__(self, outcome: RangeOutcome) -> None:
        super().__init__(f"task {outcome.task} on {outcome.where}: {outcome.error}")
        self.exit_code: int = outcome.exit_code


@dataclass
class RunningJob:
    """The job that Spark runs. `late_ms`: the time after which the job takes too long, or None while nothing waits for
    its end. `doomed_ms`: the time since which its tasks can't commit any more. `killed`: True if Spark was asked to end
    the job.
    """

    round: Round
    ranges: Sequence[TaskRange]
    began_ms: int
    late_ms: int | None = None
    doomed_ms: int | None = None
    killed: bool = False


class Driver(threading.Thread):
    """*Owns*: the membership in the group, the view of Kafka, the plan. *Receives*: membership events, `Finished`, a
    request to stop. *Sends*: `Begin`; publishes `progress`.
    """

    def __init__(
        self,
        config: StreamsConfig,
        levels: Levels,
        pace: Pace,
        clock: Clock,
        *,
        membership: Callable[[], DriverMembership],
        view: Callable[[], KafkaView],
        spark: Callable[[Mailbox[Finished]], SparkThread],
    ) -> None:
        """`membership` and `view` are functions. The thread calls them itself, because the thread that makes the
        objects owns them.
        """
        super().__init__(name=f"{config.application_id}-spark-driver", daemon=True)
        self._config, self._levels, self._pace, self._clock = config, levels, pace, clock
        self._make_membership, self._make_view = membership, view
        self._done: Mailbox[Finished] = Mailbox(1, f"{self.name} finished jobs")
        self._spark = spark(self._done)
        self._known: dict[TaskId, KnownPunctuations] = {}
        self._gone: dict[TopicPartition, int] = {}
        self._had: set[TaskId] = set()
        self._complete = False
        self._running: RunningJob | None = None
        self._level, self._worked, self._pass_ms = 0, False, 0
        self._purged_ms = self._watched_ms = -math.inf
        self._lost_attempts = LostAttempts(fenced=config.exactly_once, session_ms=config.session_timeout_ms)
        self._not_before_ms = 0
        self._unanswered_ms: int | None = None
        self._asked_to_stop = threading.Event()
        self.progress: Progress = Progress(mode="batch" if pace.batch else "micro_batch")
        self.error: BaseException | None = None

    def ask_to_stop(self) -> None:
        """Ask the driver to end. Uncommitted work is dropped. May be called from any thread."""
        self._asked_to_stop.set()

    def run(self) -> None:
        state = RunState.FAILED
        try:
            self._view, self._membership = self._make_view(), self._make_membership()
            self._view.prepare()
            self._membership.start()
            self._spark.start()
            try:
                while not self.run_once(self._clock.monotonic_ms()):
                    self._done.wait(LOOK_MS)
            finally:
                self._close()
            state = RunState.COMPLETE if self._complete else RunState.STOPPED
        except BaseException as error:
            self.error = error
            with suppress(Exception):  # a log handler may raise anything
                log.error("%s ends: %s", self.name, text_of(error))
        finally:
            self.progress = replace(self.progress, state=state)

    def _close(self) -> None:
        """Close the driver. Attempts of a running or a lost job may still write for a while, even if they were killed.
        Under `at_least_once` these attempts aren't fenced. So the member doesn't leave the group in this case, and the
        group removes it when its session ends.
        """
        self._spark.close()
        if self._running is not None:
            self._spark.cancel()
            self._done.wait(LAST_JOB_MS)
        over = self._running is None and not self._in_doubt(self._clock.monotonic_ms())
        self._membership.close(leave=over or self._config.exactly_once)
        self._view.close()

    def run_once(self, now_ms: int) -> bool:
        """1. hear the group; 2. take a finished job; 3. answer the group; 4. begin the next job. True at the end."""
        self._membership.run_once()
        for finished in self._done.drain():
            self._finished(finished, now_ms)
        waits_for_us = self._membership.wanted is not None or self._asked_to_stop.is_set()
        if self._running is not None:
            if waits_for_us:
                self._hurry(self._running, now_ms)
            else:
                self._running.late_ms = None
            return False
        if self._membership.wanted is not None:
            self._membership.join()
        if self._in_doubt(now_ms):
            return self._asked_to_stop.is_set()
        self._membership.busy = frozenset()
        if self._asked_to_stop.is_set():
            return True
        if self._membership.lent is None or now_ms < self._not_before_ms:
            return False
        self._show()
        return self._answered(now_ms)

    # -- while something waits for the running job

    def _hurry(self, running: RunningJob, now_ms: int) -> None:
        """End the running job by a new generation, if something waits for its end and it takes too long."""
        running.late_ms = now_ms + PATIENCE_MS if running.late_ms is None else running.late_ms
        if now_ms < running.late_ms:
            return
        if self._membership.wanted is not None:
            running.late_ms, running.doomed_ms = None, running.doomed_ms or now_ms
            self._membership.join()
        elif running.doomed_ms is None:
            running.doomed_ms = now_ms
            self._membership.ask_for_generation("this run is to stop")
        elif self._asked_to_stop.is_set() and not running.killed and now_ms >= running.doomed_ms + KILL_MS:
            running.killed = True
            self._spark.cancel()

    def _in_doubt(self, now_ms: int) -> bool:
        return self._lost_attempts.in_doubt(now_ms, self._membership.generations)

    def _show(self) -> None:
        membership = self._membership
        self.progress = replace(
            self.progress, state=RunState.RUNNING, tasks=len(membership.tasks), generations=membership.generations
        )

    # -- passes

    def _answered(self, now_ms: int) -> bool:
        """Call `_go_on`, and try once more later if Kafka can't answer now, for `task_timeout_ms` at most."""
        try:
            complete = self._go_on(now_ms)
        except (KafkaException, KafkaUnreachableError) as error:
            since_ms = now_ms if self._unanswered_ms is None else self._unanswered_ms
            passing = isinstance(error, KafkaUnreachableError) or is_passing(error)
            if (told := error_of(error)) is not None and told.code() in UNKNOWN_TOPIC:
                passing, self._watched_ms = True, -math.inf  # the next look at the sources names a deleted source
            if not passing or now_ms - since_ms > self._config.task_timeout_ms:
                raise
            log.warning("%s: Kafka can't be asked now: %s", self.name, error)
            self._unanswered_ms, self._not_before_ms = since_ms, now_ms + PAUSE_MS
            return False
        self._unanswered_ms = None
        return complete

    def _go_on(self, now_ms: int) -> bool:
        """Begin the next level's job, or end the pass; True when a batch is complete."""
        if self._lost_attempts.unjudged:
            self._lost_attempts.judge(self._view.committed(self._lost_attempts.unjudged))
        if self._level == 0 and now_ms < self._pass_ms:
            return False
        if now_ms - self._watched_ms >= WATCH_INTERVAL_MS:
            self._watched_ms = now_ms
            if new := self._view.watch():
                self._membership.ask_for_generation(f"new source topics: {', '.join(sorted(new))}")
        if self._level == 0 and self._membership.tasks.keys() - self._had:
            self._had |= self._membership.tasks.keys()
            self._view.reopen()
        while self._level < len(self._levels):
            ranges = self._plan(self._levels[self._level])
            self._level += 1
            if ranges:
                self._begin(self._levels[self._level - 1], ranges, now_ms)
                return False
        return self._end_pass(now_ms)

    def _plan(self, level: tuple[int, ...]) -> list[TaskRange]:
        tasks = {task: inputs for task, inputs in self._membership.tasks.items() if task.subtopology in level}
        if not tasks or self._membership.lent is None:
            return []
        ends, committed = self._view.look(tasks, settled=not self._worked)
        limits = RunLimits(self._pace.limit if level == self._levels[0] else None, punctuate=not self._pace.batch)
        return plan(tasks, committed, ends, self._known, self._membership.lent, limits, self._clock.wall_ms())

    def _end_pass(self, now_ms: int) -> bool:
        worked, interval_ms = self._worked, self._pace.interval_ms
        self._level, self._worked = 0, False
        self._pass_ms = now_ms if interval_ms is None else max(now_ms, self._pass_ms + interval_ms)
        self._complete = complete = self._pace.batch and not worked and not self._membership.promised
        if complete or now_ms - self._purged_ms >= self._config.repartition_purge_interval_ms:
            self._purged_ms = now_ms
            self._view.purge(self._membership.tasks)
            self._view.trim(self._gone, self._clock.wall_ms())
        if not worked:
            self.progress = replace(self.progress, lag=0)
        if complete:
            self._say_what_is_elsewhere()
        return complete

    def _say_what_is_elsewhere(self) -> None:
        elsewhere = sorted(self._view.everything() - self._membership.tasks.keys())
        self.progress = replace(self.progress, elsewhere=len(elsewhere))
        if elsewhere:
            log.warning(
                "%s: other members of the group have tasks %s: their input is theirs to process",
                self.name, ", ".join(map(str, elsewhere)),
            )  # fmt: skip

    # -- jobs

    def _begin(self, level: tuple[int, ...], ranges: list[TaskRange], now_ms: int) -> None:
        number, planned = self.progress.jobs + 1, sum(range_.size for range_ in ranges)
        names = ", ".join(map(str, level))
        title = f"{self._config.application_id}: sub-topology {names}, {len(ranges)} tasks, {planned} offsets"
        log.info("%s: job %d: %s", self.name, number, title)
        self._worked = True
        self._membership.busy = frozenset(range_.task for range_ in ranges)
        self._running = RunningJob(Round(number, level, len(ranges), planned, 0.0), ranges, now_ms)
        self.progress = replace(self.progress, lag=planned)
        self._spark.begin(Begin(number, ranges, title))

    def _finished(self, finished: Finished, now_ms: int) -> None:
        running, error = self._running, finished.error
        assert running is not None  # only a job that was begun can finish
        seconds = (now_ms - running.began_ms) / 1000
        done = round_of(running.round, finished.outcomes, seconds, None if error is None else str(error))
        self._running = None
        self.progress = self.progress.after(done)
        if error is not None or any(outcome.end is RangeEnd.TOO_LATE for outcome in finished.outcomes):
            self._lost(running, error, now_ms)
        else:
            self._lost_attempts.none()
        for outcome in finished.outcomes:
            if outcome.end is RangeEnd.FAILED:
                raise TaskFailedError(outcome)
            self._gone |= outcome.gone
            if outcome.end is RangeEnd.DONE and outcome.schedule is not None:
                self._known[outcome.task] = KnownPunctuations(outcome.schedule, outcome.due_ms)

    def _lost(self, running: RunningJob, error: MilestonesError | None, now_ms: int) -> None:
        """Handle the loss of attempts. While some may still be running, the run keeps its tasks and starts no job for
        them.
        """
        self._lost_attempts.note(running.ranges, error, self._membership.generations)
        self._not_before_ms = now_ms + self._lost_attempts.pause_ms
        log.warning("%s: job %d is planned again: %s", self.name, running.round.number, error or "attempts were lost")
        if self._in_doubt(now_ms):
            self._membership.ask_for_generation("an attempt was lost")
