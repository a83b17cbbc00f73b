"""Random topologies in the `TopologyTestDriver` against the reference interpreter: no broker, some seconds.

`--seed` decides what is tried; a failure shows the smallest plan and inputs that fail.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from compat_tests.oracles.changelog import changelog_equals_table
from compat_tests.oracles.flows import Expected, Flow, Interpreter, expected, table_in_order
from compat_tests.oracles.rows import Origin, Row, origin_header
from compat_tests.random_topologies.interpretation import flows, numbered_flows
from compat_tests.random_topologies.plans import Plan
from compat_tests.random_topologies.program import topology
from compat_tests.random_topologies.random_plans import random_plan
from compat_tests.random_topologies.shaped_judgement import (
    Circumstances,
    ends_right,
    judge_shaped,
    output_of,
    parts,
)
from compat_tests.random_topologies.shapes import LATE_MS, LEAP_MS, SLIDING
from compat_tests.random_topologies.windows_by_definition import WindowsOfATask
from milestones import serdes
from milestones.testing import TopologyTestDriver

EXAMPLES = {"short": 300, "full": 2_000, "soak": 20_000}
CONFIGS: dict[str, st.SearchStrategy[Any]] = {
    "processing_guarantee": st.sampled_from(["at_least_once", "exactly_once_v2"]),
    "statestore_cache_max_bytes": st.sampled_from([0, 200, 1_000_000]),
}

FEW_KEYS = [b"a", b"a", b"b", None]

Output = tuple[bytes | None, bytes | None, int]
"""Key, value, timestamp."""

PLANS = st.randoms(use_true_random=False).map(random_plan)
"""What `random_plan` makes of numbers that hypothesis draws: so it shrinks them, to fewer paths with fewer steps."""


def inputs(plan: Plan) -> st.SearchStrategy[list[Row]]:
    """Up to thirty records of a few keys for the plan's sources, some keyless, some without a value, some late. Where a
    path looks at time, it leaps now and then."""
    text = st.none() | st.text("ab", max_size=4).map(str.encode)
    key, leap, least = text, st.just(0), 0
    if plan.shaped:  # what has partners and windows of several records shows more
        key, leap, least = st.sampled_from(FEW_KEYS), st.sampled_from([0] * 7 + [LEAP_MS]), 8
    record = st.tuples(st.sampled_from(plan.used), key, text, st.integers(1, LATE_MS // 2), leap)
    return st.lists(record, min_size=least, max_size=30).map(_as_rows)


def _as_rows(records: list[tuple[int, bytes | None, bytes | None, int, int]]) -> list[Row]:
    begins = accumulate(leap for *_, leap in records)
    return [
        Row(f"in{source}", 0, offset, key, value, begin + timestamp)
        for offset, ((source, key, value, timestamp, _), begin) in enumerate(zip(records, begins, strict=True))
    ]


def wanted(flow: Flow, rows: list[Row]) -> list[Output]:
    """The flow's outputs, in their order."""
    interpreter, own = Interpreter(flow), [row for row in rows if row.topic in flow.sources]
    return [(record.key, *interpreter.process(record)) for record in expected(flow, own).values()]


def records(driver: TopologyTestDriver, topic: str) -> list[Row]:
    """What was written to the topic since the last look."""
    found = driver.create_output_topic(topic, key=serdes.BYTES, value=serdes.BYTES).read_records()
    return [Row(topic, 0, 0, one.key, one.value, one.timestamp, tuple(one.headers)) for one in found]


def found(driver: TopologyTestDriver, topic: str) -> list[Output]:
    return [(record.key, record.value, record.timestamp) for record in records(driver, topic)]


def check(plan: Plan, rows: list[Row], config: dict[str, Any]) -> None:
    on_disk = any(path.end == "slots" and not path.in_memory for path in plan.paths)  # scans are the engine's
    with TopologyTestDriver(topology(plan).build(), persistent=on_disk, **config) as driver:
        shaped = {number: Shaped(plan, number, config) for number, path in enumerate(plan.paths) if path.shaped}
        for row in rows:
            headers: list[tuple[str, bytes | None]] = [origin_header(row.topic, 0, row.offset)]
            driver.pipe(row.topic, row.key, row.value, row.timestamp, headers)
            for path in shaped.values():
                path.check(row, records(driver, f"out{path.number}"))
        for path in shaped.values():
            path.end(rows)
        for flow in flows(plan, thinned=config["statestore_cache_max_bytes"] > 0):
            have, want = found(driver, flow.output), wanted(flow, rows)
            if flow.thinned:
                for key, its in by_key(want).items():
                    assert is_thinned(by_key(have).get(key, []), its), (flow.output, key, have, want)
                assert by_key(have).keys() <= by_key(want).keys(), flow.output
            else:
                assert have == want, flow.output
        for number, flow in numbered_flows(plan).items():
            if flow.step is not None:
                topic = f"{driver.config.application_id}-store{number}-changelog"
                assert changelog_equals_table(logged(driver, topic), table_in_order(flow, in_turn(flow, rows))) == []


class Shaped:
    """One path that looks at time or at another source. In the driver each record is a round of its own: it is
    processed, with all that follows from it, before the next one comes."""

    def __init__(self, plan: Plan, number: int, config: dict[str, Any]) -> None:
        paths = tuple(replace(path, again=min(path.again, 1)) for path in plan.paths)
        self._plan = Plan(paths, (1,) * len(plan.sources))  # in the driver each topic has one partition
        self._path, self.number = self._plan.paths[number], number
        self._cached = config["statestore_cache_max_bytes"] > 0
        windows = self._path.windows
        self._task = None if windows is None else WindowsOfATask(windows, self._path.end)
        self._thinned = windows is not None and self._cached and not windows.on_close
        self._found: list[Row] = []

    def check(self, row: Row, found: list[Row]) -> None:
        """What one input leads to."""
        self._found += found
        if self._task is None or row.topic not in {f"in{source}" for source in self._path.sources}:
            return
        taken = parts(self._path, self._plan, [row], _round)
        want = [output for part in taken for output in self._task.take(part.key, part.value, part.timestamp)]
        have = [output_of(one) for one in found]
        if self._path.windows is not None and self._path.windows.kind == SLIDING:
            # One that begins behind a record and ends with the next one is set twice, as in Kafka Streams.
            want, have = sorted(set(want), key=str), sorted(set(have), key=str)
        if not self._thinned:
            assert have == want, f"out{self.number}, behind {row}"

    def end(self, rows: list[Row]) -> None:
        """What all of them lead to."""
        if self._task is None:
            how = Circumstances(_round, cached=self._cached)
            assert judge_shaped(self._plan, self.number, rows, self._found, how) == []
        elif self._thinned:
            table = {output.key or b"": output for output in self._task.outputs()}
            assert ends_right(table, [output_of(row) for row in self._found], operator.eq) == []


def _round(row: Row) -> int:
    return row.offset


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


Trial = tuple[Plan, list[Row], dict[str, Any]]
"""A plan, inputs for it, and a config."""


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    plan = draw(PLANS)
    return plan, draw(inputs(plan)), draw(st.fixed_dictionaries(CONFIGS))


def random_trial(rng: random.Random) -> Trial:
    """A trial by a seed: it doesn't shrink, but any is as likely as any other."""
    plan = random_plan(rng)
    texts = [None, *map(str.encode, ("", "a", "b", "ab", "ba", "bab"))]
    records = [
        (
            rng.choice(plan.used),
            rng.choice(FEW_KEYS if plan.shaped else texts),
            rng.choice(texts),
            rng.randint(1, LATE_MS // 2),
            LEAP_MS if plan.shaped and rng.random() < 0.1 else 0,
        )
        for _ in range(rng.randrange(30))
    ]
    config = {
        "processing_guarantee": rng.choice(["at_least_once", "exactly_once_v2"]),
        "statestore_cache_max_bytes": rng.choice([0, 0, 200, 1_000_000]),
    }
    return plan, _as_rows(records), config


def try_some(count: int, seed: int) -> None:
    """So many trials, half of them drawn evenly, half by hypothesis; raises what the first one does that fails, or the
    smallest one that hypothesis finds."""
    for number in range(count // 2):
        trial = random_trial(random.Random(f"{seed}:{number}"))
        try:
            check(*trial)
        except Exception as error:
            error.add_note(f"trial {number} of seed {seed}: {trial[0].text()}, {trial[2]}, {trial[1]}")
            raise
    settings = hypothesis.settings(max_examples=count // 2, deadline=None, database=None, print_blob=False)
    hypothesis.seed(seed)(settings(hypothesis.given(trials())(lambda trial: check(*trial))))()


@pytest.mark.timeout(3_600)
def test_whatever_the_topology_the_outputs_are_the_reference_interpreters(pytestconfig: pytest.Config) -> None:
    try_some(EXAMPLES[pytestconfig.option.selection], pytestconfig.option.seed)
