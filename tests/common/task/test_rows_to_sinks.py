"""Windows and sessions whose rows go to their sink as they are in the store: the sink's records, and the engine's rows,
are those that they would be by way of the operators between."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from milestones import SessionWindows, StreamsBuilder, TimeWindows, serdes
from milestones.common.errors import MilestonesError
from milestones.common.records import Output
from milestones.common.state.stores.window_layouts import SEGMENT
from milestones.common.task.profile import Profile
from milestones.common.task.timings import Part, Timings
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness

TEXT = {"key": serdes.STRING, "value": serdes.STRING}
HEAD = SEGMENT.size
WINDOWS = {
    "sessions": SessionWindows(1_000, grace=60_000), "windows": TimeWindows(1_000, grace=60_000),
    "hopping windows": TimeWindows(1_000, advance=400, grace=60_000),
}  # fmt: skip


def joined(_: str, value: str, before: str) -> str | None:
    """The values in order; 'gone' makes an aggregate of None."""
    return None if value == "gone" else f"{before}{value}"


def topology(windows: Any, *, aggregator: Callable[..., Any] = joined, between: bool = False) -> StreamsBuilder:
    """Windows of joined texts. `between`: a node comes between, so that rows don't go to the sink as they are."""
    builder = StreamsBuilder()
    windowed: Any = builder.stream("in", **TEXT).group_by_key().windowed_by(windows)
    merging = (lambda _, one, other: one + other,) if isinstance(windows, SessionWindows) else ()
    stream = windowed.aggregate(str, aggregator, *merging, store="st", value=serdes.STRING).to_stream()
    (stream.filter(lambda *_: True) if between else stream).to("out", value=serdes.STRING)
    return builder


def begun(builder: StreamsBuilder, **settings: Any) -> Harness:
    return Harness(builder.build(), transactional_id="tx", **settings).start()


def to_sink(harness: Harness) -> list[Output]:
    """What the sink has sent since the last look."""
    before = len(harness.sent)
    harness.outputs()
    return [output._replace(node="sink") for output in harness.sent[before:] if output.topic == "out"]


def random_records(rng: random.Random) -> list[tuple[str, str, int]]:
    """Records of few keys at few times, so that the same sessions come, go and come again."""
    keys, values = ["", "a", "b"], ["x", "y", "gone"]
    return [(rng.choice(keys), rng.choice(values), 5_000 + 500 * rng.randrange(8)) for _ in range(rng.randrange(1, 6))]


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("seed", range(15))
def test_a_sink_gets_the_same_records_whether_rows_go_to_it_as_they_are_or_not(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    both = [begun(topology(WINDOWS[kind], between=between)) for between in (False, True)]
    at = 0
    for _ in range(12):
        records = random_records(rng)
        event = rng.randrange(4)
        found = []
        for each in both:
            each.pipe(*records, headers=[("a header", b"1")])
            found.append(to_sink(each))
        assert found[0] == found[1]
        at = len(records) + at if event else at
        for each in both:
            if event:
                each.commit()
            else:
                each.roll_back(at)


@pytest.mark.parametrize("logs_at_commit", [False, True])
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("seed", range(15))
def test_the_engine_has_what_the_changelog_has_after_each_commit(seed: int, kind: str, logs_at_commit: bool) -> None:
    rng, changelog = random.Random(seed), dict[bytes, bytes]()
    harness = begun(topology(WINDOWS[kind]), logs_at_commit=logs_at_commit)
    at = 0
    for _ in range(12):
        records = random_records(rng)
        harness.pipe(*records)
        if rng.randrange(5) == 0:
            harness.roll_back(at)
            continue
        at, before = at + len(records), len(harness.sent)
        harness.outputs()
        harness.commit()
        for output in harness.sent[before:]:
            if output.topic == "app-st-changelog":
                assert output.key is not None
                changelog.pop(output.key, None)
                if output.value is not None:
                    changelog[output.key] = output.value
        engine = harness.engine("st")
        rows = {key[HEAD:]: value if kind == "sessions" else value[8:] for key, value in engine.items()}
        assert rows == changelog


def test_a_session_that_was_committed_is_gone_after_it_has_grown() -> None:
    harness = begun(topology(WINDOWS["sessions"]))
    for records in ([("k", "x", 5_000)], [("k", "x", 5_000), ("k", "x", 5_500)]):
        harness.pipe(*records)
        harness.outputs()
        harness.commit()
    assert list(harness.engine("st").values()) == [b"xxx"]


def test_a_session_that_is_deleted_after_a_roll_back_beside_its_record_is_gone() -> None:
    happens: list[Callable[[], None]] = []

    def aggregate(key: str, value: str, before: str) -> str | None:
        if happens:
            happens.pop()()
        return joined(key, value, before)

    harness = begun(topology(WINDOWS["sessions"], aggregator=aggregate))
    harness.pipe(("k", "x", 5_000))
    harness.outputs()
    harness.commit()
    harness.feed(("k", "gone", 5_000), ("k", "y", 5_000))
    harness.run(1)

    def beside() -> None:
        other = Thread(target=harness.task.roll_back)
        other.start()
        other.join()

    happens.append(beside)
    harness.run(1)
    harness.outputs()
    harness.ends["in"] = 1
    harness.task.start(dict.fromkeys(harness.task.partitions, 1), {}, initialise=False)
    harness.go_on()
    harness.pipe(("k", "gone", 5_000))
    harness.outputs()
    harness.commit()
    assert harness.engine("st") == {}


@pytest.mark.parametrize("kind", WINDOWS)
def test_all_windows_of_the_empty_key_are_in_one_partition(kind: str) -> None:
    harness = begun(topology(WINDOWS[kind]))
    harness.pipe(("", "x", 5_000), ("a", "x", 5_000), ("", "x", 50_000))
    tail = 16 if kind == "sessions" else 8
    assert len({output.partition for output in to_sink(harness) if len(output.key or b"") == tail}) == 1


@pytest.mark.parametrize("kind", ["sessions", "windows"])
def test_an_error_of_the_sink_names_the_sink(kind: str) -> None:
    def no_partitions(_: str) -> int:
        raise MilestonesError("no partitions")

    builder = topology(WINDOWS[kind])
    harness = begun(builder, partitions_of=no_partitions)
    with pytest.raises(MilestonesError, match=r"KSTREAM-SINK-\d+"):
        harness.pipe(("k", "x", 5_000))


@pytest.mark.parametrize("kind", ["sessions", "windows"])
def test_a_profile_has_the_sink_of_such_rows(kind: str) -> None:
    profile = Profile()
    begun(topology(WINDOWS[kind]), profile=profile).pipe(("k", "x", 5_000))
    assert Timings(profile.edges()).total_ns(Part("node", "KSTREAM-SINK-0000000003")) > 0


def test_the_old_value_of_a_session_is_the_stored_one_whatever_the_merger_does_to_it() -> None:
    def merger(_: str, one: list[str], other: list[str]) -> list[str]:
        other.append("changed by the merger")
        return one + other[:-1]

    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", **TEXT).group_by_key().windowed_by(SessionWindows(1_000, grace=60_000))
    lists = grouped.aggregate(list, lambda _, value, before: [*before, value], merger, value=serdes.JSON)
    by_key = lists.group_by(lambda windowed, values: (windowed.key, values), key=serdes.STRING, value=serdes.JSON)
    totals = by_key.aggregate(
        int, lambda _, values, total: total + len(values), lambda _, values, total: total - len(values),
        value=serdes.JSON,
    )  # fmt: skip
    totals.to_stream().to("out", key=serdes.STRING, value=serdes.JSON)
    with TopologyTestDriver(builder.build()) as driver:
        for value, time in (("x", 5_000), ("y", 5_500), ("z", 6_000)):
            driver.pipe("in", b"k", value.encode(), time)
        assert driver.produced()["out"][-1].value == b"3"
