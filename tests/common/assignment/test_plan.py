from __future__ import annotations

from dataclasses import dataclass, field, replace

from milestones.common.assignment.plan import fingerprint, plan_tasks
from milestones.common.records import TaskId, TopicPartition


@dataclass(frozen=True)
class Repartition:
    partitions: int | None = None


@dataclass(frozen=True)
class Sub:
    id: int
    source_topics: tuple[str, ...] = ()
    source_patterns: tuple[str, ...] = ()
    sink_topics: tuple[str, ...] = ()
    repartition_topics: dict[str, Repartition] = field(default_factory=dict)
    stores: tuple[object, ...] = ()
    changelogs: dict[str, str] = field(default_factory=dict)
    copartition_groups: tuple[frozenset[str], ...] = ()
    copartition_patterns: tuple[tuple[str, ...], ...] = ()
    shared_stores: dict[str, frozenset[str]] = field(default_factory=dict)


def chain(*counts: int | None) -> list[Sub]:
    """in -> r1 -> r2 -> ...: each sub-topology writes the next one's repartition topic."""
    subs = [Sub(0, ("in",), sink_topics=("r1",))]
    for n, count in enumerate(counts, start=1):
        subs.append(Sub(n, (f"r{n}",), sink_topics=(f"r{n + 1}",), repartition_topics={f"r{n}": Repartition(count)}))
    return subs


def test_a_sub_topology_has_a_task_for_each_partition_of_its_largest_source():
    plan = plan_tasks([Sub(0, ("a", "b"))], {"a": 1, "b": 3})
    assert plan.tasks == {
        TaskId(0, 0): (TopicPartition("a", 0), TopicPartition("b", 0)),
        TaskId(0, 1): (TopicPartition("b", 1),),
        TaskId(0, 2): (TopicPartition("b", 2),),
    }
    assert plan.error is None


def test_a_repartition_topic_takes_the_count_of_the_largest_topic_upstream_through_chains():
    plan = plan_tasks(chain(None, None, None), {"in": 5})
    assert plan.repartition_counts == {"r1": 5, "r2": 5, "r3": 5}
    assert len(plan.tasks) == 20


def test_a_repartition_topic_keeps_the_count_that_it_was_given_and_hands_it_down():
    assert plan_tasks(chain(None, 2, None), {"in": 5}).repartition_counts == {"r1": 5, "r2": 2, "r3": 2}


def test_a_repartition_topic_waits_for_all_that_is_upstream_of_it():
    subs = [
        *chain(None)[:1],
        Sub(1, ("r1", "small"), sink_topics=("r2",), repartition_topics={"r1": Repartition()}),
        Sub(2, ("r2",), repartition_topics={"r2": Repartition()}),
    ]
    assert plan_tasks(subs, {"in": 9, "small": 2}).repartition_counts == {"r1": 9, "r2": 9}


def test_a_loop_of_repartition_topics_takes_what_is_known():
    subs = [Sub(0, ("in", "r1"), sink_topics=("r1",), repartition_topics={"r1": Repartition()})]
    assert plan_tasks(subs, {"in": 4}).repartition_counts == {"r1": 4}


def test_what_the_cluster_has_of_a_repartition_topic_does_not_count():
    assert plan_tasks(chain(None), {"in": 5, "r1": 99}).repartition_counts == {"r1": 5}


def test_a_repartition_topic_without_anything_upstream_is_an_error():
    subs = [Sub(0, ("r1",), repartition_topics={"r1": Repartition()})]
    assert "r1" in (plan_tasks(subs, {}).error or "")


def test_missing_source_topics_are_named():
    plan = plan_tasks([Sub(0, ("a", "b")), Sub(1, ("c",))], {"a": 1})
    assert plan.missing_topics == {"b", "c"}
    assert "b, c" in (plan.error or "")


def test_a_pattern_takes_all_topics_that_match_as_a_whole():
    plan = plan_tasks([Sub(0, source_patterns=("log-.*",))], {"log-a": 2, "log-b": 1, "my-log-c": 7})
    assert plan.tasks[TaskId(0, 0)] == (TopicPartition("log-a", 0), TopicPartition("log-b", 0))
    assert len(plan.tasks) == 2


def test_a_pattern_without_a_match_has_no_tasks_and_is_no_error():
    plan = plan_tasks([Sub(0, source_patterns=("log-.*",))], {"other": 2})
    assert plan.tasks == {}
    assert plan.error is None


def test_a_changelog_has_a_partition_per_task_unless_it_is_a_source_topic():
    changelogs = {"counts": "app-counts-changelog", "table": "in"}
    plan = plan_tasks([Sub(0, ("in",), stores=("counts", "table"), changelogs=changelogs)], {"in": 3})
    assert plan.changelog_counts == {"app-counts-changelog": 3}
    assert plan.stateful == plan.tasks.keys()


def test_joined_topics_with_different_counts_are_an_error_that_names_them():
    plan = plan_tasks([Sub(0, ("a", "b"), copartition_groups=(frozenset({"a", "b"}),))], {"a": 2, "b": 3})
    assert "a (2), b (3)" in (plan.error or "")


def test_topics_that_a_pattern_finds_for_a_join_are_held_to_its_count_too():
    subs = [Sub(0, ("a",), ("p-.*",), copartition_groups=(frozenset({"a"}),), copartition_patterns=(("p-.*",),))]
    assert plan_tasks(subs, {"a": 2, "p-1": 2, "q": 3}).error is None
    assert "a (2), p-1 (2), p-2 (3)" in (plan_tasks(subs, {"a": 2, "p-1": 2, "p-2": 3}).error or "")


def test_a_repartition_topic_joined_with_a_source_topic_takes_its_count():
    subs = [
        Sub(0, ("in",), sink_topics=("r1",)),
        Sub(1, ("r1", "b"), repartition_topics={"r1": Repartition()}, copartition_groups=(frozenset({"r1", "b"}),)),
    ]
    plan = plan_tasks(subs, {"in": 8, "b": 3})
    assert plan.repartition_counts == {"r1": 3}
    assert plan.error is None
    fixed = replace(subs[1], repartition_topics={"r1": Repartition(4)})
    assert "b (3), r1 (4)" in (plan_tasks([subs[0], fixed], {"in": 8, "b": 3}).error or "")


def test_joined_repartition_topics_take_the_fixed_count_else_the_largest():
    def joined(first: int | None, second: int | None) -> list[Sub]:
        topics = {"r1": Repartition(first), "r2": Repartition(second)}
        return [
            Sub(0, ("a",), sink_topics=("r1",)),
            Sub(1, ("b",), sink_topics=("r2",)),
            Sub(2, ("r1", "r2"), repartition_topics=topics, copartition_groups=(frozenset({"r1", "r2"}),)),
        ]

    counts = {"a": 2, "b": 6}
    assert plan_tasks(joined(None, None), counts).repartition_counts == {"r1": 6, "r2": 6}
    assert plan_tasks(joined(3, None), counts).repartition_counts == {"r1": 3, "r2": 3}
    assert "r1 (3), r2 (4)" in (plan_tasks(joined(3, 4), counts).error or "")


def test_the_fingerprint_changes_with_what_makes_tasks_and_only_with_that():
    subs = [Sub(0, ("b", "a"), changelogs={"s": "c"}), Sub(1, ("r",), repartition_topics={"r": Repartition()})]
    assert fingerprint(subs) == fingerprint([subs[1], replace(subs[0], source_topics=("a", "b"), sink_topics=("new",))])
    assert fingerprint(subs) != fingerprint([replace(subs[0], changelogs={"s": "d"}), subs[1]])
    assert fingerprint(subs) != fingerprint(subs[:1])
    assert plan_tasks(subs, {}).fingerprint == fingerprint(subs)


def test_the_applications_own_topics_are_nobodys_source_whatever_a_pattern_says():
    """Changelogs, too: an application would count its own counts, without end."""
    sub = Sub(0, source_patterns=("app-.*",), changelogs={"counts": "app-counts-changelog"})
    plan = plan_tasks([sub], {"app-in": 2, "app-counts-changelog": 2})
    assert plan.tasks[TaskId(0, 0)] == (TopicPartition("app-in", 0),)


def test_a_source_topic_that_serves_as_changelog_is_a_source():
    sub = Sub(0, ("app-table",), changelogs={"table": "app-table"})
    assert plan_tasks([sub], {"app-table": 1}).tasks[TaskId(0, 0)] == (TopicPartition("app-table", 0),)


def test_kafkas_own_topics_are_nobodys_source_whatever_a_pattern_says():
    plan = plan_tasks([Sub(0, source_patterns=(".*",))], {"in": 1, "__consumer_offsets": 50})
    assert plan.tasks == {TaskId(0, 0): (TopicPartition("in", 0),)}


def test_topics_that_reach_one_store_need_equal_partition_counts_and_the_error_says_what_to_do():
    """A table of 1 partition that a stream of 3 looks up by hand: two of three tasks would find nothing in it."""
    sub = Sub(0, ("orders", "products"), shared_stores={"table": frozenset({"orders", "products"})})
    error = plan_tasks([sub], {"orders": 3, "products": 1}).error
    assert "(table)" in error
    assert "orders (3), products (1)" in error
    assert "repartition" in error
    assert plan_tasks([sub], {"orders": 3, "products": 3}).error is None


def test_topics_without_a_store_in_common_and_those_of_patterns_may_differ():
    assert plan_tasks([Sub(0, ("a", "b"))], {"a": 3, "b": 1}).error is None
    assert plan_tasks([Sub(0, source_patterns=("in-.*",))], {"in-a": 3, "in-b": 1}).error is None


def test_a_repartition_topic_counts_with_what_it_gets():
    sub = Sub(
        0, ("r1", "products"), repartition_topics={"r1": Repartition(4)},
        shared_stores={"table": frozenset({"r1", "products"})},
    )  # fmt: skip
    assert "products (1), r1 (4)" in str(plan_tasks([sub], {"products": 1}).error)
