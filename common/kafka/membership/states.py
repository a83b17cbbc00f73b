"""The states of a group member.

    UNJOINED --join--> JOINING --JoinGroup--> SYNCING --SyncGroup--> STABLE
       ^                  ^ ^---rebalance--------'                     |
       |                  '----------------join------------------------'
       '---generation, member or session lost, poll timeout: from any of the three
    any --> CLOSED (asked for), FAILED (for good)

*Guarantees*: a move that the table doesn't have raises.
*Assumes*: nothing.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    UNJOINED = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()
    CLOSED = auto()
    FAILED = auto()


ENDS = frozenset({State.CLOSED, State.FAILED})
WAITING = frozenset({State.JOINING, State.SYNCING})
"""The broker may hold its answer back."""
TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNJOINED: frozenset({State.JOINING}) | ENDS,
    State.JOINING: frozenset({State.SYNCING, State.UNJOINED}) | ENDS,
    State.SYNCING: frozenset({State.STABLE, State.JOINING, State.UNJOINED}) | ENDS,
    State.STABLE: frozenset({State.JOINING, State.UNJOINED}) | ENDS,
    State.CLOSED: frozenset(),
    State.FAILED: frozenset(),
}


def check_move(now: State, then: State) -> None:
    if then not in TRANSITIONS[now]:
        raise AssertionError(f"a bug: membership can't go from {now.name} to {then.name}")
