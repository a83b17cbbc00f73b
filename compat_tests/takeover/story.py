"""The legs of a take-over, the run of Java alone, and the judgement over both.

*Guarantees*: what each leg leaves is looked at before an instance of the other kind starts.
*Assumes*: one instance runs at a time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial

from compat_tests.harness.cluster import TopicDetails
from compat_tests.harness.feed import Feed, Sent
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import judge_disks, judge_history, judge_leftovers, judge_transactions
from compat_tests.harness.world import World
from compat_tests.oracles import offsets
from compat_tests.oracles.findings import Findings, hold
from compat_tests.oracles.rows import Place, Row
from compat_tests.takeover import comparing
from compat_tests.takeover.brake import BEGINS
from compat_tests.takeover.comparing import Metadata
from compat_tests.takeover.java_instance import JavaInstance
from compat_tests.takeover.parts import PARTS, Application, rows_of_global_tables
from milestones.testing import NotYet

AGE_MS = 1_800_000
"""How old the first record is."""
GROUP_S = 40.0
"""Longer than the session of a member that was killed, and than its transaction."""
PROGRESS_S = 300.0
CHANGELOG = "-changelog"
BETWEEN = ("-repartition", "-subscription-registration-", "-subscription-response-")
"""What is in the names of topics by which tasks hand records to each other, upstream ones first; in capital letters
where Kafka Streams has chosen the name."""
JOINED = re.compile(r"(this|other)-join-store-changelog$|(JOIN|OUTER)(THIS|OTHER)-\d+-store-changelog$")
"""The changelogs of joined records."""
WAITING = re.compile(r"-Buffer-changelog$")
"""Those of records that wait for the row of a versioned table."""
_BEGUN = re.compile(re.escape(BEGINS) + r"(\S+)/(\d+)/(\d+)$", re.MULTILINE)


class Portion(dict[str, list[Sent]]):
    """Records of the input, by the suffixes of their topics."""


class TakeOver:
    """An application that is run by Java and by us, in turn. `told`: what each leg did, and what was compared."""

    def __init__(self, world: World, application: Application, records: int, legs: int, partitions: int = 2) -> None:
        """`records`: of all input; each of the `legs` gets a portion more of it."""
        self.world, self.application = world, application
        self.told = list[str]()
        self.java = JavaInstance(world, application, "java")
        self.ours = world.instance(
            str(application), "ours", num_stream_threads=1, topic_min_compaction_lag_ms=None,
            stream_join_unmatched="at_once",
        )  # fmt: skip
        self._app, self._alone = world.application_id, f"{world.application_id}.alone"
        self._killed = self._alike = False
        self._topics: Mapping[str, TopicDetails] = {}
        self._metadata: Mapping[Place, Metadata] = {}
        self._findings: Findings = []
        self._portions = self._prepared(records, legs, partitions)

    def _prepared(self, records: int, portions: int, partitions: int) -> list[Portion]:
        """The topics, and what is to come into them."""
        world, names = self.world, self.application.parts
        first_ms, made = int(time.time() * 1_000) - AGE_MS, [Portion() for _ in range(portions)]
        world.cluster.create({f"{app}-{name}": partitions for name in names for app in (self._app, self._alone)})
        for name in names:
            part = PARTS[name]
            for suffix in part.inputs:
                world.input(f"{name}-{suffix}", partitions)
            for suffix in part.everywhere:
                self._write_global(world.topic(f"{name}-{suffix}"), partitions, first_ms)
            of_part = part.input(world.rng, records // len(names), first_ms, partitions, portions)
            for portion, of_portion in zip(made, of_part, strict=True):
                for suffix, record in of_portion:
                    portion.setdefault(f"{name}-{suffix}", []).append(record)
        return made

    def _write_global(self, topic: str, partitions: int, first_ms: int) -> None:
        """No group commits offsets of a global table's topic: it is no feed of the world's."""
        self.world.cluster.create({topic: partitions})
        with closing(Feed(self.world.cluster, topic, partitions)) as feed:
            feed.send(rows_of_global_tables(first_ms))

    # ---- legs

    def leg(self, instance: Instance, *, kill: bool = False, alike: bool = False) -> None:
        """Write the next portion, and run the instance until a half of it is processed; after the last one until all
        is. `kill`: it ends by `kill -9`; `alike`: the next one is of its kind, and need not be alone in the group."""
        world, began = self.world, time.monotonic()
        before, portion = self._sent(), self._portions.pop(0)
        for suffix, records in portion.items():
            world.feeds[suffix].send(records)
        committed, enough = self._committed(stable=not self._alike), (before + self._sent()) // 2
        instance.start()
        if self._portions:
            world.wait(partial(self._has_done, enough), f"{enough} records are processed", PROGRESS_S)
        else:
            world.processed(self._topics_between(self._app), PROGRESS_S)
        if kill:
            instance.kill()
        else:
            instance.stop()
        self._alike, self._killed = alike, self._killed or kill
        self._findings += comparing.begins_there(committed, _begun(instance.log()))
        if not alike:
            self.await_nobody()
            self._look()
        done, spent_s = sum(self._committed(stable=False).values()), time.monotonic() - began
        how = "killed" if kill else "stopped"
        self.told.append(f"{instance.name} {how} at {done} of {self._sent()} records, {spent_s:.0f} s")

    def _sent(self) -> int:
        return sum(len(feed.rows) for feed in self.world.feeds.values())

    def _has_done(self, enough: int) -> object:
        done = sum(self._committed(stable=False).values())
        return done >= enough or NotYet(f"{done} of {enough} records")

    def _inputs(self) -> list[Place]:
        return self.world.cluster.places(feed.topic for feed in self.world.feeds.values())

    def _committed(self, *, stable: bool) -> dict[Place, int]:
        """Committed offsets of the inputs; `stable`: once a transaction that was left open has ended."""
        return self.world.cluster.committed_now(self._app, self._inputs(), stable=stable)

    def await_nobody(self, group: str = "") -> None:
        """Wait until the group, by default the take-over's, has no members."""

        def nobody() -> object:
            state = self.world.cluster.group_state(group or self._app)
            return state in ("EMPTY", "DEAD") or NotYet(state)

        self.world.wait(nobody, "the group has no members", GROUP_S)

    def _look(self) -> None:
        """What is left, beside what was there before."""
        topics, metadata = self._internal_topics(self._app), self._read_metadata(self._app)
        if self._topics:
            self._findings += comparing.same_topics(self._topics, topics)
        self._findings += comparing.metadata_kept(self._metadata, metadata)
        self._topics, self._metadata = topics, metadata

    def _internal_topics(self, application_id: str) -> dict[str, TopicDetails]:
        """All but inputs and outputs, by the names that they have beside the application's."""
        known = {suffix for name in self.application.parts for suffix in (name, *_inputs_of(name))}
        found = self.world.cluster.topic_details(f"{application_id}-").items()
        ours = {topic.removeprefix(f"{application_id}-"): told for topic, told in found}
        return {topic: told for topic, told in ours.items() if topic not in known}

    def _topics_between(self, application_id: str) -> list[str]:
        topics = self._internal_topics(application_id)
        return sorted((topic for topic in topics if not topic.endswith(CHANGELOG)), key=_stage)

    def _read_metadata(self, group: str) -> dict[Place, Metadata]:
        told = self.world.cluster.committed_metadata(group, self._inputs())
        return {place: Metadata.read(text) for place, text in told.items()}

    # ---- Java alone

    def run_alone(self) -> None:
        """Java from the beginning to the end."""
        world, began = self.world, time.monotonic()
        application = Application(self.application.inputs, self.application.parts)
        java = JavaInstance(world, application, "alone", self._alone).start()
        inputs = self._inputs()

        def processed() -> object:
            committed, ends = world.cluster.committed_now(self._alone, inputs), world.cluster.ends(inputs)
            left = sum(max(0, end - committed.get(place, 0)) for place, end in ends.items())
            return left == 0 or NotYet(f"{left} records left")

        world.wait(processed, "Java alone has processed all input", PROGRESS_S)
        for topic in self._topics_between(self._alone):
            behind = partial(world.topic_behind, f"{self._alone}-{topic}", self._alone)
            world.wait(behind, f"{topic} is processed", PROGRESS_S)
        java.stop()
        self.await_nobody(self._alone)
        self.told.append(f"Java alone: {self._sent()} records, {time.monotonic() - began:.0f} s")

    # ---- the judgement

    def judge(self) -> None:
        """Hold the take-over to what Java alone has done."""
        world, exact = self.world, self.world.exactly_once or not self._killed
        findings = self._findings + self._judge_outputs(exact) + self._judge_changelogs(exact)
        findings += self._judge_internal_topics()
        findings += comparing.same_metadata(self._read_metadata(self._alone), self._metadata)
        findings += offsets.exactly_the_end(world.committed(), world.cluster.ends(self._inputs()))
        findings += judge_history(world) + judge_transactions(world, exact=not self._killed)
        findings += judge_leftovers(world, exact=not self._killed)
        for name in self.application.parts:
            for store in PARTS[name].on_disk:
                findings += judge_disks(world, store)
        print("\n".join(self.told))
        hold(findings)

    def _both(self, topic: str) -> tuple[list[Row], list[Row]]:
        """The records of Java alone, and those of the take-over."""
        read = self.world.cluster.read
        return read(f"{self._alone}-{topic}"), read(f"{self._app}-{topic}")

    def _judge_outputs(self, exact: bool) -> Findings:
        findings: Findings = []
        check = comparing.same_outputs if exact else comparing.repeated_outputs
        for name in self.application.parts:
            alone, found = self._both(name)
            findings += check(name, PARTS[name], alone, found)
            self.told.append(f"{name}: {len(alone)} records of Java alone, {len(found)} here")
        return findings

    def _judge_changelogs(self, exact: bool) -> Findings:
        """All of them; after kills at least once those of tables only: the others hold what was processed twice."""
        findings: Findings = []
        tables = {f"{store}{CHANGELOG}" for name in self.application.parts for store in PARTS[name].tables}
        for topic in sorted(self._topics):
            if topic.endswith(CHANGELOG) and (exact or topic in tables):
                alone, found = self._both(topic)
                findings += _check_of(topic)(topic, alone, found)
                name = topic.removeprefix(f"{self._app}-")
                self.told.append(f"{name}: {_rows(alone)} rows of Java alone, {_rows(found)} here")
        return findings

    def _judge_internal_topics(self) -> Findings:
        """Whoever has made them: the same names, partition counts and settings as of Java alone."""
        alone, found = (
            {topic: told._replace(id="") for topic, told in topics.items()}
            for topics in (self._internal_topics(self._alone), self._topics)
        )
        return comparing.same_topics(alone, found)


def _check_of(changelog: str) -> Callable[[str, list[Row], list[Row]], Findings]:
    if JOINED.search(changelog):
        return comparing.same_log
    return comparing.same_buffer if WAITING.search(changelog) else comparing.same_changelog


def _inputs_of(name: str) -> Iterable[str]:
    """The suffixes of a part's topics that the suite writes to."""
    return (f"{name}-{suffix}" for suffix in (*PARTS[name].inputs, *PARTS[name].everywhere))


def _stage(topic: str) -> int:
    """How far downstream the topic lies. `StopIteration` for a topic of another kind: nothing would wait for it."""
    return next(at for at, part in enumerate(BETWEEN) if part in topic.lower())


def _begun(log: str) -> dict[Place, int]:
    """With which offsets an instance began. A task that came back began once more: the first time counts."""
    found = dict[Place, int]()
    for topic, partition, offset in _BEGUN.findall(log):
        found.setdefault(Place(topic, int(partition)), int(offset))
    return found


def _rows(rows: list[Row]) -> int:
    return len({(row.partition, row.key) for row in rows})
