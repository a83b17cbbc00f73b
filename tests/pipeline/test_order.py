"""Sub-topologies run after those that write to their topics."""

from __future__ import annotations

from milestones import StreamsBuilder, serdes
from milestones.pipeline.driving.order import circular_topics, inner_topics, levels

TEXT = serdes.STRING


def build(*paths: str) -> StreamsBuilder:
    """`a>b` copies topic a to b."""
    builder = StreamsBuilder()
    for path in paths:
        source, sink = path.split(">")
        builder.stream(source, key=TEXT, value=TEXT).to(sink)
    return builder


def levels_of(*paths: str) -> tuple[tuple[int, ...], ...]:
    return levels(build(*paths).build().resolve("app"))


def test_sub_topologies_that_have_nothing_to_do_with_each_other_are_one_level() -> None:
    assert levels_of("a>x", "b>y") == ((0, 1),)


def test_a_reader_comes_after_all_its_writers_whatever_their_numbers() -> None:
    assert levels_of("c>d", "b>c", "a>b") == ((2,), (1,), (0,))
    assert levels_of("a>z", "b>z", "z>out") == ((0, 1), (2,))


def test_a_circle_is_cut_before_its_lowest_number() -> None:
    assert levels_of("a>b", "b>a") == ((0,), (1,))
    assert levels_of("a>a", "b>c") == ((0, 1),)


def test_behind_a_repartition_comes_the_next_level() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by(lambda _, value: value, name="g", key=TEXT)
    grouped.count("counts").to_stream().to("out", value=serdes.LONG)
    subs = builder.build().resolve("app")
    assert levels(subs) == ((0,), (1,))
    assert inner_topics(subs) == {"app-g-repartition"}


def test_a_topic_between_sub_topologies_is_an_inner_one_like_a_repartition_topic() -> None:
    assert inner_topics(build("a>b", "b>c").build().resolve("app")) == {"b"}


def test_a_topic_in_a_circle_is_read_before_or_beside_who_writes_it() -> None:
    def circular(*paths: str) -> frozenset[str]:
        return circular_topics(build(*paths).build().resolve("app"))

    assert circular("a>b", "b>c") == frozenset()
    assert circular("a>b", "b>a") == {"a"}
    assert circular("a>a", "b>c") == {"a"}


def test_the_two_sides_of_a_join_by_foreign_key_form_a_circle() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    left.join(right, lambda value, other: value + other, foreign_key=lambda _, value: value, name="of")
    subs = builder.build().resolve("app")
    assert levels(subs) == ((0,), (1,))
    assert circular_topics(subs) == {"app-of-subscription-response-topic"}
