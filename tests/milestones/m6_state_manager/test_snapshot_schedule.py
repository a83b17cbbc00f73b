"""When an instance makes snapshots: at its interval, sooner where much has changed, and where no standby does."""

from __future__ import annotations

from dataclasses import replace

from milestones.m6_state_manager.snapshots.schedule import Timetable, behind, by_importance, fresh, grown
from tests.common.state.test_snapshot import MANIFEST

LARGE = replace(MANIFEST, offset=1_000, files=(replace(MANIFEST.files[0], entries=10_000),))


def test_a_snapshot_is_due_after_the_interval_and_sooner_when_its_changelog_has_grown() -> None:
    times = Timetable(600_000, standbys=False)
    assert [times.due(at, 0, grown=False) for at in (599_999, 600_000)] == [False, True]
    assert [times.due(at, 0, grown=True) for at in (59_999, 60_000)] == [False, True]


def test_a_changelog_has_grown_when_it_has_a_tenth_of_the_entries_more() -> None:
    assert [grown(offset, LARGE) for offset in (1_000, 1_999, 2_000)] == [False, False, True]
    assert not grown(5_000, None)
    assert [grown(offset, replace(LARGE, files=())) for offset in (1_000, 1_001)] == [False, True]


def test_a_standby_makes_snapshots_and_the_active_task_only_when_none_has_for_two_intervals() -> None:
    for standbys, expected in ((True, 1_000_000 - 120_000), (False, None)):
        times = Timetable(60_000, standbys)
        assert times.since_ms(1_000_000, leads=True) == expected
        assert times.since_ms(1_000_000, leads=False) == 1_000_000 - 30_000


def test_a_follower_that_lags_makes_none() -> None:
    assert [behind(100, end, leads=False, most=10) for end in (110, 111)] == [False, True]
    assert not behind(100, 10_000, leads=True, most=10)


def test_a_snapshot_is_renewed_when_half_of_its_time_is_over() -> None:
    aged = replace(MANIFEST, created_ms=1_000, usable_until_ms=3_000)
    assert [fresh(aged, now) for now in (2_000, 2_001)] == [True, False]
    assert fresh(replace(aged, usable_until_ms=None), 1 << 40)


def test_the_most_important_sub_topology_comes_first() -> None:
    assert by_importance([0, 1, 2], {2: 4}) == [2, 0, 1]
