"""`Story`: the events of the demo, in their order.

*Guarantees*: `close` ends instances and feeder at any time. If an instance dies by itself, or if there is no progress
for a minute, the story ends with an error that contains the last lines of the instances' logs.
*Assumes*: a broker is running. One thread uses a `Story`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from milestones import MilestonesError
from milestones.common.kafka.creation import create_topics
from milestones.common.kafka.internal_topics import InternalTopic
from milestones.common.kafka.topics import Cluster
from milestones.demo.app import COUNTS_STORE, LETTERS, LETTERS_STORE, LINES, WORD_COUNTS, topology
from milestones.demo.check import DemoResult, decoded, most_frequent
from milestones.demo.feed import Feeder
from milestones.demo.instance import DemoInstance
from milestones.demo.reading import DemoProgress, TopicTable
from milestones.demo.view import Display, InstanceRow, View
from milestones.embedded import EmbeddedKafka
from milestones.serdes import LONG

APPLICATION_ID = "milestones-demo"
PARTITIONS = 4
SESSION_TIMEOUT_S = 10
_TICK_S = 0.25
_ASK_EVERY_S = 1.0
_STANDSTILL_S = 60.0
_LAST_WORDS_S = 5.0
_LIVE_TOP = 8
_RATE_TICKS = 12


class Story:
    """Runs two instances, and kills one of them while they process records.

    *Owns*: the instances, the feeder, the readers.
    """

    def __init__(
        self, display: Display, broker: EmbeddedKafka, text: Sequence[str], seconds: float, stage: str, folder: Path
    ) -> None:
        self._display, self._broker, self._text, self._folder = display, broker, text, folder
        self._stage, self._servers = stage, broker.bootstrap_servers
        subtopologies = topology().resolve(APPLICATION_ID)
        self._tasks = {f"{sub.id}_{number}" for sub in subtopologies for number in range(PARTITIONS)}
        self._settings = {
            "MILESTONES_APPLICATION_ID": APPLICATION_ID,
            "MILESTONES_BOOTSTRAP_SERVERS": self._servers,
            "MILESTONES_MILESTONES": stage,
            "MILESTONES_PROCESSING_GUARANTEE": "exactly_once_v2",
            # The tasks of a killed instance move only after its session is over, so the session is short here.
            "MILESTONES_SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_S * 1000),
            "MILESTONES_HEARTBEAT_INTERVAL_MS": "500",
            # Every update is emitted, so that outputs can be counted.
            "MILESTONES_STATESTORE_CACHE_MAX_BYTES": "0",
        }
        self._feeder = Feeder(self._servers, LINES, text, PARTITIONS, seconds)
        self._instances: dict[int, DemoInstance] = {}
        self._past_records = 0
        self._progress = DemoProgress(self._servers, APPLICATION_ID, LINES)
        self._asked = 0.0
        self._folds: dict[str, TopicTable] = {}
        self._rate = _Rate()
        self._top: list[tuple[str, int]] = []

    # ---- the story

    def tell(self) -> DemoResult:
        """Play the events, and return the result. 1. Create topics and start two instances. 2. Send the text. 3. Kill
        one instance half-way; the other one takes over its tasks. 4. Start a new instance. 5. Wait until everything is
        processed, and stop the instances. 6. Read the results."""
        self._create_topics()
        self._folds[WORD_COUNTS] = TopicTable(self._servers, WORD_COUNTS, PARTITIONS)
        for number in (1, 2):
            self._start(number)
        self._until(self._both_work, "both instances have tasks and run")
        self._display.event("both instances run; the text begins to flow")
        self._feeder.start()
        self._until(lambda: self._feeder.sent * 2 >= len(self._text), "half of the text was sent")
        self._kill(2)
        self._start(2)
        self._until(self._both_work, "the new instance has tasks and runs")
        self._display.event("the new instance 2 has taken over its share: " + self._shares())
        self._until(lambda: self._feeder.finished, "the text was sent")
        self._display.event("all of the text was sent")
        self._until(self._all_processed, "everything is processed and committed")
        self._display.event("the committed offsets are the ends of the topics: everything is processed")
        self._stop()
        return self._read_results()

    def _create_topics(self) -> None:
        topics = [InternalTopic(name, PARTITIONS, {}) for name in (LINES, WORD_COUNTS, LETTERS)]
        create_topics(Cluster({"bootstrap.servers": self._servers}), topics, replication_factor=1)

    def _start(self, number: int) -> None:
        previous = self._instances.get(number)
        if previous is not None:
            self._past_records += previous.report.records
            previous.close()
        instance = self._instances[number] = DemoInstance(number, self._folder, self._settings)
        again = "a new instance" if previous else "instance"
        self._display.event(f"{again} {number} starts: process {instance.pid}")

    def _kill(self, number: int) -> None:
        victim = self._instances[number]
        victim.kill()
        killed_at = time.monotonic()
        self._display.event(
            f"kill -9 of instance {number} (process {victim.pid}), which had {len(victim.report.active)} of "
            f"{len(self._tasks)} tasks; the group waits for it for {SESSION_TIMEOUT_S} s"
        )
        self._until(self._runs_all, "the other instance runs all tasks")
        self._display.event(
            f"all {len(self._tasks)} tasks run elsewhere, {time.monotonic() - killed_at:.1f} s after the kill"
        )

    def _stop(self) -> None:
        for instance in self._instances.values():
            instance.ask_to_stop()
        for number, instance in self._instances.items():
            code = instance.wait()
            if code != 0:
                how = "did not end when it was asked to" if code is None else f"ended with exit code {code}"
                raise self._failure(f"instance {number} {how}")
        self._display.event("both instances have closed with exit code 0")

    def _read_results(self) -> DemoResult:
        """Read the committed records of all topics to their ends. The topic of word counts was read from the start of
        the story."""
        changelogs = [f"{APPLICATION_ID}-{store}-changelog" for store in (COUNTS_STORE, LETTERS_STORE)]
        counts, letters, counts_log, letters_log = (self._read(topic) for topic in (WORD_COUNTS, LETTERS, *changelogs))
        return DemoResult(counts.table, letters.table, counts_log.table, letters_log.table, counts.records)

    def _read(self, topic: str) -> TopicTable:
        if topic not in self._folds:
            self._folds[topic] = TopicTable(self._servers, topic, PARTITIONS)
        fold = self._folds[topic]
        fold.read_to(self._progress.ends([topic]))
        self._display.event(f"topic {topic} is read to its end: {fold.records:,} records, {len(fold.table):,} keys")
        return fold

    # ---- what has happened

    def _both_work(self) -> bool:
        return self._runs_all() and all(instance.report.active for instance in self._instances.values())

    def _runs_all(self) -> bool:
        living = [instance.report for instance in self._instances.values() if instance.alive]
        running = {task for report in living for task in report.active}
        return self._tasks <= running and all(report.running for report in living)

    def _all_processed(self) -> bool:
        return self._progress.read >= len(self._text) and self._progress.done()

    def _shares(self) -> str:
        return ", ".join(f"{len(i.report.active)} tasks on instance {n}" for n, i in self._instances.items())

    # ---- time

    def _until(self, happened: Callable[[], bool], what: str) -> None:
        """Show the progress until `happened()` returns True. Raises `MilestonesError` if a process has died, or if
        there is no progress for `_STANDSTILL_S`."""
        moved_at, before = time.monotonic(), None
        while not happened():
            time.sleep(_TICK_S)
            self._look()
            now = (self._feeder.sent, self._progress.read, *(i.report for i in self._instances.values()))
            if now != before:
                moved_at, before = time.monotonic(), now
            elif time.monotonic() - moved_at > _STANDSTILL_S:
                raise self._failure(f"nothing has moved for {_STANDSTILL_S:.0f} s, before {what}")

    def _look(self) -> None:
        if not self._broker.running:
            raise MilestonesError("the broker ended by itself")
        for number, instance in self._instances.items():
            if not instance.killed and (instance.exit_code is not None or instance.report.failed):
                code = instance.wait(_LAST_WORDS_S)
                raise self._failure(f"instance {number} failed by itself, with exit code {code}")
        if self._feeder.error is not None:
            raise MilestonesError(f"the text could not be sent: {self._feeder.error}") from self._feeder.error
        self._folds[WORD_COUNTS].poll()
        if time.monotonic() - self._asked >= _ASK_EVERY_S:
            self._asked = time.monotonic()
            self._progress.update()
            self._top = most_frequent(decoded(self._folds[WORD_COUNTS].table, LONG), _LIVE_TOP)
        self._display.show(self._view())

    def _view(self) -> View:
        rows = [InstanceRow(n, i.pid, i.report if i.alive else None) for n, i in self._instances.items()]
        records = self._past_records + sum(i.report.records for i in self._instances.values())
        rate = self._rate.per_second(records, time.monotonic())
        progress, sent = self._progress, self._feeder.sent
        return View(len(self._text), sent, progress.read, rate, progress.lag, rows, self._top, self._stage)

    def _failure(self, what: str) -> MilestonesError:
        logs = [
            f"the log of instance {number} ({instance.log.name}) ends with\n" + "\n".join(instance.log_tail())
            for number, instance in self._instances.items()
        ]
        return MilestonesError("\n".join([what, *logs]))

    def close(self) -> None:
        for instance in self._instances.values():
            instance.close()
        self._feeder.close()
        for fold in self._folds.values():
            fold.close()


class _Rate:
    """Computes the records per second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=_RATE_TICKS)

    def per_second(self, records: int, now: float) -> float:
        """Note that `records` were processed in all at the time `now` (seconds). Returns the rate."""
        self._seen.append((now, records))
        then, before = self._seen[0]
        return (records - before) / (now - then) if now > then else 0.0
