"""Divides tasks into equal shares by capacity, with as few moves as possible.

A holder is a process, or a member within a process. A deal decides how many tasks of a group each holder gets.

*Guarantees*
- `QuotaDealer`: the shares of two holders differ by at most one per unit of capacity. This holds in each deal, over all
  deals of one kind (stateful, stateless), and over all deals. Each deal hands out exactly the given number of tasks.
- `distribute`: each holder gets exactly its share, and keeps the tasks that it owns within this share.
- The same input leads to the same result. The result stays the same while tasks move towards it.

*How*: capacity is divided into the largest units of which each holder has a whole number, so that equal holders have
one unit each. In each deal every unit gets the same whole number of tasks. The remaining tasks go to the units that
have got the fewest remaining tasks so far, and among these to units whose holder owns more tasks already.

*Assumes*: at least one holder, and capacities of at least 1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from milestones.common.assignment.plan import TaskPlan
from milestones.common.records import TaskId

Shares = dict[str, int]
"""The number of tasks that each holder gets."""


@dataclass(frozen=True)
class SubtopologyTasks:
    """The tasks of one sub-topology, in order."""

    stateful: bool
    tasks: tuple[TaskId, ...]


def groups_of(tasks: Iterable[TaskId], plan: TaskPlan) -> list[SubtopologyTasks]:
    """Return the tasks grouped by sub-topology. Stateful groups come first."""
    stateful = plan.stateful
    grouped: dict[tuple[bool, int], list[TaskId]] = defaultdict(list)
    for task in sorted(tasks):
        grouped[task not in stateful, task.subtopology].append(task)
    return [SubtopologyTasks(not stateless, tuple(grouped[stateless, sub])) for stateless, sub in sorted(grouped)]


@dataclass
class _Unit:
    """A unit of a holder's capacity. `total` and `kind` count the remaining tasks it got: in all deals, and in those of
    one kind."""

    holder: str
    turn: float
    total: int = 0
    kind: int = 0


class QuotaDealer:
    """Decides how many tasks each holder gets. Which tasks these are is decided later, by `distribute`."""

    def __init__(self, capacities: Mapping[str, int]) -> None:
        unit = gcd(*capacities.values())
        self._capacities = {holder: capacity // unit for holder, capacity in capacities.items()}
        # By this order, holders take turns in proportion to their capacity.
        self._units = [
            _Unit(holder, (index + 0.5) / capacity)
            for holder, capacity in self._capacities.items()
            for index in range(capacity)
        ]

    def among(self, holders: Collection[str]) -> QuotaDealer:
        """Return a dealer that continues with these holders only."""
        part = QuotaDealer({})
        part._capacities = {holder: units for holder, units in self._capacities.items() if holder in holders}
        part._units = [unit for unit in self._units if unit.holder in holders]
        return part

    def deal_groups(self, groups: Sequence[SubtopologyTasks], owner: Mapping[TaskId, str]) -> list[Shares]:
        """Return the shares of each group. `owner`: the holder that has a task already, or can restore it most easily.
        """
        result: list[Shares] = []
        for index, group in enumerate(groups):
            if index and group.stateful != groups[index - 1].stateful:
                self.next_kind()
            held = Counter(owner[task] for task in group.tasks if task in owner)
            result.append(self.deal(len(group.tasks), held))
        return result

    def next_kind(self) -> None:
        for unit in self._units:
            unit.kind = 0

    def deal(self, count: int, held: Mapping[str, int]) -> Shares:
        """Return the shares of `count` tasks. `held`: the number of them that each holder has already."""
        each, rest = divmod(count, len(self._units))
        shares = {holder: each * capacity for holder, capacity in self._capacities.items()}
        spare = {holder: held.get(holder, 0) - share for holder, share in shares.items()}
        ranked: list[tuple[int, int, bool, float, str, _Unit]] = []
        for unit in sorted(self._units, key=lambda unit: (unit.total, unit.kind, unit.turn, unit.holder)):
            wanted = spare[unit.holder] > 0
            spare[unit.holder] -= 1
            ranked.append((unit.total, unit.kind, not wanted, unit.turn, unit.holder, unit))
        ranked.sort(key=lambda entry: entry[:5])
        for *_, unit in ranked[:rest]:
            unit.total += 1
            unit.kind += 1
            shares[unit.holder] += 1
        return shares


def distribute(
    tasks: Sequence[TaskId],
    shares: Shares,
    owner: Mapping[TaskId, str],
    distance: Callable[[TaskId, str], int],
    preference: Callable[[TaskId, str], tuple[Any, ...]],
    rank: Mapping[TaskId, int],
) -> dict[TaskId, str]:
    """Return a holder for each task.

    A holder with more tasks than its share gives some away: first tasks at a small `distance` from a holder with room,
    then tasks with a high `rank` (the task's number among those of its member). A task without a holder goes to the
    holder with room that has the smallest `preference`, and among equal ones to the holder with the most room.
    """
    mine: dict[str, list[TaskId]] = defaultdict(list)
    homeless: list[TaskId] = []
    for task in tasks:
        mine[owner[task]].append(task) if task in owner else homeless.append(task)
    room = {holder: share - len(mine[holder]) for holder, share in shares.items()}
    free = [holder for holder, left in room.items() if left > 0]

    def near(task: TaskId) -> int:
        return min((distance(task, holder) for holder in free), default=0)

    result: dict[TaskId, str] = {}
    for holder, owned in mine.items():
        if room[holder] < 0:
            owned.sort(key=lambda task: (-near(task), rank.get(task, 0), task))
            homeless += owned[shares[holder] :]
            room[holder] = 0
        result.update((task, holder) for task in owned[: shares[holder]])
    for task in sorted(homeless, key=lambda task: (near(task), task)):
        best = min(
            (holder for holder, left in room.items() if left > 0),
            key=lambda holder: (*preference(task, holder), -room[holder], holder),
        )
        room[best] -= 1
        result[task] = best
    return result
