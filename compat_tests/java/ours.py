"""The topologies in our own test driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from compat_tests.java.cases import WALL_MS, Advance, Case, Outcome, Outputs, Row
from compat_tests.java.fed import AsJava, FedDriver
from compat_tests.java.registry import Entry, settings_of
from milestones.common import serdes
from milestones.common.testing.driver import APPLICATION_ID, TopologyTestDriver
from milestones.common.topology import Topology
from milestones.common.topology.optimization import parts_of

AS_JAVA: Mapping[str, str] = {"stream_join_unmatched": "at_once"}
"""What has ours do as Kafka Streams where it does better by default; see `declared.py`."""


def changelogs_of_commits(topology: Topology) -> frozenset[str]:
    """The changelogs that every stage writes at a commit, behind the results, of each key the last value; and those of
    sessions, where what has grown comes before the deletion of what it was."""
    return frozenset(
        sub.changelogs[spec.name]
        for sub in topology.resolve(APPLICATION_ID)
        for spec in sub.stores
        if (spec.results_wait or (spec.of_dsl and spec.kind.startswith("session"))) and spec.name in sub.changelogs
    )


class Ours:
    """As `jvm.Java`, by the runtime's own tasks and stores."""

    _driver: ClassVar[Callable[..., TopologyTestDriver]] = TopologyTestDriver

    def __init__(self, entries: Mapping[str, Entry], **settings: Any) -> None:
        """`settings`: of the config, besides those of the bench and over `AS_JAVA`."""
        self._entries, self._settings = entries, {**AS_JAVA, **settings}

    def names(self) -> list[str]:
        """The topologies that we have."""
        return list(self._entries)

    def describe(self, topology: str, optimization: str = "none") -> str:
        """The text of a topology. `optimization`: of `topology_optimization`."""
        return str(self._entries[topology].build().optimized(parts_of(optimization)).describe())

    def run(self, topology: str, case: Case, cache: int, optimization: str = "none") -> Outcome:
        """What the steps lead to, with so many bytes of cache."""
        entry, outputs = self._entries[topology], list[Outputs]()
        built = entry.build()
        of_commits = changelogs_of_commits(built)
        driver = self._driver(
            built,
            start_time_ms=WALL_MS,
            topics=entry.inputs,
            statestore_cache_max_bytes=cache,
            topology_optimization=optimization,
            **settings_of(topology),
            default_key_serde=serdes.STRING,
            default_value_serde=serdes.STRING,
            **self._settings,
        )
        with driver:
            outputs.append(_read(driver))
            for step in case:
                try:
                    if isinstance(step, Advance):
                        driver.advance_wall_clock(step.ms)
                    else:
                        driver.pipe(step.topic, step.key, step.value, step.timestamp, [*step.headers])
                except Exception as error:
                    return Outcome(outputs, f"{type(error).__name__}: {error}", of_commits)
                outputs.append(_read(driver))
        return Outcome(outputs, of_commits=of_commits)


class OursInItsOrder(Ours):
    """Records that wait for several tasks come in the order that they have in the one task of Java's test driver. It is
    another one than ours, where their times are equal, or where one task's record is written later."""

    _driver = staticmethod(partial(FedDriver, order=AsJava))


def _read(driver: TopologyTestDriver) -> Outputs:
    """What was written since the last time."""
    rows: Outputs = {}
    for topic, outputs in driver.produced().items():
        if outputs:
            rows[topic] = [Row(each.key, each.value, each.timestamp, tuple(each.headers or ())) for each in outputs]
            driver.unread(topic).clear()
    return rows
