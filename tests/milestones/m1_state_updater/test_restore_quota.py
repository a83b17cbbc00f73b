"""Shares of active tasks and standbys."""

from __future__ import annotations

import pytest

from milestones.m1_state_updater.restore_quota import MOST_TURNS, RestoreQuota


def run(weight: int, rounds: int, *, standbys_have: bool = True, batch: int = 1_000) -> tuple[int, int]:
    """Records of active tasks and standbys after so many contended rounds, each of one batch: half and half if both
    read."""
    shares, active, standby = RestoreQuota(weight), 0, 0
    for _ in range(rounds):
        both = shares.standbys_read(contended=True) and standbys_have
        one, other = (batch // 2, batch // 2) if both else (batch, 0)
        shares.took(active=one, standby=other)
        active, standby = active + one, standby + other
    return active, standby


@pytest.mark.parametrize("weight", [1, 4, 10])
def test_standbys_get_one_record_for_the_weights_of_the_active_tasks(weight: int) -> None:
    active, standby = run(weight, 5_000)
    assert active / standby == pytest.approx(weight, rel=0.15)


def test_without_contention_everybody_reads() -> None:
    shares = RestoreQuota(4)
    shares.took(standby=1_000_000)
    assert shares.standbys_read(contended=False)


def test_standbys_that_have_nothing_to_read_save_no_more_than_a_turn() -> None:
    shares = RestoreQuota(4, quantum=100)
    shares.took(active=1_000_000)
    assert shares.standbys_read(contended=True)
    shares.took(standby=100)
    assert not shares.standbys_read(contended=True)


def test_a_turn_of_standbys_lasts_until_their_share_is_used_up() -> None:
    shares = RestoreQuota(1, quantum=100)
    shares.took(active=99)
    assert not shares.standbys_read(contended=True)
    shares.took(active=1)
    assert shares.standbys_read(contended=True)
    shares.took(standby=60)
    assert shares.standbys_read(contended=True)
    shares.took(standby=60)
    assert not shares.standbys_read(contended=True)


def test_standbys_keep_their_share_though_their_records_come_behind_what_was_prefetched() -> None:
    shares, active, standby, waiting = RestoreQuota(4, quantum=1_000), 0, 0, 0
    for _ in range(200):
        waiting = waiting - 100 if shares.standbys_read(contended=True) else 2_000
        one, other = (100, 0) if waiting > 0 else (50, 50)
        shares.took(active=one, standby=other)
        active, standby = active + one, standby + other
    assert active / standby == pytest.approx(4, rel=0.2)


def test_what_standbys_are_owed_in_their_turn_is_bounded_too() -> None:
    shares = RestoreQuota(1, quantum=100)
    shares.took(active=100)
    assert shares.standbys_read(contended=True)
    shares.took(active=1_000_000)
    shares.took(standby=100 * MOST_TURNS)
    assert not shares.standbys_read(contended=True)
