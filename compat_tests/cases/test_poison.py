"""Records that can't be read, processed or written: what the handlers promise."""

from __future__ import annotations

import pytest

from compat_tests import ALO, EOS
from compat_tests.cases.flows import COPY, FRAGILE_COUNT
from compat_tests.cases.steps import under
from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.harness.instance import Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.rows import Row

FAILED = 1
UNREADABLE, POISON = b"\xff\xfe", b"poison"

PATIENCE: Settings = {"task_timeout_ms": 5_000}
"""How long a task that fails is tried again, on stages that do so, before it fails for good."""

POISONS = {
    "deserialization": ("copy", UNREADABLE, (COPY,)),
    "processing": ("fragile", POISON, (COPY, FRAGILE_COUNT)),
    "production": ("unwritable", POISON, (COPY,)),
}


def continuing(kind: str) -> Settings:
    """The handler that skips a poison of this kind."""
    return {f"{kind}_exception_handler": "log_and_continue"}


def send(world: World, poison: bytes) -> Row:
    """Good records, a poisonous one, good records; where the poison lies."""
    feed = world.input("in", 2, out=2, counts=2)
    feed.send(world.records(300, keys=20))
    (row,) = feed.send([Sent(b"k1", poison, FIRST_TIMESTAMP + 1_000)])
    feed.send(world.records(300, keys=20))
    return row


@pytest.mark.parametrize("kind", [under(EOS, "deserialization"), "processing", under(ALO, "production")])
def test_log_and_fail_stops_at_the_record_and_names_it(world: World, kind: str) -> None:
    topology, poison, flows = POISONS[kind]
    row = send(world, poison)
    app = world.instance(topology, **PATIENCE).start()
    app.dies(FAILED, f"record {row.place}@{row.offset}")
    assert world.committed().get(row.place, 0) <= row.offset
    app.start(**continuing(kind))
    end_and_judge(world, *flows, crashed=True, poisoned=frozenset({poison}))


@pytest.mark.parametrize("kind", [under(ALO, "deserialization"), under(ALO, "processing"), "production"])
def test_log_and_continue_skips_the_record_with_all_its_effects(world: World, kind: str) -> None:
    topology, poison, flows = POISONS[kind]
    row = send(world, poison)
    app = world.instance(topology, **continuing(kind)).start()
    end_and_judge(world, *flows, poisoned=frozenset({poison}))
    assert f"record {row.place}@{row.offset}" in app.log(), app.log_tail()


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("kind", ["deserialization", "processing"])
def test_a_dead_letter_has_the_bytes_of_the_record_and_says_where_it_lay(world: World, kind: str) -> None:
    topology, poison, flows = POISONS[kind]
    world.create(dead=1)
    row = send(world, poison)
    world.instance(topology, errors_dead_letter_queue_topic_name=world.topic("dead"), **continuing(kind)).start()
    end_and_judge(world, *flows, poisoned=frozenset({poison}))
    (letter,) = world.cluster.read(world.topic("dead"))
    assert (letter.key, letter.value) == (row.key, row.value)
    headers = dict(letter.headers)
    where = [headers[f"__streams.errors.{name}"] for name in ("topic", "partition", "offset")]
    assert where == [row.topic.encode(), str(row.partition).encode(), str(row.offset).encode()]


def test_a_record_that_kafka_refuses_fails_the_application_and_nothing_is_lost(world: World) -> None:
    world.cluster.create({world.topic("out"): 2}, {"max.message.bytes": "20000"})
    feed = world.input("in", 2)
    feed.send(world.records(100, keys=20))
    (row,) = feed.send([Sent(b"k1", b"x" * 50_000, FIRST_TIMESTAMP + 1_000)])
    app = world.instance("copy", **PATIENCE).start()
    app.dies(FAILED, world.topic("out"))
    assert world.committed().get(row.place, 0) <= row.offset
    world.cluster.set_topic(world.topic("out"), {"max.message.bytes": "200000"})
    app.start()
    end_and_judge(world, COPY, crashed=True)
