"""What the default assignor promises (docs/assignment.md), one promise at a time."""

from __future__ import annotations

import time

from milestones.common.assignment.handover import assign
from milestones.common.assignment.machines import COMMAND_TAG
from milestones.common.assignment.model import SPARK
from milestones.common.assignment.rules import Rules
from milestones.common.records import TaskId
from tests.common.assignment.cluster import Cluster, member, plan_of, settle

A, B = TaskId(0, 0), TaskId(0, 1)
MUCH = 1_000_000


def cluster_of(size: int, rules: Rules | None = None, **members: str) -> Cluster:
    """One stateful sub-topology, all its tasks running, everything caught up; members by the process they are in."""
    cluster = Cluster(plan_of([size], {0}), rules or Rules())
    cluster.ends = dict.fromkeys(cluster.ends, MUCH)
    for name, process in members.items():
        cluster.join(name, process, tags={"zone": process[0]})
    settle(cluster)
    return cluster


def of(cluster: Cluster, name: str) -> list[int]:
    return sorted(task.partition for task in cluster.members[name].active)


def test_a_new_instance_warms_up_before_it_gets_a_task_and_the_old_one_goes_on_meanwhile() -> None:
    cluster = cluster_of(3, a="a")
    cluster.join("b", "b")
    cluster.rebalance()
    assert (of(cluster, "a"), of(cluster, "b")) == ([0, 1, 2], [])
    (warming,) = cluster.members["b"].warming
    cluster.rebalance()
    assert warming in cluster.members["a"].active, "it hasn't caught up"
    cluster.pass_time()
    cluster.rebalance()
    assert cluster.members["b"].promised == {warming}
    cluster.rebalance()
    assert cluster.members["b"].active == {warming}


def test_no_task_moves_between_the_old_instances_while_a_new_one_warms_up() -> None:
    cluster = cluster_of(9, Rules(num_standby_replicas=2), a="a", b="b")
    homes = {task: name for name, member in cluster.members.items() for task in member.active}
    cluster.join("c", "c")
    while cluster.rebalance():
        for name in "ab":
            assert [task for task in cluster.members[name].active if homes[task] != name] == []
        cluster.pass_time()
    assert [len(member.active) for member in cluster.members.values()] == [3, 3, 3]


def test_a_run_on_spark_gets_its_share_at_once_as_it_cant_warm_up() -> None:
    cluster = cluster_of(4, a="a")
    cluster.join("s", "s", stage=SPARK)
    cluster.rebalance()
    assert cluster.members["s"].warming == frozenset()
    assert len(cluster.members["s"].promised) == 2
    cluster.rebalance()
    assert len(cluster.members["s"].active) == 2


def test_what_a_run_on_spark_has_goes_to_an_instance_when_that_has_caught_up() -> None:
    cluster = cluster_of(8, a="a")
    cluster.join("s", "s", capacity=3, stage=SPARK)
    settle(cluster)
    cluster.join("b", "b", capacity=4)
    cluster.rebalance()
    assert cluster.members["b"].warming
    settle(cluster)
    assert [len(m.active) for m in cluster.members.values()] == [1, 3, 4]


def test_standbys_are_where_they_can_be_kept() -> None:
    cluster = cluster_of(6, Rules(num_standby_replicas=1), a="a", b="b")
    cluster.join("s", "s", capacity=2, stage=SPARK)
    settle(cluster)
    copies = {name: len(m.opened) for name, m in cluster.members.items()}
    assert copies == {"a": 3, "b": 3, "s": 0}


def test_no_more_tasks_warm_up_at_a_time_than_max_warmup_replicas() -> None:
    cluster = cluster_of(12, Rules(max_warmup_replicas=3), a="a")
    cluster.join("b", "b")
    cluster.join("c", "c")
    cluster.rebalance()
    assert sum(len(m.warming) for m in cluster.members.values()) == 3


def test_tasks_with_little_state_move_without_a_warm_up() -> None:
    cluster = cluster_of(4, a="a")
    cluster.ends = dict.fromkeys(cluster.ends, 10_000)
    cluster.join("b", "b")
    cluster.rebalance()
    cluster.rebalance()
    assert len(cluster.members["b"].active) == 2


def test_the_standbys_of_an_instance_that_dies_take_over_at_once() -> None:
    cluster = cluster_of(6, Rules(num_standby_replicas=1), a="a", b="b", c="c")
    lost = cluster.members["c"].active
    standbys = {task: name for name in "ab" for task in cluster.members[name].opened & lost}
    assert standbys.keys() == lost
    cluster.drop("c")
    cluster.rebalance()
    assert all(task in cluster.members[name].active for task, name in standbys.items())


def test_a_standby_on_the_new_owner_costs_no_warm_up() -> None:
    rules = Rules(num_standby_replicas=1, max_warmup_replicas=1)
    plan = plan_of([2], {0})
    new = member("q", standby=frozenset({B}), positions={B: 0}, lags={A: MUCH, B: MUCH})
    result = assign({"old": member("p", active=frozenset({A, B})), "new": new}, plan, rules)
    assert result["old"].active == {A, B}
    assert result["new"].warmup | result["new"].standby == {A, B}
    assert result["new"].warmup == {B}


def test_an_owner_that_still_restores_gives_way_to_a_standby_that_has_caught_up() -> None:
    owner = member("p", active=frozenset({A}), positions={A: 5}, lags={A: MUCH})
    standby = member("q", standby=frozenset({A}), positions={A: MUCH}, lags={A: 0})
    result = assign({"old": owner, "new": standby}, plan_of([1], {0}))
    assert result["new"].promised == {A}
    assert result["new"].standby == {A}, "it stays open until then"


def test_when_nobody_has_caught_up_a_task_is_not_moved_to_who_lags_more() -> None:
    owner = member("p", active=frozenset({A, B}), positions={A: 5, B: 5}, lags={A: MUCH - 5, B: MUCH - 5})
    result = assign({"old": owner, "new": member("q", lags={A: MUCH, B: MUCH})}, plan_of([2], {0}))
    assert result["old"].active == {A, B}
    assert len(result["new"].warmup) == 1


def test_instances_that_start_one_after_the_other_share_what_has_not_begun_to_restore() -> None:
    owner = member("p", active=frozenset({A, B}), positions={A: 0, B: 0}, lags={A: MUCH, B: MUCH})
    result = assign({"old": owner, "new": member("q", lags={A: MUCH, B: MUCH})}, plan_of([2], {0}))
    assert len(result["new"].promised) == 1


def test_without_lags_a_task_goes_to_the_highest_position() -> None:
    members = {"a": member("a", positions={A: 3}), "b": member("b", positions={A: 7}), "c": member("c")}
    assert assign(members, plan_of([1], {0}))["b"].active == {A}


def test_standbys_are_in_another_zone_than_the_active_task_as_far_as_there_is_one() -> None:
    rules = Rules(num_standby_replicas=1, rack_aware_assignment_tags=("zone",))
    cluster = cluster_of(8, rules, a="x1", b="x2", c="y1", d="y2")
    zone = {name: m.process[0] for name, m in cluster.members.items()}
    active = {task: zone[name] for name, m in cluster.members.items() for task in m.active}
    assert all(zone[name] != active[task] for name, m in cluster.members.items() for task in m.opened)
    cluster.drop("c")
    cluster.drop("d")
    settle(cluster)
    assert sum(len(m.opened) for m in cluster.members.values()) == 8


def commands(**members: str) -> Cluster:
    """Each member is a worker of the command that its value names; of none without a value."""
    cluster = Cluster(plan_of([8], {0}), Rules(num_standby_replicas=1))
    for name, command in members.items():
        cluster.join(name, name, tags={COMMAND_TAG: command} if command else {})
    settle(cluster)
    return cluster


def standbys_of_one_command(cluster: Cluster) -> int:
    command = {name: m.tags.get(COMMAND_TAG) for name, m in cluster.members.items()}
    active = {task: name for name, m in cluster.members.items() for task in m.active}
    pairs = [(command[active[task]], command[name]) for name, m in cluster.members.items() for task in m.opened]
    assert len(pairs) == 8
    return sum(one is not None and one == other for one, other in pairs)


def test_standbys_are_at_another_command_than_the_active_task_if_there_is_one() -> None:
    assert standbys_of_one_command(commands(a="one", b="one", c="two", d="two")) == 0
    assert standbys_of_one_command(commands(a="one", b="one", c="", d="")) == 0


def test_standbys_are_at_the_same_command_if_there_is_no_other() -> None:
    cluster = commands(a="one", b="one", c="two", d="two")
    cluster.drop("c")
    cluster.drop("d")
    settle(cluster)
    assert standbys_of_one_command(cluster) == 8


def test_instances_without_workers_are_as_far_from_each_other_as_from_workers() -> None:
    cluster = commands(a="", b="", c="one")
    assert sorted(len(m.opened) for m in cluster.members.values()) == [2, 3, 3]


def test_after_a_rolling_restart_standbys_are_balanced_again() -> None:
    cluster = cluster_of(12, Rules(num_standby_replicas=1), a="a", b="b", c="c")
    for name in "abc":
        cluster.drop(name)
        settle(cluster)
        cluster.grow(MUCH)
        cluster.join(name, name)
        settle(cluster)
    assert [len(m.opened) for m in cluster.members.values()] == [4, 4, 4]


def test_a_standby_that_has_caught_up_stays_until_the_one_that_replaces_it_has() -> None:
    cluster = cluster_of(4, Rules(num_standby_replicas=1, max_warmup_replicas=4), a="a", b="b")
    before = {task: name for name, m in cluster.members.items() for task in m.opened}
    cluster.join("c", "c")
    cluster.rebalance()
    assert cluster.members["c"].warming
    assert all(task in cluster.members[name].opened for task, name in before.items())


def test_a_new_thread_of_an_instance_gets_its_share_without_a_warm_up() -> None:
    cluster = cluster_of(8, a1="a", a2="a")
    cluster.drop("a2")
    cluster.join("a3", "a")
    cluster.rebalance()
    assert not any(m.warming for m in cluster.members.values())
    cluster.rebalance()
    assert [len(m.active) for m in cluster.members.values()] == [4, 4]


def test_five_hundred_tasks_on_fifty_members_take_well_under_a_second() -> None:
    plan = plan_of([100] * 5, {0, 1, 2, 3})
    cluster = Cluster(plan, Rules(num_standby_replicas=1, rack_aware_assignment_tags=("zone",)))
    cluster.ends = dict.fromkeys(cluster.ends, MUCH)
    for number in range(50):
        cluster.join(f"m{number:02}", f"p{number // 2}", 1 + number % 3, {"zone": "abc"[number // 2 % 3]})
    cluster.rebalance()
    cluster.pass_time()
    cluster.join("new", "new", 4)
    started = time.process_time()
    cluster.ask()
    assert time.process_time() - started < 1
