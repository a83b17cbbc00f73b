"""Random cases with ever new seeds, and a live group under fire: each for `--soak-minutes`."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE, FRAGILE_COUNT
from compat_tests.cases.owned import all_is_owned, all_is_owned_an_hour_later
from compat_tests.cases.refusals import DEAD, REFUSALS
from compat_tests.harness.feed import Sent
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.network.faults import Fault
from compat_tests.network.frames import Api
from compat_tests.oracles.findings import hold
from compat_tests.random_topologies.campaign import Campaign
from compat_tests.random_topologies.cases import cases_of_commits, random_case
from compat_tests.soak.samples import Sample, flat, sample, write
from milestones.common.state.snapshots.repository import SnapshotRepository

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

MOST_CASES = 2_000
MOST_FAILURES = 3
"""A soak that has found so many ends: each is shrunk, which takes minutes."""
SNAPSHOT_MS = 2_000
MEMTABLE_BYTES = 256 * 1024
"""So little that memtables are full, and flushed, many times: until the first time memory and disk grow."""
KILL_S, CUT_S, SAMPLE_S, BATCH_S, LATE_S = 20.0, 15.0, 2.0, 0.2, 3.0
REFUSED_ONE_IN = 1_000
COMMIT = {"at_least_once": Api.OFFSET_COMMIT, "exactly_once_v2": Api.END_TXN}
"""The request that makes a commit."""
TIMES = 20
"""How often each fault meets each step of a commit."""
BATCH = 20
"""Records per `BATCH_S`: an hour is 360,000 records, all of which are judged at the end."""


@pytest.fixture
def until(request: pytest.FixtureRequest) -> float:
    """When this case ends, of `time.monotonic`."""
    return time.monotonic() + float(request.config.option.soak_minutes) * 60


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Tells at once how far things are."""

    def tell(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    return tell


@pytest.fixture
def told(campaign: Campaign, say: Callable[[str], None]) -> Campaign:
    """One that tells at once how far it is."""
    campaign.say = say
    return campaign


def test_ever_new_random_cases_are_as_promised(
    told: Campaign, request: pytest.FixtureRequest, guarantee: str, until: float
) -> None:
    first, faults = request.config.option.seed, told.broker.has_faults
    told.run((random_case(first + n, guarantee, broker_faults=faults) for n in range(MOST_CASES)), until, MOST_FAILURES)
    told.hold()


def test_each_fault_at_each_step_of_a_commit_is_survived_by_twenty_random_topologies(
    told: Campaign, request: pytest.FixtureRequest, guarantee: str, until: float
) -> None:
    cases = cases_of_commits(request.config.option.seed, guarantee, TIMES, broker_faults=told.broker.has_faults)
    told.run(cases, until, MOST_FAILURES)
    told.hold()


def test_a_live_group_with_a_kill_every_twenty_seconds_stays_exact_and_flat(
    world: World, until: float, say: Callable[[str], None], report_file: Callable[[str], Path]
) -> None:
    """One instance is never killed, but every few seconds the network loses what Kafka says of a commit of its: its
    memory, handles and threads stay what they are. The others are killed, in turn."""
    world.input("in", 6, out=4)
    group = started(world, "count-by-value")
    seen = Seen(report_file(f"soak-{world.stage}-{world.guarantee}.csv"), say)
    under_fire(world, group, until, seen, lambda: world.groups(BATCH, 2_000, 500))
    end_and_judge(world, COUNT_BY_VALUE, crashed=True, repartitions=[BY_VALUE_REPARTITION])
    hold(flat(seen.of("a")), group[0].leftovers())


def test_a_live_group_with_refused_records_and_late_answers_stays_exact_and_flat(
    world: World, until: float, say: Callable[[str], None], report_file: Callable[[str], Path]
) -> None:
    """Kafka refuses one record in a thousand as too old; its dead letter is written, the others are counted."""
    too_old = REFUSALS["too old"]
    world.cluster.create({world.topic("out"): 6}, dict(too_old.takes))
    world.input("in", 6, counts=6, dead=1)
    letters = {"production_exception_handler": "log_and_continue", DEAD: world.topic("dead")}
    group = started(world, "noting", **letters)
    seen = Seen(report_file(f"soak-refused-{world.stage}-{world.guarantee}.csv"), say)
    refused = set[bytes]()

    def some_too_old() -> list[Sent]:
        batch = world.records(BATCH, 2_000, lambda number: f"v{number}-{len(world.feeds['in'].rows)}")
        if len(world.feeds["in"].rows) % REFUSED_ONE_IN < BATCH:
            batch[0] = batch[0]._replace(timestamp=too_old.timestamp)
            refused.add(batch[0].value or b"")
        return batch

    under_fire(world, group, until, seen, some_too_old)
    end_and_judge(world, FRAGILE_COUNT, crashed=True)
    outputs = Counter(row.value for row in world.cluster.read(world.topic("out")))
    dead = Counter(row.value for row in world.cluster.read(world.topic("dead")))
    assert dead.keys() == refused
    assert outputs.keys() == {row.value for row in world.feeds["in"].rows} - refused
    if world.exactly_once:
        assert {*dead.values(), *outputs.values()} == {1}
    hold(flat(seen.of("a")), group[0].leftovers())


def test_a_live_group_that_makes_snapshots_is_killed_moved_and_wiped_and_stays_exact_and_flat(
    world: World, until: float, say: Callable[[str], None], report_file: Callable[[str], Path]
) -> None:
    """Every two seconds a snapshot is made, a delta mostly, and of two instances one is killed, stopped, or loses its
    disk, in turn: the other ones take its tasks over, and it begins with snapshots when it has nothing else."""
    if not world.has("state_manager"):
        pytest.skip("instances make snapshots from m6 on")
    world.input("in", 6, out=4)
    url = f"file://{world.directory}/snapshots"
    settings = {"snapshot_interval_ms": SNAPSHOT_MS, "rocksdb_write_buffer_bytes": MEMTABLE_BYTES}
    group = started(world, "count-by-value", snapshot_url=url, num_standby_replicas=1, **settings)
    seen = Seen(report_file(f"soak-snapshots-{world.stage}-{world.guarantee}.csv"), say)
    strikes = cycle((killed, killed, moved, moved, wiped, wiped))
    under_fire(world, group, until, seen, lambda: world.groups(BATCH, 2_000, 500), lambda one: next(strikes)(one))
    end_and_judge(world, COUNT_BY_VALUE, crashed=True, repartitions=[BY_VALUE_REPARTITION])
    hold(flat(seen.of("a")), group[0].leftovers())
    for one in group:
        all_is_owned(world, one)
    all_is_owned_an_hour_later(SnapshotRepository(url, world.application_id))
    logs = [one.log_file.read_text(errors="replace") for one in group[1:]]
    assert all("begins with the" in log for log in logs), "a wiped instance begins with snapshots"


def killed(victim: Instance) -> None:
    victim.kill()
    victim.start()


def moved(victim: Instance) -> None:
    """Its tasks go to the others, and come back."""
    victim.stop()
    victim.start()


def wiped(victim: Instance) -> None:
    """Its disk is gone."""
    victim.kill()
    shutil.rmtree(victim.state_dir)
    victim.start()


def started(world: World, application: str, **settings: Any) -> list[Instance]:
    """Three instances, the first of which reaches Kafka through the proxy, if there is one."""
    group = [world.instance(application, name, num_stream_threads=2, **settings) for name in "abc"]
    if (proxy := world.broker.proxy) is not None:
        group[0].config["bootstrap_servers"] = proxy.bootstrap_servers
    for one in group:
        one.start()
    world.group_is(*group)
    return group


class Seen:
    """What the processes have used so far; a soak that is ended from outside leaves it in `file`."""

    def __init__(self, file: Path, say: Callable[[str], None]) -> None:
        self.samples: list[Sample] = []
        self._file, self._say = file, say

    def of(self, instance: str) -> list[Sample]:
        return [one for one in self.samples if one.instance == instance]

    def tell(self, text: str) -> None:
        write(self.samples, self._file)
        self._say(text)


def under_fire(
    world: World,
    group: list[Instance],
    until: float,
    seen: Seen,
    batch: Callable[[], list[Sent]],
    strike: Callable[[Instance], None] = killed,
) -> None:
    """The same load all the time, a `strike` every 20 s, and between them an answer to a commit that is lost or
    late."""
    feed, kills, samples = world.feeds["in"], 0, seen.samples
    began = time.monotonic()
    next_kill, next_cut, next_sample = began + KILL_S, began + CUT_S, began
    cuts: list[Fault] = []
    while (now := time.monotonic()) < until:
        feed.send(batch())
        world.must_live()
        if now >= next_kill:
            victim = group[1 + kills % (len(group) - 1)]
            kills, next_kill = kills + 1, now + KILL_S
            strike(victim)
            seen.tell(f"{now - began:.0f} s, {len(feed.rows)} records, {kills} kills; {samples[-len(group)]}")
        if now >= next_cut and (proxy := world.broker.proxy) is not None:
            next_cut = now + CUT_S
            for cut in cuts[-1:]:
                cut.end()
            api = COMMIT[world.guarantee]
            cuts.append(proxy.delay(LATE_S, api, times=1) if len(cuts) % 2 else proxy.lose(api, times=1))
        if now >= next_sample:
            next_sample = now + SAMPLE_S
            met = sum(cut.hits for cut in cuts)
            looked = [
                sample(now - began, one.name, one.starts, one.pid, len(feed.rows), kills, met, one.state_dir)
                for one in group
            ]
            samples += [one for one in looked if one is not None]
        world.let_pass(now + BATCH_S - time.monotonic(), "the next batch is due")
    seen.tell(f"{kills} kills, {sum(cut.hits for cut in cuts)} answers lost or late, {len(feed.rows)} records")
