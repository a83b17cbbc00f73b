"""One test's world: topics, instances and a seed of its own, and the judgement at its end.

*Guarantees*: two tests never share a topic, a group, a state directory or random numbers; every process is ended and
every topic deleted when the test is over.
*Assumes*: one thread.
"""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from compat_tests.apps import STATE
from compat_tests.harness.brokers import Broker
from compat_tests.harness.cluster import Cluster
from compat_tests.harness.emitting import logs_at_commits, thins_out
from compat_tests.harness.feed import FIRST_TIMESTAMP, Feed, Sent
from compat_tests.harness.instance import BASELINE, Instance
from compat_tests.harness.situation import situation
from compat_tests.oracles.group import History, history
from compat_tests.oracles.rows import Place
from compat_tests.oracles.transactions import Transaction, expired, transactions
from milestones.flags import parse_milestones
from milestones.testing import DeadlineError, NotYet, TopicTail, until

PROGRESS_S = 90.0

UNCOMPACTED_MS = 100 * 365 * 24 * 3_600_000
"""Longer than any record is old: a store that was left on the way is judged by the beginning of its changelog, which
must still be there. Kafka would take it for old, as the records' timestamps are, and compact it after seconds."""

SETTINGS: Mapping[str, Any] = {
    "commit_interval_ms": 100,
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 500,
    "transaction_timeout_ms": 5_000,
    "request_timeout_ms": 10_000,
    "task_timeout_ms": 30_000,
    "topic_min_compaction_lag_ms": UNCOMPACTED_MS,
}
"""What every application under test is started with, unless a case says otherwise."""


@dataclass
class World:
    """What a case works with. `guarantee`: the `processing_guarantee`; `stage`: `milestones`. `group_before`,
    `transactions_before`: where the broker's own topics ended when it began, as other cases' rows in them are many."""

    broker: Broker
    cluster: Cluster
    stage: str
    guarantee: str
    seed: int
    directory: Path
    application_id: str
    rng: random.Random
    feeds: dict[str, Feed] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=list)
    tails: list[TopicTail] = field(default_factory=list)
    group_before: int = 0
    transactions_before: Mapping[Place, int] = field(default_factory=dict)

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == "exactly_once_v2"

    @property
    def settings(self) -> dict[str, Any]:
        """What every application of the case is started with, on whatever it runs."""
        return {
            "application_id": self.application_id,
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "processing_guarantee": self.guarantee,
            **SETTINGS,
        }

    def has(self, flag: str) -> bool:
        """Whether the stage has this flag."""
        return flag in parse_milestones(self.stage)

    def thins(self, cache: int) -> bool:
        """Whether a cache of so many bytes leaves out outputs at the stage."""
        return thins_out(cache, self.stage)

    @property
    def logs_at_commits(self) -> bool:
        """Whether whatever has run of the application logs one record per key and commit."""
        ran = [one.stages or {BASELINE} for one in self.instances if one.starts]
        return logs_at_commits(*set().union(*ran))

    # ---- topics and inputs

    def topic(self, suffix: str) -> str:
        return f"{self.application_id}-{suffix}"

    def create(self, **partitions: int) -> None:
        """Create topics by suffix, with these partition counts."""
        self.cluster.create({self.topic(suffix): count for suffix, count in partitions.items()})

    def input(self, suffix: str, partitions: int, **others: int) -> Feed:
        """Create a topic and a feed that writes to it; `others` are created too, as by `create`."""
        self.create(**others, **{suffix: partitions})
        self.feeds[suffix] = Feed(self.cluster, self.topic(suffix), partitions)
        return self.feeds[suffix]

    @contextmanager
    def outputs(self, suffix: str = "out") -> Iterator[TopicTail]:
        """Reads what is committed to a topic, as it comes."""
        with self.cluster.tail(self.topic(suffix)) as tail:
            self.tails.append(tail)
            yield tail
            self.tails.remove(tail)

    def records(self, count: int, keys: int, value: Callable[[int], str] | None = None) -> list[Sent]:
        """Records of `keys` keys by seed, one millisecond apart."""
        return [
            Sent(
                key=b"k%d" % self.rng.randrange(keys),
                value=(value(number) if value else f"v{number}").encode(),
                timestamp=FIRST_TIMESTAMP + number,
            )
            for number in range(count)
        ]

    def groups(self, count: int, keys: int, groups: int) -> list[Sent]:
        """The same with values of so many groups."""
        return self.records(count, keys, lambda _: f"g{self.rng.randrange(groups)}")

    # ---- instances

    def instance(self, topology: str, name: str = "one", **config: Any) -> Instance:
        """An instance that isn't started yet."""
        settings = {**self.settings, "milestones": self.stage, **config}
        made = Instance(name, topology, settings, self.directory)
        self.instances.append(made)
        return made

    def must_live(self) -> None:
        """Every process that was started, and that the case neither ended nor told to end, still runs."""
        for instance in self.instances:
            if instance.starts and not instance.may_end:
                instance.must_live()

    # ---- conditions

    def processed(self, repartitions: Sequence[str] = (), timeout_s: float = PROGRESS_S) -> None:
        """Wait until all inputs are processed and committed, then all repartition topics (suffixes, upstream first),
        and until every instance is RUNNING: one that only restores would have nothing left to process either."""
        self.work_done(repartitions, timeout_s)
        self.all_run(timeout_s)

    def finish(self, *instances: Instance, repartitions: Sequence[str] = ()) -> None:
        """Wait until all is `processed`, then end these instances at once."""
        self.processed(repartitions)
        self.must_live()
        stop_all(instances)

    def work_done(self, repartitions: Sequence[str] = (), timeout_s: float = PROGRESS_S) -> None:
        """Wait until all inputs are processed and committed, then all repartition topics, whoever does it."""
        self.inputs_processed(timeout_s)
        for topic in map(self.topic, repartitions):
            self.wait(partial(self.topic_behind, topic), f"{topic} is processed", timeout_s)

    def all_run(self, timeout_s: float = PROGRESS_S) -> None:
        """Wait until every instance is RUNNING."""

        def running() -> object:
            states = {one.name: one.state() for one in self.instances if one.running}
            return set(states.values()) == {"RUNNING"} or NotYet(str(states))

        self.wait(running, "all instances are RUNNING", timeout_s)

    def inputs_processed(self, timeout_s: float = PROGRESS_S) -> None:
        """Wait until all inputs are processed and committed, whatever state the instances are in."""
        self.wait(self.inputs_committed, "all inputs are processed", timeout_s)

    def inputs_committed(self, places: Iterable[Place] | None = None, *, but: int = 0) -> object:
        """A condition: the inputs in these partitions (None: in all) are processed and committed, but for so many of
        each. Inputs have no control records: the committed offset is the end itself."""
        committed, ends = self.committed(), self.cluster.ends([*(self._input_places() if places is None else places)])
        behind = {str(at): committed.get(at) for at, end in ends.items() if committed.get(at, 0) < end - but}
        return NotYet(f"committed {behind} of {sum(ends.values())} records") if behind else True

    def _input_places(self) -> list[Place]:
        return self.cluster.places(feed.topic for feed in self.feeds.values())

    def topic_behind(self, topic: str, group: str = "") -> object:
        """A condition: no record lies behind the committed offsets of this topic; control records may. `group`: by
        default the case's application."""
        places = self.cluster.places([topic])
        committed, ends = self.cluster.committed(group or self.application_id), self.cluster.ends(places)
        behind = {place: committed.get(place, 0) for place in places if committed.get(place, 0) < ends[place]}
        if not behind:
            return True
        with TopicTail(self.cluster, behind, from_offsets=behind) as tail:
            tail.to_the_end(20)
            count = len(tail.rows)
        return NotYet(f"{count} records left behind { {str(p): at for p, at in behind.items()} }") if count else True

    def committed(self) -> dict[Place, int]:
        return self.cluster.committed(self.application_id)

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = PROGRESS_S) -> None:
        """Wait for a condition in Kafka; a passing error of Kafka's counts as not yet."""

        def patient() -> object:
            try:
                return condition()
            except KafkaException as error:
                return NotYet(str(error))

        try:
            until(patient, what, timeout_s, self.must_live)
        except DeadlineError as error:
            for instance in self.instances:
                instance.write_stacks()
            raise DeadlineError(f"{error}\n{situation(self.cluster, self.application_id, self.tails)}") from error

    def let_pass(self, seconds: float, what: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait for so long."""
        over = time.monotonic() + seconds

        def passed() -> bool:
            meanwhile()
            return time.monotonic() > over

        self.wait(passed, what, seconds + PROGRESS_S)

    def members(self) -> dict[str, frozenset[Place]]:
        """The members of the group, as `Cluster.members` says."""
        return self.cluster.members(self.application_id)

    def inputs_of(self, instance: Instance) -> set[Place]:
        """The input partitions that the group has given to it."""
        return {at for name, assigned in self.members().items() if name.startswith(instance.name) for at in assigned}

    def gives_up(self, one: Instance, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until the group goes on without an instance that stands still."""
        alone = not any(other.running for other in self.instances if other is not one)

        def given_up() -> object:
            meanwhile()
            members = self.members()
            gone = not any(name.startswith(one.name) for name in members)
            return (gone and (alone or bool(members))) or NotYet(str(sorted(members)))

        self.wait(given_up, f"{one.name}, which stands still, is given up")

    def group_is(self, *instances: Instance, timeout_s: float = PROGRESS_S) -> None:
        """Wait until these instances, and only they, have all partitions of the inputs, each something."""
        places = set(self._input_places())

        def settled() -> object:
            members = self.members()
            owned = [place for assigned in members.values() for place in assigned]
            names = {name for name in members if any(name.startswith(one.name) for one in instances)}
            right = len(members) == len(names) and all(any(n.startswith(i.name) for n in names) for i in instances)
            good = right and len(owned) == len(set(owned)) and places <= set(owned)
            return good or NotYet(str({name: sorted(map(str, assigned)) for name, assigned in members.items()}))

        self.wait(settled, f"the group is {[one.name for one in instances]} and has all inputs", timeout_s)

    def history(self, before: int | None = None) -> History:
        """What the broker wrote down about the group. `before`: only up to there, as `history_end` said."""
        rows = self.cluster.group_rows(self.application_id, self.group_before)
        return history(self.application_id, (row for row in rows if before is None or row.offset < before))

    def history_end(self) -> int:
        """How much the broker has written down so far."""
        return self.cluster.group_end(self.application_id)

    def transactions(self) -> list[Transaction]:
        """All transactions of the application."""
        return transactions(f"{self.application_id}-", self.cluster.transaction_rows(self.transactions_before))

    def expired(self) -> set[str]:
        """Its transactional ids that Kafka has forgotten."""
        return expired(f"{self.application_id}-", self.cluster.transaction_rows(self.transactions_before))

    def end(self) -> None:
        """End every process and every fault of the network, delete every topic."""
        for instance in self.instances:
            instance.end()
        if self.broker.proxy is not None:
            self.broker.proxy.heal()
        self.cluster.delete([topic for topic in self.cluster.topics() if topic.startswith(self.application_id)])

    def close(self) -> None:
        """End every client of its own: what a report still holds of a world must not go on talking to the broker."""
        for feed in self.feeds.values():
            feed.close()
        self.cluster.close()


def stop_all(instances: Iterable[Instance]) -> None:
    """SIGTERM to all at once, then a clean end of each: nobody takes over what another one gave up."""
    running = [one for one in instances if one.running]
    for one in running:
        one.says(STATE)
    for one in running:
        one.ask_to_stop()
    for one in running:
        one.dies(0)


MakeWorld = Callable[..., World]
"""(guarantee, settings of Kafka's for a broker of its own) -> the world of a case"""


@contextmanager
def new_world(
    broker: Broker,
    name: str,
    stage: str,
    guarantee: str,
    seed: int,
    directory: Path,
    kind: Callable[..., World] = World,
) -> Iterator[World]:
    """A world for the test `name`; the same seed and name give the same random numbers."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.partition("[")[0].removeprefix("test_").lower())[:40].strip("-")
    cluster = Cluster(broker.bootstrap_servers)
    application_id = f"{readable}-{uuid.uuid4().hex[:8]}"
    world = kind(
        broker, cluster, stage, guarantee, seed, directory, application_id, random.Random(f"{seed}:{name}"),
        group_before=cluster.group_end(application_id), transactions_before=cluster.transaction_ends(),
    )  # fmt: skip
    with closing(world):
        try:
            yield world
        finally:
            world.end()
