"""The benchmark of snapshots that an instance makes: what it says of a delta, and of a thread that was held."""

from __future__ import annotations

from pathlib import Path

from benchmarks.snapshot.counting import Ticker
from benchmarks.snapshot.delta import sizes


def test_a_delta_of_one_percent_takes_a_small_part_of_its_base(tmp_path: Path) -> None:
    base, delta = sizes(tmp_path, 20_000, seed=1)
    assert 0 < delta < 0.03 * base


def test_a_thread_that_was_held_says_for_how_long() -> None:
    times = iter([0.0, 0.001, 0.003, 0.103])
    ticker = Ticker(lambda: next(times))
    ticker.ends.wait = lambda _: len(ticker.late_ms) == 3  # type: ignore[assignment]
    ticker.run()
    assert [round(late) for late in ticker.late_ms] == [0, 1, 99]
