"""At least once, a changelog may be ahead of the group's last commit: a Spark task that restores from it goes by the
committed times, and so does a snapshot that is made of it. On a real broker, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from milestones import StreamsBuilder, TimeWindows, serdes
from milestones.common.clock import SystemClock
from milestones.common.windowed import FOREVER, START_AND_SEQUENCE
from milestones.pipeline.hosting.ranges import RangeEnd
from milestones.pipeline.snapshots.jobs import snapshot_jobs
from tests.pipeline.attempts_bench import AT_LEAST_ONCE, EXACTLY_ONCE, Bench, Make

pytestmark = pytest.mark.kafka

SIZE_MS, LEAP_MS = 1_000, 10_000_000
THEN = 100 * SIZE_MS
"""The time of the first records."""


def windows(app: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    grouped = builder.stream(f"{app}-in", key=serdes.STRING, value=serdes.STRING).group_by_key()
    counts = grouped.windowed_by(TimeWindows(SIZE_MS, grace=0)).count("counts").to_stream()
    counts.select_key(lambda windowed, _: windowed.key).to(f"{app}-out", key=serdes.STRING, value=serdes.LONG)
    return builder


def counted_once(bench: Make, guarantee: str) -> Bench:
    """One record is counted and committed; then an attempt that was killed has logged what came much later."""
    b = bench(guarantee, program=windows)
    b.probe.write(b.input.topic, "one", key="k", timestamp=THEN)
    assert b.attempt(b.range(1)).end is RangeEnd.DONE
    ahead = b"z" + START_AND_SEQUENCE.pack(THEN + LEAP_MS, 0)
    b.probe.write(f"{b.id}-counts-changelog", bytes(7) + b"\1", key=ahead, timestamp=THEN + LEAP_MS, partition=0)
    return b


def test_a_task_finds_a_window_that_is_gone_by_the_changelog_alone(bench: Make, tmp_path: Path) -> None:
    b = counted_once(bench, AT_LEAST_ONCE)
    b.config = b.config.replace(state_dir=str(tmp_path / "elsewhere"))
    b.probe.write(b.input.topic, "two", key="k", timestamp=THEN)
    assert b.attempt(b.range(2)).restored == 2
    assert b.counts() == [1, 2]


@pytest.mark.parametrize(("guarantee", "time"), [(AT_LEAST_ONCE, THEN), (EXACTLY_ONCE, FOREVER)])
def test_a_snapshot_keeps_what_is_not_gone_by_the_commit(
    bench: Make, tmp_path: Path, guarantee: str, time: int
) -> None:
    """Exactly once, the changelog is never ahead."""
    b = counted_once(bench, guarantee)
    (job,) = snapshot_jobs(b.application, b.config, f"file://{tmp_path}", SystemClock())
    assert job.committed_time == time
