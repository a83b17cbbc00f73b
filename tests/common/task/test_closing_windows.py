"""At least once, windows that are emitted when they close: a crash leaves the changelog ahead of the outputs."""

from __future__ import annotations

import pytest

from milestones import SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, serdes
from milestones.common.records import Output, TopicPartition
from milestones.common.task.standby import StandbyTask
from milestones.common.topology import Topology
from tests.common.task.harness import Harness, committed
from tests.common.task.test_bounded_stores import Message

BEGIN, PAUSE_MS = 1_800_000_000, 3_600_000
"""A pause that is longer than any retention here, and than a segment."""
INPUT = TopicPartition("in", 0)
WINDOWS = [TimeWindows(50, grace=10), SlidingWindows(50, grace=10), SessionWindows(50, grace=10)]


def counting(windows: TimeWindows | SlidingWindows | SessionWindows) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key()
    counts = grouped.windowed_by(windows, emit="on_close").count("counts")
    named = counts.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start}")
    named.to("out", key=serdes.STRING, value=serdes.LONG)
    return builder.build()


def logged(task: Harness) -> list[Output]:
    return [output for output in task.sent if output.topic.endswith("-changelog")]


def closed(task: Harness) -> set[bytes | None]:
    return {key for topic, key, *_ in task.outputs() if topic == "out"}


@pytest.mark.parametrize("windows", WINDOWS, ids=lambda windows: type(windows).__name__)
def test_a_window_whose_closing_was_lost_with_a_crash_is_emitted_though_its_retention_is_over(
    windows: TimeWindows | SlidingWindows | SessionWindows,
) -> None:
    task = Harness(counting(windows)).start()
    task.pipe(("k", "v", BEGIN), ("k", "v", BEGIN + 20))
    task.commit()
    task.pipe(("k", "v", BEGIN + PAUSE_MS))  # Kafka gets what it logs, not its outputs, and no commit
    wanted, changelog = closed(task), logged(task)
    assert wanted

    other = Harness(counting(windows))
    other.task.open()
    other.task.restore("counts", [Message(output) for output in changelog], len(changelog))
    other.task.start({INPUT: 2}, {})
    other.ends["in"], other.sent = 2, changelog
    other.pipe(("j", "v", BEGIN + 30))  # a commit in between
    other.commit()
    other.pipe(("k", "v", BEGIN + PAUSE_MS))
    assert wanted <= closed(other)


def test_a_session_that_comes_again_closes_when_it_did_though_a_later_one_was_near_it_before_the_crash() -> None:
    """The later one has a record that came when the session was closed: they are two."""
    windows, times = SessionWindows(10, grace=0), (BEGIN + 32, BEGIN + 44, BEGIN + 49, BEGIN + 39)
    task = Harness(counting(windows)).start()
    task.pipe(("k", "v", BEGIN))
    task.commit()
    task.pipe(*(("k", "v", time) for time in times))  # Kafka gets what it logs, not its outputs, and no commit
    wanted, changelog = closed(task), logged(task)
    assert b"k@%d" % times[0] in wanted

    other = Harness(counting(windows))
    other.task.open()
    other.task.restore("counts", [Message(output) for output in changelog], len(changelog))
    other.task.start({INPUT: 1}, {})
    other.ends["in"], other.sent = 1, changelog
    other.pipe(*(("k", "v", time) for time in times))
    assert wanted <= closed(other)


def test_what_was_emitted_is_dropped_by_the_commits_that_follow() -> None:
    task = Harness(counting(WINDOWS[0])).start()
    for number in range(4):
        task.pipe(("k", "v", BEGIN + number * PAUSE_MS))
        task.commit()
    assert len(task.engine("counts")) == 2  # the last window, and its place in time


@pytest.mark.parametrize("windows", WINDOWS, ids=lambda windows: type(windows).__name__)
def test_a_standby_keeps_what_is_still_to_be_emitted_by_its_successor(
    windows: TimeWindows | SlidingWindows | SessionWindows,
) -> None:
    task = Harness(counting(windows)).start()
    task.pipe(("k", "v", BEGIN), ("k", "v", BEGIN + 20))
    commit = task.commit()
    task.pipe(("k", "v", BEGIN + PAUSE_MS))  # Kafka gets what it logs, not its outputs, and no commit
    wanted, changelog = closed(task), logged(task)

    other = Harness(counting(windows))
    standby = StandbyTask(other.task.id, other.task.subtopology, lambda: other.state)
    standby.open()
    for at, output in enumerate(changelog):
        standby.know(committed(commit))
        standby.restore("counts", [Message(output)], at + 1)
    storage = standby.recycle()
    other.state = storage  # type: ignore[assignment]
    other.task.open()
    other.task.know(committed(commit))
    other.task.start({INPUT: 2}, commit.metadata)
    other.ends["in"], other.sent = 2, changelog
    other.pipe(("k", "v", BEGIN + PAUSE_MS))
    assert wanted <= closed(other)


def test_a_standby_drops_what_the_group_has_committed_as_emitted() -> None:
    task = Harness(counting(WINDOWS[0])).start()
    other = Harness(counting(WINDOWS[0]))
    standby = StandbyTask(other.task.id, other.task.subtopology, lambda: other.state)
    standby.open()
    for number in range(4):
        task.pipe(("k", "v", BEGIN + number * PAUSE_MS))
        standby.know(committed(task.commit()))
        standby.restore("counts", [Message(logged(task)[-1])], number + 1)
    assert other.engine("counts") == task.engine("counts")
    assert len(task.engine("counts")) == 2
