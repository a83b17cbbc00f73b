"""Planted: a process that grows. No broker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compat_tests.oracles.findings import kinds
from compat_tests.soak.plot import draw
from compat_tests.soak.samples import Sample, flat, read, sample, write

STEADY = [
    Sample(float(at), "a", 1, 120.0 + at % 7, 60 + at % 5, 20 + at % 2, at, 0, disk_mb=80.0 + at % 11)
    for at in range(80)
]
WARMING = [one._replace(rss_mb=50.0 + one.elapsed_s) if one.elapsed_s < 20 else one for one in STEADY]


def test_what_goes_up_and_down_or_only_warms_up_is_flat() -> None:
    assert flat(STEADY) == flat(WARMING) == []


@pytest.mark.parametrize(
    ("kind", "measure"),
    [("memory", "rss_mb"), ("handles", "handles"), ("threads", "threads"), ("disk", "disk_mb")],
)
def test_a_leak_is_found(kind: str, measure: str) -> None:
    leaking = [one._replace(**{measure: getattr(one, measure) * (1 + at / 80)}) for at, one in enumerate(STEADY)]
    assert kinds(flat(leaking)) == {kind}


def test_a_peak_in_the_last_quarter_is_no_leak() -> None:
    peak = [one._replace(handles=500) if one.elapsed_s in (65, 66, 67) else one for one in STEADY]
    assert flat(peak) == []


def test_too_few_samples_are_said_to_be_too_few() -> None:
    assert kinds(flat(STEADY[:10])) == {"samples"}


def test_samples_are_kept_as_csv(tmp_path: Path) -> None:
    write(STEADY, tmp_path / "samples.csv")
    lines = (tmp_path / "samples.csv").read_text().splitlines()
    assert lines[0].split(",")[:4] == ["elapsed_s", "instance", "starts", "rss_mb"]
    assert len(lines) == 81
    assert read(tmp_path / "samples.csv") == STEADY


def test_samples_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(STEADY, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000


def test_a_process_that_lives_is_measured_and_one_that_has_ended_is_not(tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "table").write_bytes(bytes(3 << 20))
    (tmp_path / "checkpoint").hardlink_to(tmp_path / "engines" / "table")
    own = sample(1.0, "a", 1, os.getpid(), 5, 0, home=tmp_path)
    assert own is not None
    assert own.rss_mb > 1
    assert own.handles > 0
    assert own.disk_mb == 3.0
    assert sample(1.0, "a", 1, 2**22 + 1, 5, 0) is None
