"""Rules of commits: when a commit is due, when it must wait although it is due, and when tasks must wait. They are pure
functions of times and bytes.

*Guarantees*: a commit is due every `commit_interval_ms`. It is due sooner when a task asks for it, when the uncommitted
bytes reach their limit, when the transaction is too old, or when tasks were rolled back. After a roll-back every turn
commits until a commit succeeds. So a record that takes longer than the transaction timeout is alone in a transaction.
*Assumes*: all times are of one monotonic clock, in milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple


class CommitTimes(NamedTuple):
    """The times that decide about a commit, in ms. `due`: the end of the commit interval. `next_try`: no commit begins
    before this time, because the last one failed. `transaction_age`: None if no transaction is open. `most_age`: at
    this age a transaction is too old. `held_since`: the time since which commits wait for a new generation, None if
    they don't. `most_held`: how long they may wait."""

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
        """The time, in ms, until the transaction is too old. None if no transaction is open, or if it is too old
        already."""
        return None if self.transaction_age is None or self.too_old else self.most_age - self.transaction_age


class CommitReasons(NamedTuple):
    """The reasons for a commit before its interval is over. `once_more`: the last commit failed. `asked_for`: a task or
    a pause asks for it, or tasks are being committed one by one. `rolled_back`: tasks were rolled back since the last
    commit. `bytes`: the size of what a commit would take. `most_bytes`: the size at which a commit is due."""

    once_more: bool
    asked_for: bool
    rolled_back: bool
    bytes: int
    most_bytes: int


def is_due(times: CommitTimes, why: CommitReasons) -> bool:
    """True if a commit is due by its times and bytes. It may still have to wait for a rebalance (`is_held`)."""
    if times.now < times.next_try:
        return False
    if why.once_more or why.asked_for or why.rolled_back or times.now >= times.due or times.too_old:
        return True
    return why.bytes >= why.most_bytes


def is_held(times: CommitTimes) -> bool:
    """True if commits must wait for the new generation, because a commit now would race with the rebalance and be
    refused. Commits wait no longer than `most_held`. They don't wait when the transaction is too old."""
    if times.held_since is None or times.too_old:
        return False
    return times.now - times.held_since < times.most_held


def must_stop(added_bytes: int, most_bytes: int) -> bool:
    """True if no task should add uncommitted bytes, because these have reached their limit and can't be committed
    now."""
    return added_bytes >= most_bytes


def must_share(added_bytes: int, most_bytes: int) -> bool:
    """True if tasks with more than an equal share of the uncommitted bytes should add nothing, because three quarters
    of the limit are reached."""
    return 4 * added_bytes >= 3 * most_bytes
