"""A record of a left or an outer join has results with its partners, or one without, however late it or they come.

`--seed` decides what is tried; a failure shows the smallest run that fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from compat_tests.random_topologies.joins_by_definition import both
from compat_tests.random_topologies.late_joins_by_definition import Arrived, Result, judge_late
from compat_tests.random_topologies.shapes import Join
from milestones import JoinWindows, StreamsBuilder, serdes
from milestones.testing import TopologyTestDriver

EXAMPLES = {"short": 300, "full": 3_000, "soak": 20_000}
LEAP = 100_000
KINDS = {"inner": "join", "left": "left_join", "outer": "outer_join"}

JOINS = st.builds(
    Join, st.just(1), st.sampled_from(["left", "outer", "left", "outer", "inner"]),
    before=st.sampled_from([0, 3, 10]), after=st.sampled_from([0, 5, 10]), grace=st.sampled_from([0, 4, 20, 100]),
)  # fmt: skip


@st.composite
def runs(draw: st.DrawFn) -> list[Arrived]:
    moves = st.tuples(
        st.booleans(), st.sampled_from([b"a", b"a", b"a", b"b", None]), st.sampled_from([True] * 8 + [False]),
        st.sampled_from([0, 1, 3, 5, 8, 15, 30]), st.sampled_from([0, 0, 1, 4, 9, 14, 25, 40, 120]),
    )  # fmt: skip
    now, arrived = 200, []
    for number, (left, key, has_value, forward, back) in enumerate(draw(st.lists(moves, min_size=4, max_size=30))):
        now += forward
        value = f"{'l' if left else 'r'}{number}".encode() if has_value else None
        arrived.append(Arrived(left, key, value, now - back))
    ends = [Arrived(left, b"end", value, now + LEAP) for left, value in ((True, b"l"), (False, b"r"))]
    return [*arrived, *ends]


def joined(join: Join, arrived: Sequence[Arrived], **settings: Any) -> list[Result]:
    """The results, in the driver."""
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    within = JoinWindows(join.before, join.after, grace=join.grace)
    getattr(left, KINDS[join.how])(right, both, within=within).to("out")
    results: list[Result] = []
    with TopologyTestDriver(builder, **settings) as driver:
        out = driver.create_output_topic("out", key=serdes.BYTES, value=serdes.BYTES)
        for step, one in enumerate(arrived):
            driver.pipe("left" if one.left else "right", one.key, one.value, one.timestamp)
            for record in out.read_records():
                left_one, right_one = (None if value == b"?" else value for value in (record.value or b"").split(b"+"))
                results.append(Result(step, left_one, right_one, record.timestamp))
    return results


def test_no_record_has_results_with_and_without_a_partner(pytestconfig: pytest.Config) -> None:
    settings = hypothesis.settings(max_examples=EXAMPLES[pytestconfig.option.selection], deadline=None, database=None)

    def check(join: Join, arrived: list[Arrived]) -> None:
        assert judge_late(join, arrived, joined(join, arrived)) == []

    hypothesis.seed(pytestconfig.option.seed)(settings(hypothesis.given(JOINS, runs())(check)))()
