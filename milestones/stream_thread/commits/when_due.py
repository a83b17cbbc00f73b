"""When a commit is due, when one that is due has to wait, and when tasks do: pure functions of times and bytes.

*Guarantees*: a commit is due every `commit_interval_ms`; sooner when a task asks for it, its uncommitted bytes reach
their limit, the transaction is too old, or tasks were rolled back: after a roll-back every turn commits until a commit
succeeds, so that a record that takes longer than the transaction timeout is alone in a transaction.
*Assumes*: all times are of one monotonic clock, in milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple


class CommitTimes(NamedTuple):
    """The times that a commit goes by, in ms. `now`; `due`: when the interval is over; `next_try`: before it no commit
    is begun, as the last one failed; `transaction_age`: None without an open transaction; `most_age`: from it on the
    transaction is too old; `held_since`: since when a commit that is due waits for a new generation, None
    when none does; `most_held`: how long it may."""

    now: int
    due: int
    next_try: int
    transaction_age: int | None
    most_age: int
    held_since: int | None
    most_held: int

    @property
    def too_old(self) -> bool:
        return self.transaction_age is not None and self.transaction_age >= self.most_age

    @property
    def too_old_in(self) -> int | None:
        """None when no transaction is open, or it is too old already."""
        return None if self.transaction_age is None or self.too_old else self.most_age - self.transaction_age


class CommitReasons(NamedTuple):
    """What makes a commit due before its interval is over. `once_more`: the last one failed; `asked_for`: by a task, a
    pause, or as tasks are committed one by one; `rolled_back`: tasks were, since the last commit; `bytes`: of what a
    commit would take; `most_bytes`: the bytes at which it is due."""

    once_more: bool
    asked_for: bool
    rolled_back: bool
    bytes: int
    most_bytes: int


def is_due(times: CommitTimes, why: CommitReasons) -> bool:
    """Whether a commit is to be begun, as far as its own times and bytes go."""
    if times.now < times.next_try:
        return False
    if why.once_more or why.asked_for or why.rolled_back or times.now >= times.due or times.too_old:
        return True
    return why.bytes >= why.most_bytes


def is_held(times: CommitTimes) -> bool:
    """Whether a commit that is due waits for the new generation: it would race with the rebalance, and be refused. It
    doesn't wait for longer than `most_held`, nor when the transaction is too old."""
    if times.held_since is None or times.too_old:
        return False
    return times.now - times.held_since < times.most_held


def must_stop(added_bytes: int, most_bytes: int) -> bool:
    """Whether no task should add anything: what isn't committed, and can't be now, has reached its limit."""
    return added_bytes >= most_bytes


def must_share(added_bytes: int, most_bytes: int) -> bool:
    """Whether tasks with more than an equal share should add nothing: three quarters of the limit are reached."""
    return 4 * added_bytes >= 3 * most_bytes
