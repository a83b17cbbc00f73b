"""`MemberState`: the states of a group member, and the allowed changes.

    UNJOINED --join--> JOINING --JoinGroup--> SYNCING --SyncGroup--> STABLE
       ^                  ^ ^---rebalance--------'                     |
       |                  '----------------join------------------------'
       '---generation, member or session lost, poll timeout: from any of the three
    any --> CLOSED (asked for), FAILED (for good)

*Guarantees*: a change that the table doesn't contain raises `AssertionError`.
*Assumes*: nothing.
"""

from __future__ import annotations

from enum import Enum, auto


class MemberState(Enum):
    UNJOINED = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()
    CLOSED = auto()
    FAILED = auto()


ENDS = frozenset({MemberState.CLOSED, MemberState.FAILED})
WAITING = frozenset({MemberState.JOINING, MemberState.SYNCING})
"""The states in which the member waits for an answer that the broker may delay."""
TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    MemberState.UNJOINED: frozenset({MemberState.JOINING}) | ENDS,
    MemberState.JOINING: frozenset({MemberState.SYNCING, MemberState.UNJOINED}) | ENDS,
    MemberState.SYNCING: frozenset({MemberState.STABLE, MemberState.JOINING, MemberState.UNJOINED}) | ENDS,
    MemberState.STABLE: frozenset({MemberState.JOINING, MemberState.UNJOINED}) | ENDS,
    MemberState.CLOSED: frozenset(),
    MemberState.FAILED: frozenset(),
}


def check_move(now: MemberState, then: MemberState) -> None:
    if then not in TRANSITIONS[now]:
        raise AssertionError(f"a bug: membership can't go from {now.name} to {then.name}")
