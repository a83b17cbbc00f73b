"""Generated names are refused on request (KIP-1111), each with the name it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.java.topologies import ALL
from milestones import JoinWindows, Streams, StreamsBuilder, TopologyError, serdes
from milestones.testing import TopologyTestDriver

TEXT = serdes.STRING
EXPLICIT: dict[str, Any] = {"application_id": "app", "ensure_explicit_internal_resource_naming": True}


def stream(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key=TEXT, value=TEXT)


def rekeyed(builder: StreamsBuilder) -> Any:
    return stream(builder).select_key(lambda _, value: value)


def joined(builder: StreamsBuilder, **options: Any) -> None:
    other = builder.stream("other", key=TEXT, value=TEXT)
    stream(builder).outer_join(other, lambda one, two: one, within=JoinWindows(10, grace=0), **options)


AGGREGATE = "KSTREAM-AGGREGATE-STATE-STORE-000000000"
JOIN = "KSTREAM-OUTEROTHER-0000000005-store, KSTREAM-OUTERSHARED-0000000004-store, KSTREAM-OUTERTHIS-0000000004-store"

UNNAMED: list[tuple[Callable[[StreamsBuilder], Any], list[str]]] = [
    (
        lambda b: stream(b).group_by_key().count(),
        [f"stores: {AGGREGATE}1;", f"changelog topics: app-{AGGREGATE}1-changelog."],
    ),
    (
        lambda b: rekeyed(b).group_by_key().count(logging=False),
        [f"stores: {AGGREGATE}3;", f"repartition topics: app-{AGGREGATE}3-repartition."],
    ),
    (lambda b: rekeyed(b).to_table("rows"), ["repartition topics: app-KSTREAM-TOTABLE-0000000002-repartition."]),
    (lambda b: rekeyed(b).repartition(), ["repartition topics: app-KSTREAM-REPARTITION-0000000002-repartition."]),
    (
        lambda b: b.table("in", key=TEXT, value=TEXT).group_by(lambda k, v: (k, v)).count("counts"),
        ["stores: in-STATE-STORE-0000000000;"],
    ),
    (joined, [f"stores: {JOIN};"]),
]


@pytest.mark.parametrize(("program", "told"), UNNAMED)
def test_all_generated_names_are_listed(program: Callable[[StreamsBuilder], Any], told: list[str]) -> None:
    builder = StreamsBuilder()
    program(builder)
    for run in (Streams, TopologyTestDriver):
        with pytest.raises(TopologyError, match="these have generated names") as refused:
            run(builder, **EXPLICIT)
        assert [each for each in told if each not in str(refused.value)] == []
    assert Streams(builder, application_id="app")


NAMED: list[Callable[[StreamsBuilder], Any]] = [
    lambda b: rekeyed(b).group_by_key(name="by-value").count("counts"),
    lambda b: rekeyed(b).group_by_key().count("counts", logging=False),
    lambda b: rekeyed(b).repartition(name="again"),
    lambda b: rekeyed(b).to_table("rows", name="to-table"),
    lambda b: b.table("in", "rows", key=TEXT, value=TEXT).group_by(lambda k, v: (k, v), name="by").count("counts"),
    lambda b: joined(b, name="joining", store="joined"),
    lambda b: b.table("in", key=TEXT, value=TEXT).to_stream(),
]


@pytest.mark.parametrize("program", NAMED)
def test_names_of_ones_own_are_enough(program: Callable[[StreamsBuilder], Any]) -> None:
    builder = StreamsBuilder()
    program(builder)
    assert Streams(builder, **EXPLICIT)


def test_a_name_that_only_looks_long_is_ones_own() -> None:
    builder = StreamsBuilder()
    for name in ("orders-2026010112", "KSTREAM-2", "STATE-STORE-00000000011"):
        builder.table(name, name, key=TEXT, value=TEXT)
    assert Streams(builder, **EXPLICIT)


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_generated_name_of_the_bench_is_known_as_one(name: str) -> None:
    """What has a number at its end was numbered: no store or topic of the bench has such a name of its own."""
    topology = ALL[name].build()
    subs = topology.resolve("app", default_key_serde=TEXT, default_value_serde=TEXT)
    names = [n for sub in subs for n in (*sub.repartition_topics, *(spec.name for spec in sub.stores))]
    numbered = any(part.isdigit() and len(part) == 10 for n in names for part in n.split("-"))
    defaults = {"default_key_serde": TEXT, "default_value_serde": TEXT}
    if not numbered:
        assert Streams(topology, **EXPLICIT, **defaults)
        return
    with pytest.raises(TopologyError, match="these have generated names"):
        Streams(topology, **EXPLICIT, **defaults)
