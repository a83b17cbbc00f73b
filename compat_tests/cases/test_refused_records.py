"""One record in a thousand that Kafka refuses: the handler decides about it, and no call of user code is repeated.

From M5 on an interval is sent again without what was left out; a task that fails of its record goes back alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest

from compat_tests.apps.handlers import CONFUSED
from compat_tests.cases.calls import Noted
from compat_tests.cases.ends import ALONE, ENDED
from compat_tests.cases.failures import key_of
from compat_tests.cases.flows import COPY, FRAGILE_COUNT
from compat_tests.cases.refusals import DEAD, REFUSALS, Refusal
from compat_tests.harness.emitting import COLLECTED
from compat_tests.harness.feed import Sent
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.rows import Row

KEYS, PARTITIONS, PARTITION = 200, 6, 0
RECORDS, ONE_IN = 4_000, 1_000
"""One in so many is refused."""
SETTINGS: Settings = {"num_stream_threads": 1, "num_processing_threads": 3, "transaction_timeout_ms": 10_000}

refusals = pytest.mark.parametrize("refusal", ["too old", pytest.param("too large", marks=pytest.mark.full)])


@pytest.fixture(autouse=True)
def _decides_about_one(world: World) -> None:
    if not world.has(COLLECTED):
        pytest.skip("all tasks go back until it is known which record it is: `test_task_failures.py`")


def started(world: World, refusal: Refusal, **settings: str) -> tuple[Instance, Noted]:
    world.cluster.create({world.topic("out"): PARTITIONS}, dict(refusal.takes))
    world.input("in", PARTITIONS, counts=PARTITIONS, dead=1)
    app = world.instance("noting", **{**SETTINGS, **settings}).start()
    return app, Noted.of(world)


def send(world: World, noted: Noted, refusal: Refusal, count: int = RECORDS, one_in: int = ONE_IN) -> list[Row]:
    """Records, one in so many of them such that its output is refused, all of one task, with a key of their own: at
    least once, others of the key would overtake them. Where they lie."""
    records = noted.records(count, KEYS)
    for at in range(one_in // 2, count, one_in):
        value = (records[at].value or b"") + b" " + b"x" * refusal.padding
        records[at] = Sent(key_of(PARTITION, "refused"), value, refusal.timestamp)
    rows = []
    for start in range(0, count, 500):
        rows += world.feeds["in"].send(records[start : start + 500])
    return rows[one_in // 2 :: one_in]


def calls_were_made_once(world: World, noted: Noted, but: int | None = None) -> None:
    """`but`: of this partition nothing is said."""
    rows, again = world.feeds["in"].rows, noted.again()
    print(f"{world.stage}: of {len(rows)} records calls of {len(again)} were made again")
    assert not [name for name in again if rows[int(name[1:])].partition != but]


@refusals
def test_a_refused_record_that_is_skipped_costs_no_call_and_has_its_dead_letter(world: World, refusal: str) -> None:
    what = REFUSALS[refusal]
    _, noted = started(world, what, production_exception_handler="log_and_continue", **{DEAD: world.topic("dead")})
    refused = send(world, noted, what)
    values = frozenset(row.value or b"" for row in refused)
    world.processed()
    calls_were_made_once(world, noted)
    end_and_judge(world, FRAGILE_COUNT, crashed=not world.exactly_once)  # what is sent again is there again
    letters = Counter(row.value for row in world.cluster.read(world.topic("dead")))
    outputs = Counter(row.value for row in world.cluster.read(world.topic("out")))
    if world.exactly_once:
        assert {*letters.values(), *outputs.values()} == {1}
    assert letters.keys() == values
    assert outputs.keys() == {row.value for row in world.feeds["in"].rows} - values


MANY, RARE = 60_000, 10_000


@pytest.mark.full
@pytest.mark.parametrize("refusal", [*REFUSALS])
def test_intervals_too_large_to_be_sent_one_by_one_in_the_time_of_a_transaction_are_committed(
    world: World, refusal: str
) -> None:
    what = REFUSALS[refusal]
    rare = {"commit_interval_ms": "4000", "transaction_timeout_ms": "10000"}
    _, noted = started(world, what, production_exception_handler="log_and_continue", **rare)
    refused = {row.value for row in send(world, noted, what, MANY, RARE)}
    world.processed()
    calls_were_made_once(world, noted)
    end_and_judge(world, FRAGILE_COUNT, crashed=not world.exactly_once)
    outputs = Counter(row.value for row in world.cluster.read(world.topic("out")))
    assert outputs.keys() == {row.value for row in world.feeds["in"].rows} - refused


FAILING = {
    "FAIL": "log_and_fail",
    "RETRY": "compat_tests.apps.handlers:again",
    "raises": "compat_tests.apps.handlers:confused",
}


@refusals
@pytest.mark.parametrize("handler", ["FAIL", *(pytest.param(one, marks=pytest.mark.full) for one in [*FAILING][1:])])
def test_a_task_that_ends_of_a_refused_record_costs_the_others_no_call(
    world: World, refusal: str, handler: str
) -> None:
    """What won't succeed later isn't tried again, also if a handler says so; one that raises has said to fail."""
    what = REFUSALS[refusal]
    app, noted = started(world, what, production_exception_handler=FAILING[handler], task_failed=ALONE)
    refused = send(world, noted, what)
    app.says(ENDED)
    others = [place for place in world.cluster.places([world.topic("in")]) if place.partition != PARTITION]
    world.wait(lambda: world.inputs_committed(others), "the other tasks are committed")
    assert world.committed().get(refused[0].place, 0) <= refused[0].offset
    assert (CONFUSED in app.log()) == (handler == "raises")
    calls_were_made_once(world, noted, but=PARTITION)
    app.stop()
    world.cluster.set_topic(world.topic("out"), what.mended)
    app.start()
    # At least once, records that are refused with one of their batch are overtaken by the next batch.
    ordered = (COPY, FRAGILE_COUNT) if world.exactly_once else (FRAGILE_COUNT,)
    end_and_judge(world, *ordered, crashed=True)
    sent, found = by_partition(world.feeds["in"].rows), by_partition(world.cluster.read(world.topic("out")))
    assert set(found[PARTITION]) == set(sent[PARTITION])
    assert {at: first_ones(found[at]) for at in sent if at != PARTITION} == {
        at: first_ones(sent[at]) for at in sent if at != PARTITION
    }
    calls_were_made_once(world, noted, but=PARTITION)


def by_partition(rows: Iterable[Row]) -> dict[int, list[bytes | None]]:
    """Values, in order."""
    found = defaultdict[int, list[bytes | None]](list)
    for row in rows:
        found[row.partition].append(row.value)
    return found


def first_ones(values: Iterable[bytes | None]) -> list[bytes | None]:
    """In order, without repeats."""
    return list(dict.fromkeys(values))
