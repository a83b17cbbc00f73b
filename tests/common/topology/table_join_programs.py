"""The topologies of reference/TableJoins.java, in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milestones.common import serdes
from milestones.common.topology import KTable, StreamsBuilder, Topology

TEXT = serdes.STRING


def joined(value: Any, other: Any) -> str | None:
    return None if value is not None and value == other else f"{java(value)}+{java(other)}"


def with_key(key: Any, value: Any, other: Any) -> str:
    return f"{java(key)}:{java(value)}+{java(other)}"


def java(value: Any) -> str:
    return "null" if value is None else value


def always(key: object, value: object) -> bool:
    return True


def swap(key: Any, value: Any) -> tuple[Any, Any]:
    return value, key


def by_value(key: Any, value: Any) -> Any:
    return value


def table_joins() -> Topology:
    builder = StreamsBuilder()
    a, b, c = builder.table("a"), builder.table("b", "b-store"), builder.table("c")
    a.join(b, joined).to_stream().to("inner")
    a.filter(always).left_join(c.map_values(str), joined, name="named-left").to_stream().to("left")
    outer = a.outer_join(b, joined, "outer-store")
    both = outer.map_values(str).join(c, joined, "s", name="both")
    both.left_join(outer.filter(always), joined).group_by(swap).count()
    d, e, f = builder.table("d"), builder.table("e"), builder.table("f")
    de = d.join(e, joined)
    de.outer_join(f, joined).map_values(str).join(de, joined, key=TEXT, value=TEXT).to_stream().to("def")
    d.join(d, joined).filter(always).to_stream().to("self")
    stream = builder.stream("stream")
    counts = stream.group_by_key().count()
    counts.map_values(str).join(stream.select_key(by_value).to_table(), joined).to_stream().to("counted")
    builder.table("g").filter(always).join(builder.table("h").filter(always), joined)
    return builder.build()


def stream_table_joins() -> Topology:
    builder = StreamsBuilder()
    stream, a, b = builder.stream("stream"), builder.table("a"), builder.table("b", "b-store")
    stream.join(a, joined).left_join(b, joined).to("twice")
    rekeyed = stream.select_key(by_value)
    rekeyed.join(a, joined).to("rekeyed-inner")
    rekeyed.left_join(b, joined, key=TEXT, value=TEXT, other_value=TEXT).to("rekeyed-left")
    by_name = rekeyed.map_values(str).left_join(b, with_key, with_key=True, name="by-value")
    by_name.group_by_key().count()
    stream.map(swap, name="mapped").join(a, joined).to("mapped-inner")
    stream.merge(builder.stream("other")).join(a.outer_join(b, joined).filter(always), joined).to("far")
    kept = a.join(b, joined, "joined-store")
    stream.left_join(kept, with_key, with_key=True, name="with-joined").to("kept")
    builder.stream("stream").join(b.map_values(str), joined).to("again")
    stream.select_key(by_value).repartition().left_join(a, joined).to("repartitioned")
    return builder.build()


def table_join_semantics() -> Topology:
    builder = StreamsBuilder()
    a, b, c, d = (builder.table(topic, key=TEXT, value=TEXT) for topic in "abcd")
    e = builder.table("e", "e-store", key=TEXT, value=TEXT)
    a.join(b, joined).to_stream().to("inner")
    a.join(b, joined, "kept-inner-store", key=TEXT, value=TEXT).to_stream().to("kept-inner")
    rows(a.join(e, joined, "inner-rows-store", key=TEXT, value=TEXT), "inner-rows")
    c.left_join(d, joined).to_stream().to("left")
    c.outer_join(d, joined).to_stream().to("outer")
    rows(c.left_join(e, joined), "left-rows")
    rows(d.outer_join(e, joined), "outer-rows")
    lower = b.filter(lambda k, v: not v.startswith("x")).map_values(
        lambda k, v: None if v.startswith("n") else k + v, with_key=True
    )
    far = lower.left_join(d.filter_not(lambda k, v: v.startswith("y")), joined)
    far.to_stream().to("far")
    chained = far.map_values(lambda v: "m" + v).outer_join(a.join(c, joined), joined)
    chained = chained.filter(lambda k, v: not v.endswith("null"))
    chained.to_stream().to("chained")
    e.join(e, lambda v, w: f"{v}={w}").to_stream().to("self")
    stream = builder.stream("s", key=TEXT, value=TEXT)
    stream.join(a, joined).to("stream-inner")
    stream.left_join(b, with_key, with_key=True).to("stream-left")
    stream.left_join(chained, joined).to("stream-far")
    rekeyed = stream.select_key(lambda k, v: None if v is None or v.startswith("x") else v)
    rekeyed.join(e, with_key, with_key=True, name="inner-by-value").to("rekeyed-inner")
    rekeyed.left_join(c, with_key, with_key=True, name="left-by-value").to("rekeyed-left")
    stream.left_join(d, joined).join(e, joined).to("twice")
    return builder.build()


def rows(table: KTable, topic: str) -> None:
    """Shows new and old values: the old one is subtracted first."""

    def change(sign: str) -> Callable[[Any, Any, str], str]:
        return lambda key, value, total: ("" if len(total) > 30 else total) + sign + value

    grouped = table.group_by(lambda k, v: ("all", v), key=TEXT, value=TEXT)
    aggregate = grouped.aggregate(str, change(","), change("-"), f"{topic}-aggregate", key=TEXT, value=TEXT)
    aggregate.to_stream().to(topic)


ALL: dict[str, Callable[[], Topology]] = {
    program.__name__: program for program in (table_joins, stream_table_joins, table_join_semantics)
}
