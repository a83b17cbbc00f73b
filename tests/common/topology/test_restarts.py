"""A restart changes no result: every topology of the bench against Java, moved to another process between any two
steps, does what it does in one, also with records that are late: the times travel with the committed offsets."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterable
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase

from compat_tests.apps.times import random_records, times
from compat_tests.harness.feed import Sent
from compat_tests.java.cases import WALL_MS, Advance, Case, Row, cases
from compat_tests.java.registry import Entry, settings_of
from compat_tests.java.topologies import ALL
from milestones.common import serdes
from milestones.common.state.cells import Cells
from milestones.common.task.task import Task
from tests.common.topology.restarting import RestartingDriver

pytestmark = pytest.mark.usefixtures("quiet")

EXAMPLES, NIGHTLY = 5, 60
"""Cases of each topology: all of them are many."""
INPUTS = 5
ANEW = {
    r"lru_store_calls": "the order of use is that of the keys",
    r"window_store_duplicates": "its `fetch` of one time gives what this process has put last",
    r"(headers_)?table_transform_values_.*": "its transformers count in an attribute",
}
"""What begins anew in another process by its nature."""


def moved(entry: Entry) -> bool:
    """Whether a restart must change nothing."""
    if any(re.fullmatch(name, entry.name) for name in ANEW):
        return False
    kept = [spec for sub in entry.build().resolve("app") for spec in sub.stores]
    return bool(kept) and all(spec.logged for spec in kept)


MOVED = [name for name, entry in ALL.items() if moved(entry)]


def results(entry: Entry, case: Case, restarts: Collection[int]) -> tuple[dict[str, list[Row]], str]:
    """What is written to each topic but changelogs, and the error that ends the case. `restarts`: before which of its
    steps."""
    driver = RestartingDriver(
        entry.build(), start_time_ms=WALL_MS, topics=entry.inputs, statestore_cache_max_bytes=0,
        **settings_of(entry.name), default_key_serde=serdes.STRING, default_value_serde=serdes.STRING,
    )  # fmt: skip
    with driver:
        ended = ""
        try:
            for at, step in enumerate(case):
                if at in restarts:
                    driver.restart()
                if isinstance(step, Advance):
                    driver.advance_wall_clock(step.ms)
                else:
                    driver.pipe(step.topic, step.key, step.value, step.timestamp, [*step.headers])
        except Exception as error:
            ended = type(error).__name__
        written = {
            topic: [Row(one.key, one.value, one.timestamp, tuple(one.headers or ())) for one in outputs]
            for topic, outputs in driver.produced().items()
            if not topic.endswith("-changelog")
        }
    return {topic: rows for topic, rows in written.items() if rows}, ended


def check(name: str, examples: int = EXAMPLES) -> None:
    entry = ALL[name]

    @hypothesis.settings(max_examples=examples, deadline=None, derandomize=True, phases=[Phase.generate, Phase.shrink])
    @hypothesis.given(cases(entry.inputs))
    def same(case: Case) -> None:
        assert results(entry, case, range(len(case))) == results(entry, case, ())

    same()


@pytest.mark.parametrize("name", MOVED)
def test_a_restart_before_each_step_changes_no_result(name: str) -> None:
    check(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MOVED)
def test_nor_does_it_in_many_more_cases(name: str) -> None:
    check(name, NIGHTLY)


FAULTS: dict[str, tuple[type, str, Any]] = {
    "join_streams_self": (Cells, "to_keep", lambda self, values: {}),
    "windows_tumbling_count": (Task, "restore", lambda self, store, batch, next_offset: None),
}
"""By topology: a program that forgets what the committed offsets should carry, and one that restores nothing."""


@pytest.mark.parametrize("name", FAULTS)
def test_they_find_what_another_process_forgets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[name])
    with pytest.raises(AssertionError):
        check(name, 100)


def committed(records: Iterable[Sent], *, restarts: bool) -> list[Row]:
    with RestartingDriver(times("app"), statestore_cache_max_bytes=0) as driver:
        for sent in records:
            if restarts:
                driver.restart()
            driver.pipe("app-in", sent.key, sent.value, sent.timestamp)
        return [Row(one.key, one.value, one.timestamp) for one in driver.produced()["app-out"]]


@pytest.mark.parametrize("seed", range(INPUTS))
def test_a_restart_before_each_record_changes_nothing_of_what_is_late_or_closed(seed: int) -> None:
    records = random_records(random.Random(seed), WALL_MS, 20)
    assert committed(records, restarts=True) == committed(records, restarts=False)
