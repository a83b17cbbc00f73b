"""Random topologies in the `TopologyTestDriver` against the reference interpreter: no broker, some seconds.

`--seed` decides what is tried; a failure shows the smallest plan and inputs that fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from compat_tests.oracles.changelog import changelog_equals_table
from compat_tests.oracles.flows import Expected, Flow, Interpreter, expected, table_in_order
from compat_tests.oracles.rows import Origin, Row
from compat_tests.random_topologies.cases import random_plan
from compat_tests.random_topologies.interpretation import flows
from compat_tests.random_topologies.plans import Plan
from compat_tests.random_topologies.program import topology
from milestones import serdes
from milestones.testing import TopologyTestDriver

EXAMPLES = {"short": 150, "full": 1_000, "soak": 20_000}
CONFIGS: dict[str, st.SearchStrategy[Any]] = {
    "processing_guarantee": st.sampled_from(["at_least_once", "exactly_once_v2"]),
    "statestore_cache_max_bytes": st.sampled_from([0, 200, 1_000_000]),
}

Output = tuple[bytes | None, bytes | None, int]
"""Key, value, timestamp."""

PLANS = st.randoms(use_true_random=False).map(random_plan)
"""What `random_plan` makes of numbers that hypothesis draws: so it shrinks them, to fewer paths with fewer steps."""


def inputs(plan: Plan) -> st.SearchStrategy[list[Row]]:
    """Up to thirty records of a few keys for the plan's sources, some keyless, some without a value, some late."""
    text = st.none() | st.text("ab", max_size=4).map(str.encode)
    record = st.tuples(st.sampled_from(plan.used), text, text, st.integers(1, 50))
    return st.lists(record, max_size=30).map(
        lambda records: [
            Row(f"in{source}", 0, offset, key, value, timestamp)
            for offset, (source, key, value, timestamp) in enumerate(records)
        ]
    )


def wanted(flow: Flow, rows: list[Row]) -> list[Output]:
    """The flow's outputs, in their order."""
    interpreter, own = Interpreter(flow), [row for row in rows if row.topic in flow.sources]
    return [(record.key, *interpreter.process(record)) for record in expected(flow, own).values()]


def found(driver: TopologyTestDriver, topic: str) -> list[Output]:
    records = driver.create_output_topic(topic, key=serdes.BYTES, value=serdes.BYTES).read_records()
    return [(record.key, record.value, record.timestamp) for record in records]


def check(plan: Plan, rows: list[Row], config: dict[str, Any]) -> None:
    on_disk = any(path.end == "slots" and not path.in_memory for path in plan.paths)  # scans are the engine's
    with TopologyTestDriver(topology(plan).build(), persistent=on_disk, **config) as driver:
        for row in rows:
            driver.pipe(row.topic, row.key, row.value, row.timestamp, None)
        for flow in flows(plan, cached=config["statestore_cache_max_bytes"] > 0):
            have, want = found(driver, flow.output), wanted(flow, rows)
            if flow.thinned:
                for key, its in by_key(want).items():
                    assert is_thinned(by_key(have).get(key, []), its), (flow.output, key, have, want)
                assert by_key(have).keys() <= by_key(want).keys(), flow.output
            else:
                assert have == want, flow.output
        for number, flow in enumerate(flows(plan)):
            if flow.step is not None:
                topic = f"{driver.config.application_id}-store{number}-changelog"
                assert changelog_equals_table(logged(driver, topic), table_in_order(flow, in_turn(flow, rows))) == []


def in_turn(flow: Flow, rows: list[Row]) -> Mapping[Origin, Expected]:
    """What the inputs give, as if they were those of one topic: the driver takes them in this order."""
    wanted = expected(flow, [row for row in rows if row.topic in flow.sources]).items()
    return {origin._replace(topic=""): one for origin, one in wanted}


def logged(driver: TopologyTestDriver, topic: str) -> list[Row]:
    return [Row(topic, 0, at, *output) for at, output in enumerate(found(driver, topic))]


def by_key(outputs: list[Output]) -> dict[bytes | None, list[Output]]:
    """Each key's outputs, in order."""
    keys = {output[0] for output in outputs}
    return {key: [output for output in outputs if output[0] == key] for key in keys}


def is_thinned(outputs: list[Output], complete: list[Output]) -> bool:
    """What a cache may leave of a key's changes: some, in order, and always the last; but a deletion of what nobody
    saw may stay unseen."""
    rest = iter(complete)
    unseen = complete[-1][1] is None and (not outputs or outputs[-1][1] is None)
    return (unseen or outputs[-1:] == complete[-1:]) and all(output in rest for output in outputs)


@st.composite
def trials(draw: st.DrawFn) -> tuple[Plan, list[Row], dict[str, Any]]:
    """A plan, inputs for it, and a config."""
    plan = draw(PLANS)
    return plan, draw(inputs(plan)), draw(st.fixed_dictionaries(CONFIGS))


@pytest.mark.timeout(3_600)
def test_whatever_the_topology_the_outputs_are_the_reference_interpreters(pytestconfig: pytest.Config) -> None:
    settings = hypothesis.settings(
        max_examples=EXAMPLES[pytestconfig.option.selection], deadline=None, database=None, print_blob=False
    )
    given = hypothesis.given(trials())
    hypothesis.seed(pytestconfig.option.seed)(settings(given(lambda trial: check(*trial))))()
