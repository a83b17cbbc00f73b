"""Equal shares of tasks by capacity, with as few moves as can be.

*Guarantees*
- `QuotaDealer`: over all deals, over those of one kind, and in each single one the shares of two holders differ by at
  most one per unit of capacity, and so by one where their capacities are equal; each deal hands out exactly its number.
- `distribute`: each holder gets exactly its shares; it keeps what it owns within them.
- The same input gives the same answer; so does what has come closer to the answer since.

*How*: capacity is cut into the largest units of which each holder has a whole number: equal holders have one each. In
each deal every unit gets the same whole number, and the remainder goes to the units that have got the fewest remainders
yet, among equals to those whose holder owns more already.

*Assumes*: at least one holder, capacities of at least 1; a holder is a process, or a member within a process.
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
"""How many tasks each holder gets."""


@dataclass(frozen=True)
class SubtopologyTasks:
    """The tasks of one sub-topology, in order."""

    stateful: bool
    tasks: tuple[TaskId, ...]


def groups_of(tasks: Iterable[TaskId], plan: TaskPlan) -> list[SubtopologyTasks]:
    """The tasks by sub-topology, the stateful ones first."""
    stateful = plan.stateful
    grouped: dict[tuple[bool, int], list[TaskId]] = defaultdict(list)
    for task in sorted(tasks):
        grouped[task not in stateful, task.subtopology].append(task)
    return [SubtopologyTasks(not stateless, tuple(grouped[stateless, sub])) for stateless, sub in sorted(grouped)]


@dataclass
class _Unit:
    """A unit of a holder's capacity. `total` and `kind`: remainders got, of all deals and of those of one kind."""

    holder: str
    turn: float
    total: int = 0
    kind: int = 0


class QuotaDealer:
    """Deals numbers, not yet tasks."""

    def __init__(self, capacities: Mapping[str, int]) -> None:
        unit = gcd(*capacities.values())
        self._capacities = {holder: capacity // unit for holder, capacity in capacities.items()}
        # The turn alternates between holders in proportion to their capacity.
        self._units = [
            _Unit(holder, (index + 0.5) / capacity)
            for holder, capacity in self._capacities.items()
            for index in range(capacity)
        ]

    def among(self, holders: Collection[str]) -> QuotaDealer:
        """A dealer that continues these deals, to these holders only."""
        part = QuotaDealer({})
        part._capacities = {holder: units for holder, units in self._capacities.items() if holder in holders}
        part._units = [unit for unit in self._units if unit.holder in holders]
        return part

    def deal_groups(self, groups: Sequence[SubtopologyTasks], owner: Mapping[TaskId, str]) -> list[Shares]:
        """The shares of each group. `owner`: the holder that has, or can best have, a task already."""
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
        """Shares of `count` tasks, of which the holders have `held` already."""
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
    """A holder for each task.

    A holder with more than its share gives away tasks at a small `distance` from a holder with room, then tasks with a
    high `rank` (the number of the task among those of its member). Tasks without a holder go to holders with room: by
    `preference`, smallest first, then to the one with the most room.
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
