"""At least once, a changelog may be ahead of the last commit: what a thread restores goes by the committed times."""

from __future__ import annotations

import pytest

from milestones import StreamsBuilder, TimeWindows, serdes
from milestones.common.state.times import observed_time
from milestones.common.task.metadata import OffsetMetadata, offset_entry
from milestones.common.windowed import START_AND_SEQUENCE
from tests.milestones.fakes import IN, LOG, A, Running, World
from tests.milestones.stepped import RunningUpdater, UpdaterWorld

FAR = 1_000_000
"""By which the first window is gone."""


def windows() -> StreamsBuilder:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key()
    grouped.windowed_by(TimeWindows(50, grace=0)).count("counts")
    return builder


@pytest.mark.parametrize("has_updater", [False, True], ids=["by the thread", "by its updater"])
@pytest.mark.parametrize(("committed", "kept"), [(5, [0, FAR]), (FAR, [FAR])], ids=["ahead", "committed"])
def test_a_window_is_restored_unless_it_is_gone_by_what_is_committed(
    committed: int, kept: list[int], has_updater: bool
) -> None:
    topology = windows().build()
    r = RunningUpdater(UpdaterWorld(topology)) if has_updater else Running(World(topology))
    entries = r.world.logs[LOG].entries
    for start in (0, FAR):
        key = b"k" + START_AND_SEQUENCE.pack(start, 0)
        entries.append(r.world.logs[LOG].message(len(entries), key, serdes.LONG.serialize("", 1), 9))
    times = {observed_time("counts"): committed}
    r.world.commit(IN, 1, OffsetMetadata(committed, 1, "tx", times, offsets={offset_entry("in"): 1}).encode())
    r.run(0)
    rows = r.world.state.content(A, "counts")
    assert sorted(int.from_bytes(key[9:17], "big") for key in rows) == kept
