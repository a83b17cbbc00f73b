"""Joins of tables by foreign key: what a user may rely on. That they do what Kafka Streams does, the bench against Java
sees; what crashes and roll-backs do to them, tests/common/task/test_foreign_keys.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from milestones.cli.resetting import is_internal
from milestones.common import serdes
from milestones.common.assignment.plan import plan_tasks
from milestones.common.errors import TopologyError
from milestones.common.serdes import Serde
from milestones.common.topology import KTable, StreamsBuilder
from milestones.testing import TopologyTestDriver

TEXT, LONG = serdes.STRING, serdes.LONG


def both(value: Any, other: Any) -> str:
    return f"{value}+{other}"


def first_letter(_key: Any, value: str) -> str | None:
    return value[:1] or None


def tables() -> tuple[StreamsBuilder, KTable, KTable]:
    builder = StreamsBuilder()
    return builder, builder.table("left", key=TEXT, value=TEXT), builder.table("right", key=TEXT, value=TEXT)


def results(builder: StreamsBuilder, *records: tuple[str, Any, Any], **settings: Any) -> list[tuple[Any, Any, int]]:
    """Key, value and time of what records (topic, key, value) lead to in `out`, one a millisecond."""
    with TopologyTestDriver(builder, **settings) as driver:
        for now, (topic, key, value) in enumerate(records, 1):
            driver.create_input_topic(topic, key=TEXT, value=TEXT).pipe(key, value, timestamp=now)
        return [record[:3] for record in driver.create_output_topic("out", key=TEXT, value=TEXT).read_records()]


def out(table: KTable) -> None:
    table.to_stream().to("out", value=TEXT)


# ---- results


def test_a_row_is_joined_with_the_one_that_it_refers_to_whichever_comes_first() -> None:
    builder, left, right = tables()
    out(left.join(right, both, foreign_key=first_letter))
    changes = ("left", "k", "a1"), ("right", "a", "x"), ("left", "j", "a2"), ("right", "a", "y"), ("right", "a", None)
    assert results(builder, *changes) == [
        ("k", "a1+x", 2), ("j", "a2+x", 3), ("j", "a2+y", 4), ("k", "a1+y", 4), ("j", None, 5), ("k", None, 5),
    ]  # fmt: skip


def test_a_result_has_the_later_of_both_times_or_that_of_the_right_rows_change() -> None:
    builder, left, right = tables()
    out(left.join(right, both, foreign_key=first_letter))
    with TopologyTestDriver(builder) as driver:
        lefts, rights = (driver.create_input_topic(name, key=TEXT, value=TEXT) for name in ("left", "right"))
        rights.pipe("a", "x", timestamp=50)
        lefts.pipe("k", "a1", timestamp=20)
        rights.pipe("a", "y", timestamp=10)
        found = driver.create_output_topic("out", key=TEXT, value=TEXT).read_records()
    assert [(record.value, record.timestamp) for record in found] == [("a1+x", 50), ("a1+y", 10)]


def test_a_foreign_key_that_changes_takes_the_former_result_back() -> None:
    builder, left, right = tables()
    out(left.join(right, both, foreign_key=first_letter))
    found = results(
        builder, ("right", "a", "x"), ("left", "k", "a1"), ("left", "k", "b1"), ("right", "a", "y"), ("right", "b", "z")
    )
    assert found == [("k", "a1+x", 2), ("k", None, 3), ("k", "b1+z", 5)]


def test_a_row_without_a_foreign_key_is_dropped_and_counted_or_joined_with_none_on_the_left() -> None:
    for join, found in (
        ("join", [("k", "a1+x", 2), ("k", None, 3)]),
        ("left_join", [("k", "a1+x", 2), ("k", "+None", 3), ("k", None, 4), ("j", "+None", 5)]),
    ):
        builder, left, right = tables()
        out(getattr(left, join)(right, both, foreign_key=first_letter))
        changes = ("right", "a", "x"), ("left", "k", "a1"), ("left", "k", ""), ("left", "k", None), ("left", "j", "")
        assert results(builder, *changes) == found


def test_a_deletion_of_a_row_that_never_was_sends_nothing() -> None:
    builder, left, right = tables()
    out(left.left_join(right, both, foreign_key=first_letter))
    assert results(builder, ("left", "k", None), ("right", "a", None)) == []


def test_a_joiner_that_gives_none_makes_an_inner_join_of_a_left_one() -> None:
    builder, left, right = tables()
    out(left.left_join(right, lambda one, other: other and one + other, foreign_key=first_letter))
    assert results(builder, ("left", "k", "a1"), ("right", "a", "x")) == [("k", None, 1), ("k", "a1x", 2)]


def test_a_foreign_key_may_depend_on_the_key_and_a_table_be_joined_with_itself() -> None:
    builder, left, _ = tables()
    out(left.left_join(left, both, foreign_key=lambda key, _: key[:-1] or None))
    found = results(builder, ("left", "ab", "child"), ("left", "a", "parent"))
    assert found == [("ab", "child+None", 1), ("ab", "child+parent", 2), ("a", "parent+None", 2)]


def test_the_result_is_a_table_that_can_be_joined_further() -> None:
    builder, left, right = tables()
    joined = left.join(right, both, foreign_key=first_letter)
    assert joined.queryable_store_name is None
    out(joined.left_join(builder.table("third", key=TEXT, value=TEXT), both))
    changes = ("third", "k", "t"), ("right", "a", "x"), ("left", "k", "a1"), ("third", "k", "u"), ("left", "k", None)
    assert results(builder, *changes) == [("k", "a1+x+t", 3), ("k", "a1+x+u", 4), ("k", None, 5)]


@pytest.mark.parametrize("persistent", [False, True])
def test_the_result_is_kept_where_a_store_is_named(persistent: bool) -> None:
    builder, left, right = tables()
    assert left.join(right, both, "joined", foreign_key=first_letter, value=TEXT).queryable_store_name == "joined"
    with TopologyTestDriver(builder, persistent=persistent) as driver:
        driver.create_input_topic("right", key=TEXT, value=TEXT).pipe("a", "x", timestamp=7)
        driver.create_input_topic("left", key=TEXT, value=TEXT).pipe("k", "a1", timestamp=5)
        assert driver.store("joined").get("k") == ("a1+x", 7)


def test_a_value_without_bytes_counts_as_none() -> None:
    builder, left, right = tables()
    out(left.left_join(right, both, foreign_key=first_letter))
    assert results(builder, ("right", "a", ""), ("left", "k", "a1")) == [("k", "a1+None", 2)]


def test_headers_of_the_change_travel_with_the_result() -> None:
    builder, left, right = tables()
    out(left.join(right, both, foreign_key=first_letter))
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("left", key=TEXT, value=TEXT).pipe("k", "a1", headers=[("of", b"left")])
        driver.create_input_topic("right", key=TEXT, value=TEXT).pipe("a", "x", headers=[("of", b"right")])
        (record,) = driver.create_output_topic("out", key=TEXT, value=TEXT).read_records()
    assert record.headers == [("of", b"right")]


@pytest.mark.parametrize("late", ["left", "right"])
def test_a_change_out_of_order_of_a_versioned_table_is_sent_to_nobody(late: str) -> None:
    builder = StreamsBuilder()
    left, right = (builder.table(topic, topic, history=1_000, key=TEXT, value=TEXT) for topic in ("left", "right"))
    out(left.left_join(right, both, foreign_key=first_letter))
    with TopologyTestDriver(builder) as driver:
        inputs = {name: driver.create_input_topic(name, key=TEXT, value=TEXT) for name in ("left", "right")}
        inputs["right"].pipe("a", "x", timestamp=50)
        inputs["left"].pipe("k", "a1", timestamp=50)
        inputs[late].pipe("k" if late == "left" else "a", "a0", timestamp=10)
        found = driver.create_output_topic("out", key=TEXT, value=TEXT).read_key_values()
    assert found == [("k", "a1+x")]


# ---- names, topics, serdes


def test_named_nodes_topics_and_stores_are_those_of_kafka_streams() -> None:
    builder, left, right = tables()
    left.join(right, both, foreign_key=first_letter, name="of")
    subs = builder.build().resolve("app")
    assert [sorted(sub.repartition_topics) for sub in subs] == [
        ["app-of-subscription-response-topic"], ["app-of-subscription-registration-topic"],
    ]  # fmt: skip
    assert [store.name for store in subs[1].stores] == ["right-STATE-STORE-0000000003", "of-subscription-store"]
    assert {node.name for sub in subs for node in sub.nodes if node.name.startswith("of-")} == {
        "of-subscription-registration-processor", "of-subscription-registration-sink", "of-result",
        "of-subscription-registration-source", "of-subscription-receive", "of-subscription-join-foreign",
        "of-foreign-join-subscription", "of-subscription-response-sink", "of-subscription-response-source",
        "of-subscription-response-resolver",
    }  # fmt: skip
    assert all(is_internal(topic, "app") for sub in subs for topic in sub.repartition_topics)


@pytest.mark.parametrize(("left", "right"), [(2, 5), (5, 2), (1, 1)])
def test_each_topic_has_the_partitions_of_the_side_that_reads_it(left: int, right: int) -> None:
    builder, one, other = tables()
    one.join(other, both, foreign_key=first_letter, name="of")
    plan = plan_tasks(builder.build().resolve("app"), {"left": left, "right": right})
    assert plan.error is None
    assert plan.repartition_counts == {
        "app-of-subscription-registration-topic": right, "app-of-subscription-response-topic": left,
    }  # fmt: skip
    assert plan.changelog_counts["app-of-subscription-store-changelog"] == right


def test_a_table_that_is_joined_with_itself_reads_its_own_topics() -> None:
    builder, left, _ = tables()
    left.join(left, both, foreign_key=first_letter, name="of")
    subs = builder.build().resolve("app")
    plan = plan_tasks(subs, {"left": 3, "right": 1})
    assert (plan.error, set(plan.repartition_counts.values())) == (None, {3})


class Told(Serde[str]):
    """Texts, by a serde that remembers the topics it is told."""

    def __init__(self, topics: set[str]) -> None:
        super().__init__(str.encode, bytes.decode)
        self.topics = topics

    def serializer(self, topic: str) -> Callable[[str], bytes]:
        self.topics.add(topic)
        return super().serializer(topic)


def test_serdes_are_told_the_topics_that_those_of_kafka_streams_are_told() -> None:
    builder = StreamsBuilder()
    keys, values, foreign_keys = set[str](), set[str](), set[str]()
    left = builder.table("left", key=Told(keys), value=Told(values))
    right = builder.table("right", key=Told(foreign_keys), value=TEXT)
    left.join(right, both, foreign_key=first_letter, name="of")
    with TopologyTestDriver(builder, application_id="app"):
        pass
    topic = "app-of-subscription-registration-topic"
    assert f"{topic}-pk" in keys
    assert f"{topic}-vh" in values
    assert f"{topic}-fk" in foreign_keys
    assert "app-of-subscription-response-topic" not in values


def test_keys_and_values_have_the_applications_default_serdes_on_both_sides() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    left.join(right, both, foreign_key=lambda _, value: int(value), name="of").to_stream().to("out")
    with TopologyTestDriver(builder, default_key_serde=LONG, default_value_serde=TEXT) as driver:
        driver.create_input_topic("right").pipe(7, "x")
        driver.create_input_topic("left").pipe(1, "7")
        assert driver.create_output_topic("out").read_key_values() == [(1, "7+x")]
        (subscription,) = driver.produced()["topology-test-driver-of-subscription-registration-topic"]
    assert subscription.key == LONG.serialize("", 7)
    assert (subscription.value or b"")[18:] == (LONG.serialize("", 1) or b"") + bytes(4)


def test_partitioners_are_asked_for_the_partitions_of_keys() -> None:
    asked = []

    def by(name: str) -> Callable[..., int]:
        def partition(topic: str, key: Any, value: Any, partitions: int) -> int:
            asked.append((name, topic.removeprefix("topology-test-driver-"), key, value, partitions))
            return 0

        return partition

    builder, left, right = tables()
    partitioners = {"partitioner": by("left"), "other_partitioner": by("right")}
    out(left.join(right, both, foreign_key=first_letter, name="of", **partitioners))
    assert results(builder, ("right", "a", "x"), ("left", "k", "a1")) == [("k", "a1+x", 2)]
    assert asked == [
        ("right", "of-subscription-registration-topic", "a", None, 1),
        ("left", "of-subscription-response-topic", "k", None, 1),
    ]


# ---- bad input


def nowhere(*_: Any) -> list[int]:
    return []


def test_a_partitioner_that_chooses_no_partition_or_several_is_told() -> None:
    builder, left, right = tables()
    out(left.join(right, both, foreign_key=first_letter, other_partitioner=nowhere))
    with pytest.raises(Exception, match=r"by foreign key chose 0 partitions of .*REGISTRATION-.*'a': a row is in one"):
        results(builder, ("left", "k", "a1"))


async def later(*_: Any) -> Any: ...


def test_what_cannot_be_joined_is_told_when_it_is_asked_for() -> None:
    _, left, right = tables()
    other, stream = tables()[1], StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match=r"belong to two StreamsBuilders"):
        left.join(other, both, foreign_key=first_letter)
    with pytest.raises(TopologyError, match=r"joined with another KTable, not with .*to_table\(\) makes one"):
        left.join(stream, both, foreign_key=first_letter)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"an operator needs a function, not 'customer'"):
        left.join(right, both, foreign_key="customer")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"joined by equal keys.*are of a join by foreign_key"):
        left.left_join(right, both, partitioner=nowhere)
    with pytest.raises(TopologyError, match=r"has no outer join by foreign_key: .* use left_join"):
        left.outer_join(right, both, foreign_key=first_letter)  # type: ignore[call-arg]
    with pytest.raises(TopologyError, match=r"-registration-sink: later"):
        left.join(right, both, foreign_key=first_letter, name="of", other_partitioner=later)


@pytest.mark.parametrize(
    ("function", "why"),
    [(later, "later"), (lambda value: value, r"<lambda>\(value\) \(.*:\d+\) is called with 2 arguments")],
)
def test_a_foreign_key_that_cannot_be_asked_for_is_told_when_the_topology_is_built(function: Any, why: str) -> None:
    builder, left, right = tables()
    left.join(right, both, foreign_key=function, name="of")
    with pytest.raises(TopologyError, match=rf"of-subscription-registration-processor: .*{why}"):
        builder.build()


@dataclass(frozen=True)
class Order:
    customer: str
    price: float


def test_rows_with_a_whole_number_in_a_field_of_floats_are_joined() -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders", value=str).map_values(
        lambda customer: Order(customer, 2), value=Order, store="made"
    )
    customers = builder.table("customers", value=str)
    joined = orders.join(
        customers, lambda order, name: f"{name} {order.price}", foreign_key=lambda _, order: order.customer
    )
    joined.to_stream().to("out", value=str)
    with TopologyTestDriver(builder.build(), default_key_serde=serdes.STRING) as driver:
        driver.create_input_topic("customers", value=str).pipe("ada", "Ada")
        driver.create_input_topic("orders", value=str).pipe("o1", "ada")
        assert driver.create_output_topic("out", value=str).read_key_values() == [("o1", "Ada 2.0")]
