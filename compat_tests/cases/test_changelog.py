"""Changelogs that are not what the application left: truncated, compacted, or with a tail that no reader is handed.

A store keeps what it has, as long as the changelog still has the store's own offset. Else it is rebuilt from what is
left, and the log says so: keys whose last change was deleted begin anew. Of a compacted one, a key's last change is all
that anybody needs, wherever his store's offset is. Records of transactions that were aborted, and the control records
of any, end a changelog as well as others do: restoration passes them and completes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import pytest
from confluent_kafka import Producer

from compat_tests.cases.flows import COUNT, COUNT_IN_MEMORY, as_long
from compat_tests.cases.steps import feed_until_it_dies
from compat_tests.harness.feed import FIRST_TIMESTAMP
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge, judge, judge_offsets, judge_store
from compat_tests.harness.stores import dumps
from compat_tests.harness.world import World
from compat_tests.oracles import outputs
from compat_tests.oracles.changelog import StoreDump, fold
from compat_tests.oracles.findings import Findings, hold
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.rows import Place, Row, origin_of
from milestones.testing import NotYet

KEYS = 300
STRANGE = 10**6
"""A count that isn't ours."""
COMPACTED: Settings = {
    "topic_min_compaction_lag_ms": 0,
    "topic_segment_ms": 200,
    "topic_min_cleanable_dirty_ratio": 0.01,
}
"""A segment for each 200 records or so: their timestamps are a millisecond apart."""
WAITS_S = 3.0
"""More than these restorations take when nothing holds them up."""


def count_more(world: World, app: Instance, count: int = 1_000) -> list[Row]:
    """Send inputs, later than all before, have them counted, stop cleanly; the inputs."""
    feed = world.feeds["in"]
    later = len(feed.rows)
    sent = feed.send([one._replace(timestamp=one.timestamp + later) for one in world.records(count, KEYS)])
    if not app.running:
        app.start()
    world.finish(app)
    return sent


def counting(world: World) -> Instance:
    """An application that is about to count."""
    world.input("in", 2, out=2)
    return world.instance("count")


def changelog(world: World) -> list[Place]:
    return world.cluster.places([world.topic("counts-changelog")])


def truncate(world: World, before: Mapping[Place, int]) -> None:
    """Kafka deletes records on demand only where it may delete some by itself, which takes it a moment to learn."""
    world.cluster.set_topic(world.topic("counts-changelog"), {"cleanup.policy": "delete", "retention.ms": "-1"})

    def truncated() -> bool:
        world.cluster.truncate(before)
        return True

    world.wait(truncated, "the changelog is truncated")


def stores(world: World, app: Instance) -> list[StoreDump]:
    """What lies on the application's disk, by partition."""
    return sorted(dumps(app.state_dir, world.application_id, world.directory), key=lambda dump: dump.task)


@pytest.mark.full
def test_a_changelog_truncated_up_to_a_stores_offset_costs_nothing(world: World) -> None:
    app = counting(world)
    count_more(world, app)
    truncate(world, {at: dump.offset or 0 for at, dump in zip(changelog(world), stores(world, app), strict=True)})
    count_more(world, app)
    assert "rebuilt" not in app.log(), app.log_tail()
    judge(world, COUNT_IN_MEMORY)
    table = outputs.table(COUNT, world.feeds["in"].rows, world.cluster.read(world.topic("out")))
    entries = {key: value[8:] for dump in stores(world, app) for key, value in dump.entries.items()}
    assert entries == {key: entry.value for key, entry in table.items()}


@pytest.mark.parametrize(
    ("store", "left"),
    [
        ("old", "half"),
        pytest.param("old", "nothing", marks=pytest.mark.full),
        pytest.param("gone", "half", marks=pytest.mark.full),
        pytest.param("gone", "nothing", marks=pytest.mark.full),
    ],
)
@pytest.mark.short_under("exactly_once_v2")
def test_a_store_that_lacks_what_its_changelog_lost_counts_on_from_what_is_left(
    world: World, store: str, left: str
) -> None:
    app = counting(world)
    count_more(world, app)
    old = world.cluster.ends(changelog(world))
    shutil.copytree(app.state_dir, world.directory / "old")
    count_more(world, app)
    shutil.rmtree(app.state_dir)
    if store == "old":
        shutil.move(world.directory / "old", app.state_dir)
    ends = world.cluster.ends(changelog(world))
    truncate(world, {at: ends[at] if left == "nothing" else (old[at] + ends[at]) // 2 for at in ends})
    start = fold(world.cluster.read(world.topic("counts-changelog")))
    sent = count_more(world, app)
    assert ("is rebuilt from its changelog" in app.log()) == (store == "old"), app.log_tail()
    hold(counted_from(world, {key: int.from_bytes(entry.value) for key, entry in start.items()}, sent))
    hold(judge_store(world, "counts", None), judge_offsets(world, ()))


@pytest.mark.parametrize("state", ["old", "gone"])
@pytest.mark.full
def test_a_changelog_that_kafka_has_compacted_gives_the_same_state(world: World, state: str) -> None:
    """A store from before, too, whose offset lies where hardly a record is left."""
    world.input("in", 2, out=2)
    app = world.instance("count", **COMPACTED)
    count_more(world, app)
    shutil.copytree(app.state_dir, world.directory / "old")
    for _ in range(3):
        count_more(world, app)
    await_compacted(world, 4_000)
    shutil.rmtree(app.state_dir)
    if state == "old":
        shutil.move(world.directory / "old", app.state_dir)
    count_more(world, app)
    assert "rebuilt" not in app.log(), app.log_tail()
    judge(world, COUNT)


def await_compacted(world: World, written: int) -> None:
    """Kafka looks for something to compact every 15 s."""

    def compacted() -> object:
        left = len(world.cluster.read(world.topic("counts-changelog")))
        return left < written / 2 or NotYet(f"{left} of {written} records are left")

    world.wait(compacted, "the changelog is compacted")


def counted_from(world: World, start: Mapping[bytes, int], inputs: list[Row]) -> Findings:
    """The outputs of these inputs against counts that begin at `start`."""
    topic = world.topic("out")
    flow = Flow(
        sources=("in",),
        output="out",
        expand=lambda row: [(row.key, row.key)],
        encode=as_long,
        step=lambda count, key: (start.get(key, 0) if count is None else count) + 1,
    )
    theirs = {(row.place, row.offset) for row in inputs}
    found = [
        row
        for row in world.cluster.read(topic)
        if (origin := origin_of(row)) is not None and (origin.place, origin.offset) in theirs
    ]
    return outputs.exact(flow, inputs, found, world.cluster.topics()[topic])


@pytest.mark.full
def test_a_changelog_that_ends_in_a_transaction_cut_off_by_kill_9_is_restored(world: World) -> None:
    app = counting(world)
    app.start(fault="commit.after-flush:kill:3")
    feed_until_it_dies(world, app)
    shutil.rmtree(app.state_dir)
    app.start()
    end_and_judge(world, COUNT, crashed=True)


@pytest.mark.full
@pytest.mark.parametrize("state", ["kept", "gone"])
def test_a_changelog_that_ends_in_aborted_records_of_a_stranger_is_restored(world: World, state: str) -> None:
    app = counting(world)
    count_more(world, app)
    stranger = begin_a_strangers_transaction(world)
    stranger.abort_transaction(30)
    if state == "gone":
        shutil.rmtree(app.state_dir)
    count_more(world, app)
    judge(world, COUNT)


@pytest.mark.full
def test_a_changelog_with_nothing_but_a_control_record_left_is_restored(world: World) -> None:
    app = counting(world)
    count_more(world, app)
    begin_a_strangers_transaction(world).abort_transaction(30)
    truncate(world, {place: end - 1 for place, end in world.cluster.ends(changelog(world)).items()})
    shutil.rmtree(app.state_dir)
    hold(counted_from(world, {}, count_more(world, app)))
    hold(judge_store(world, "counts", None), judge_offsets(world, ()))


@pytest.mark.full
@pytest.mark.parametrize("end", ["aborted", "committed"])
def test_restoration_waits_for_an_open_transaction_and_completes_after_its_end(world: World, end: str) -> None:
    app = counting(world)
    count_more(world, app)
    stranger = begin_a_strangers_transaction(world)
    shutil.rmtree(app.state_dir)
    app.start()
    app.says("restores")
    assert world.cluster.open_transactions([world.topic("counts-changelog")])
    world.let_pass(WAITS_S, "a restoration that doesn't wait is over")
    assert not app.restorations(), app.log_tail()
    if end == "aborted":
        stranger.abort_transaction(30)
        count_more(world, app)
        judge(world, COUNT)
    else:
        stranger.commit_transaction(30)
        sent = count_more(world, app)
        hold(counted_from(world, {b"k%d" % number: STRANGE for number in range(KEYS)}, sent))
        hold(judge_store(world, "counts", None), judge_offsets(world, ()))


def begin_a_strangers_transaction(world: World) -> Producer:
    """Wrong counts of all keys, in an open transaction of nobody of the application."""
    stranger = Producer(
        {
            "bootstrap.servers": world.cluster.bootstrap_servers,
            "transactional.id": f"{world.application_id}-stranger",
            "log_level": 0,
        }
    )
    stranger.init_transactions(30)
    stranger.begin_transaction()
    for place in changelog(world):
        for number in range(KEYS):
            stranger.produce(place.topic, as_long(STRANGE), b"k%d" % number, place.partition, timestamp=FIRST_TIMESTAMP)
    assert stranger.flush(30) == 0
    return stranger
