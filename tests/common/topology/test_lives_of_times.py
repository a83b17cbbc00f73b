"""Nothing that happens in a task's life changes a result: whatever ends it, and wherever it goes on, the results are
those of one process that nothing disturbs. One random life per seed, over operators of each kind
(`compat_tests.apps.times`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Message

from compat_tests.apps.times import expected, random_records, times
from compat_tests.harness.feed import Sent
from milestones import StreamsBuilder, Topology, serdes
from milestones.common.records import OffsetAndMetadata, Output, TaskId, TopicPartition
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.storage import TaskStorage
from milestones.common.task.standby import StandbyTask
from milestones.common.task.task import Task, TaskSettings
from milestones.common.testing import StepClock
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import message, named

pytestmark = pytest.mark.usefixtures("quiet")

NOW = 1_700_000_000_000
INPUT = TopicPartition("app-in", 0)
FAILS = b"fails"
SEEDS = 6


def refuse(_key: str, value: str) -> None:
    if value == FAILS.decode():
        raise ValueError(value)


def failing_at_last() -> StreamsBuilder:
    """The last operator fails some records, when all others have seen them."""
    builder = times("app")
    builder.stream("app-in", key=serdes.STRING, value=serdes.STRING).peek(refuse)
    return builder


class Life:
    """A task, its successors and their standby; what Kafka has: input, changelogs, committed offsets, outputs."""

    def __init__(
        self, records: list[Sent], *, exactly_once: bool, logs_at_commit: bool, topology: Topology | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.sub, *_ = (failing_at_last().build() if topology is None else topology).resolve("app")
        self.id = TaskId(self.sub.id, 0)
        self.settings = TaskSettings(
            "app", StepClock(NOW), lambda _: 1, transactional_id="tx" if exactly_once else "",
            logs_at_commit=logs_at_commit, processing_handler=LogAndContinue(), **settings,
        )  # fmt: skip
        self.records, self.exactly_once, self.rng = records, exactly_once, random.Random(len(records))
        self.at, self.metadata = 0, ""
        self.changelogs: dict[str, list[Output]] = {topic: [] for topic in self.sub.changelogs.values()}
        self.sent: list[Output] = []
        self.results: list[tuple[Any, ...]] = []
        self.standby: StandbyTask | None = None
        self.begin(self.empty())

    @property
    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What Kafka has; nothing before the first commit."""
        return {INPUT: OffsetAndMetadata(self.at, self.metadata)} if self.metadata else {}

    def empty(self) -> TaskStorage:
        return MemoryTaskStorage(self.id, self.sub.stores)

    def begin(self, storage: TaskStorage) -> None:
        self.storage = storage
        self.task = Task(self.id, self.sub, [INPUT], self.settings, lambda: storage)
        self.task.open()
        self.task.know(self.committed)
        self.follow(self.task)
        self.go_on()

    def follow(self, task: Task | StandbyTask, most: int = 1_000) -> None:
        offsets = task.changelog_offsets()
        for store, topic in self.sub.changelogs.items():
            first = offsets[store] or 0
            found = self.changelogs[topic][first : first + most]
            task.restore(store, [_logged(first + at, one) for at, one in enumerate(found)], first + len(found))

    def go_on(self) -> None:
        self.task.start({INPUT: self.at}, {INPUT: self.metadata})
        rest = self.records[self.at :]
        self.task.input.add(
            INPUT, [message(self.at + n, one.key, one.value, one.timestamp, "app-in") for n, one in enumerate(rest)]
        )

    @property
    def done(self) -> bool:
        return self.at == len(self.records)

    # -- what happens

    def process(self) -> None:
        self.task.process(1, 0)

    def commit(self) -> None:
        commit = self.task.freeze()
        outputs = [*self.sent, *named(commit.all_outputs())]
        self.sent = []
        self.log(outputs)
        self.results += [(one.key, one.value, one.timestamp) for one in outputs if one.topic not in self.changelogs]
        ends = {store: len(self.changelogs[topic]) for store, topic in self.sub.changelogs.items()}
        self.task.applied(commit, ends)
        self.at, self.metadata = commit.offsets[INPUT], commit.metadata[INPUT]

    def log(self, outputs: list[Output]) -> None:
        for one in outputs:
            if one.topic in self.changelogs:
                self.changelogs[one.topic].append(one)

    def log_in_part(self, outputs: list[Output]) -> None:
        """Kafka has the first records of each changelog, as by a crash while they are sent."""
        for topic in self.changelogs:
            rows = [one for one in outputs if one.topic == topic]
            self.changelogs[topic] += rows[: self.rng.randint(0, len(rows))]

    def lose(self) -> None:
        """What isn't committed is void; at least once, the changelogs have a part of it all the same."""
        lost = [*self.sent, *named(self.task.take_outputs())]
        self.sent = []
        if not self.exactly_once:
            self.log_in_part(lost)

    def live_at_random(self, rng: random.Random) -> None:
        """To the end of the input, at least once, through anything that may happen."""
        while not self.done:
            for _ in range(rng.randint(1, 9)):
                self.process()
            if rng.random() < 0.5:
                rng.choice(ALWAYS)(self)
            else:
                self.commit()

    def roll_back(self) -> None:
        self.lose()
        self.task.roll_back()
        self.go_on()
        self.task.initialise()

    def die(self) -> None:
        """As by kill -9: the next one has the disk as it is."""
        self.lose()
        self.begin(self.storage)

    def die_in_a_commit(self) -> None:
        """Kafka has the outputs, a part of the changelogs, and no offsets."""
        commit = self.task.freeze()
        outputs = [*self.sent, *named(commit.all_outputs())]
        self.sent = []
        self.results += [(one.key, one.value, one.timestamp) for one in outputs if one.topic not in self.changelogs]
        self.log_in_part(outputs)
        self.begin(self.rng.choice([self.storage, self.empty()]))

    def die_with_the_disk(self) -> None:
        self.lose()
        self.begin(self.empty())

    def follow_a_bit(self) -> None:
        if self.standby is None:
            storage = self.empty()
            self.standby = StandbyTask(self.id, self.sub, lambda: storage)
            self.standby.open()
        self.standby.know(self.committed)
        self.follow(self.standby, 7)

    def promote(self) -> None:
        """The standby becomes the task, and the task the standby."""
        self.follow_a_bit()
        assert self.standby is not None
        self.lose()
        promoted, given = self.standby.recycle(), self.task.recycle()
        self.begin(promoted)
        self.standby = StandbyTask(self.id, self.sub, lambda: given)
        self.standby.open()


def _logged(at: int, one: Output) -> Message:
    return message(at, one.key, one.value, one.timestamp, one.topic, [*one.headers] if one.headers else None)


Event = Callable[[Life], None]
EVENTS: Mapping[bool, tuple[Event, ...]] = {
    True: (Life.roll_back, Life.die, Life.die_with_the_disk, Life.follow_a_bit, Life.promote),
    False: (Life.roll_back,),
}
"""By whether it is exactly once. At least once, what was in work is done twice in another process by its nature."""
AFTER_A_COMMIT = (Life.die, Life.die_with_the_disk, Life.follow_a_bit, Life.promote)


def lived(records: list[Sent], rng: random.Random, **settings: bool) -> list[tuple[Any, ...]]:
    """The results of a random life."""
    life = Life(records, **settings)
    while not life.done:
        for _ in range(rng.randint(1, 4)):
            life.process()
        if rng.random() < 0.6:
            life.commit()
            if rng.random() < 0.4:
                rng.choice(AFTER_A_COMMIT)(life)
        if rng.random() < 0.3:
            rng.choice(EVENTS[life.exactly_once])(life)
    return life.results


@pytest.mark.parametrize("logs_at_commit", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_event_of_a_tasks_life_changes_a_result(seed: int, exactly_once: bool, logs_at_commit: bool) -> None:
    rng = random.Random(seed)
    records = random_records(rng, NOW, 40)
    with_failures = [one._replace(value=FAILS) if rng.random() < 0.15 else one for one in records]
    kept = [one for one in with_failures if one.value != FAILS]
    found = lived(with_failures, rng, exactly_once=exactly_once, logs_at_commit=logs_at_commit)
    assert found == expected(kept)


Result = tuple[Any, ...]


def of(operator: str, results: list[Result]) -> set[Result]:
    """The results of an operator."""
    return {one for one in results if one[0].startswith(operator.encode() + b" ")}


ALWAYS: tuple[Event, ...] = (Life.roll_back, Life.die_in_a_commit, *AFTER_A_COMMIT)
COUNTS = ("tumbling", "hopping", "sliding", "suppressed")
SESSIONS = ("session", "closed session")


class Session(NamedTuple):
    """A session's last count. `key`: the operator, and the key of the records."""

    key: str
    start: int
    end: int
    count: int

    def has_all_of(self, other: Session) -> bool:
        within = self.start <= other.start and other.end <= self.end
        return self.key == other.key and within and other.count <= self.count


def last_of(operators: Collection[str], results: list[Result]) -> list[tuple[str, str, int, int]]:
    """The operator, the key with its window, the last count and its time, of windows that aren't deleted."""
    last = {key.decode(): (value, time) for key, value, time in results}
    rows = [(*key.rsplit(" ", 1), value, time) for key, (value, time) in last.items()]
    return [(name, key, int(value), time) for name, key, value, time in rows if name in operators and value != b"None"]


def counts_of(results: list[Result]) -> dict[str, int]:
    """The last count of each window that isn't deleted, by operator and window."""
    return {f"{operator} {window}": count for operator, window, count, _ in last_of(COUNTS, results)}


def sessions_of(results: list[Result]) -> list[Session]:
    found = [(operator, *key.split("@"), count, end) for operator, key, count, end in last_of(SESSIONS, results)]
    return [Session(f"{operator} {key}", int(start), end, count) for operator, key, start, count, end in found]


@pytest.mark.parametrize("logs_at_commit", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_at_least_once_a_crash_makes_no_count_lower_loses_no_join_and_lets_nothing_be_late(
    seed: int, logs_at_commit: bool
) -> None:
    """Changelogs are ahead of the committed offset then, in part, and by more than windows are kept."""
    rng = random.Random(seed)
    records = random_records(rng, NOW, 40)
    life = Life(records, exactly_once=False, logs_at_commit=logs_at_commit)
    life.live_at_random(rng)
    undisturbed = expected(records)
    counts, wanted_counts = counts_of(life.results), counts_of(undisturbed)
    lower = {key: (count, counts.get(key)) for key, count in wanted_counts.items() if counts.get(key, 0) < count}
    assert not lower
    sessions = sessions_of(life.results)
    assert [one for one in sessions_of(undisturbed) if not any(found.has_all_of(one) for found in sessions)] == []
    for late in ("late", "late for a close"):
        assert of(late, undisturbed) == of(late, life.results)
    assert of("inner", undisturbed) <= of("inner", life.results)
    for join in ("left", "outer"):
        found = of(join, life.results)
        # A record without a partner may find one in the store that came too late for it before.
        with_any = {(key, half) for key, value, _ in found for half in enumerate(value.split(b"+"))}
        for key, value, time in of(join, undisturbed):
            alone = [(key, half) for half in enumerate(value.split(b"+")) if half[1] != b"None"]
            assert (key, value, time) in found or (len(alone) == 1 and alone[0] in with_any), (join, key, value)


LEAP_MS = 600_000
"""Beyond the retention of windows."""


@pytest.mark.parametrize("end", [Life.die, Life.die_with_the_disk, Life.promote])
def test_at_least_once_a_crash_costs_no_window_though_time_has_moved_by_more_than_the_retention(end: Event) -> None:
    records = [Sent(b"a", b"%d" % number, NOW) for number in range(4)] + [Sent(b"b", b"later", NOW + LEAP_MS)]
    life = Life(records, exactly_once=False, logs_at_commit=False)
    for number in range(len(records)):
        if number == 2:
            life.commit()
        life.process()
    end(life)
    while not life.done:
        life.process()
        life.commit()
    assert not life.task._task_context.dropped_records
    counts = counts_of(life.results)
    for store in ("tumbling", "hopping", "sliding"):
        assert min(count for key, count in counts.items() if key.startswith(f"{store} a@")) >= 4, store
    assert max(one.count for one in sessions_of(life.results) if one.key == "session a") >= 4
