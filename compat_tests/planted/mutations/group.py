"""Who owns what: two at once, too early, nobody; copies where they shouldn't be; rebalances without a reason.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: the leader of every stage assigns by `TopologyLeader.assign`; a member joins by `GroupMember.join`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compat_tests.planted.mutations import around, mutation, mutation_by
from milestones.common.kafka.leader import TopologyLeader
from milestones.common.kafka.membership import Assigned, GroupMember
from milestones.common.kafka.static_members import StaticMembers
from milestones.m1_state_updater.restoration import UpdaterRestoration


def assigning(change: Any) -> None:
    """The leader gives what `change` makes of its assignments."""

    @around(TopologyLeader, "assign")
    def assign(original: Any, *arguments: Any) -> Any:
        given = yield from original(*arguments)
        return change(given)


@mutation_by(assigning)
def tasks_are_given_to_everybody(given: Any) -> Any:
    """Every member gets every task."""
    partitions = {task: places for one in given.values() for task, places in one.partitions.items()}
    everything = frozenset(partitions)
    return {name: replace(one, active=everything, partitions=partitions) for name, one in given.items()}


@mutation
def tasks_are_given_away_at_once() -> None:
    """The leader doesn't ask who has a task still: it moves in one step."""

    @around(TopologyLeader, "assign")
    def assign(original: Any, leader: Any, members: Any, *more: Any) -> Any:
        forgetful = {name: replace(member, active=frozenset()) for name, member in members.items()}
        return original(leader, forgetful, *more)


@mutation_by(assigning)
def a_task_is_given_to_nobody(given: Any) -> Any:
    """The leader forgets one task."""
    first = min(task for one in given.values() for task in one.active)
    return {
        name: replace(
            one,
            active=one.active - {first},
            partitions={task: places for task, places in one.partitions.items() if task != first},
        )
        for name, one in given.items()
    }


@mutation
def a_revoked_task_goes_on() -> None:
    """A member keeps what it once had, says that it has nothing, and never lets go."""

    @around(GroupMember, "join")
    def join(original: Any, member: Any, subscription: Any) -> None:
        original(member, replace(subscription, active=frozenset()))

    @around(GroupMember, "poll")
    def poll(original: Any, member: Any) -> list[Any]:
        return [keep(member, event) for event in original(member)]

    def keep(member: Any, event: Any) -> Any:
        if not isinstance(event, Assigned):
            return event
        kept = {**getattr(member, "kept", {}), **event.assignment.partitions}
        member.kept = kept
        return replace(event, assignment=replace(event.assignment, active=frozenset(kept), partitions=kept))


@mutation
def a_member_is_restless() -> None:
    """A member asks for a rebalance after each one, three times."""
    left = [3]

    @around(GroupMember, "poll")
    def poll(original: Any, member: Any) -> Any:
        events = original(member)
        if left[0] and any(isinstance(event, Assigned) for event in events):
            left[0] -= 1
            member.request_rejoin("a planted restlessness")
        return events


@mutation
def static_members_stay() -> None:
    """A start with fewer threads leaves the static members of the others in the group."""

    @around(StaticMembers, "remove")
    def remove(original: Any, members: Any, instance_ids: Any) -> None:
        pass


@mutation_by(assigning)
def standbys_are_where_their_actives_are(given: Any) -> Any:
    """Every member gets a standby of each task, its own ones too."""
    everything = frozenset().union(*(one.active for one in given.values()))
    return {name: replace(one, standby=everything) for name, one in given.items()}


@mutation_by(assigning)
def everything_warms_up(given: Any) -> Any:
    """Every member warms up all that it doesn't run."""
    everything = frozenset().union(*(one.active for one in given.values()))
    return {name: replace(one, standby=frozenset(), warmup=everything - one.active) for name, one in given.items()}


@mutation
def what_restores_is_waited_for() -> None:
    """A stream thread that gives up a task waits until its state updater is back with it; a second at most."""

    @around(UpdaterRestoration, "remove")
    def remove(original: Any, restoration: Any, *task: Any, **how: Any) -> None:
        original(restoration, *task, **how)
        restoration._answers.wait(1_000)
