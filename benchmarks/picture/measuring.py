"""All contenders in all scenarios.

*Guarantees*: one that can't take part, fails, or isn't done in its time has a row that says so, and the others go on;
after each scenario `keep` has all rows so far.
*Assumes*: the broker is ours alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from benchmarks.cluster import Cluster
from benchmarks.contenders import Contender, ours, peers
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.picture.scenarios import ON_SPARK, Scenario
from benchmarks.rows import Figure, Row, run
from benchmarks.spark.work import contenders as on_spark
from milestones import MilestonesError

SPARK_NAMES = ("milestones-batch", "groupby-count")
COLD = " cold"


@dataclass(frozen=True)
class Found:
    """The rows of a scenario, and the figures that a row has."""

    scenario: Scenario
    title: str
    figures: Sequence[Figure]
    rows: Sequence[Row]

    @property
    def shown(self) -> Figure:
        """The figure that is drawn."""
        (found,) = (figure for figure in self.figures if figure.name == self.scenario.shown)
        return found

    def as_json(self) -> dict[str, Any]:
        told = {"scenario": self.scenario.name, "title": f"{self.scenario.title}: {self.title}", "at": self.scenario.at}
        return {**told, "rows": [row.as_json() for row in self.rows]}


def taking_part(scenario: Scenario, stages: Sequence[str], names: Sequence[str]) -> list[Contender]:
    """Peers first. Who can't is absent, with the reason; of Kafka Streams the warm one takes part."""
    if scenario.programs == ON_SPARK:
        missing = "" if find_spec("pyspark") else "PySpark isn't installed: pip install 'milestones[spark]'"
        return [replace(one, absent=missing) for one in on_spark(SPARK_NAMES)]
    found = list[Contender]()
    for name in names:
        try:
            found += [one for one in peers([name], scenario.programs) if not one.name.endswith(COLD)]
        except (BenchmarkError, MilestonesError) as error:
            found.append(Contender(name, Job.arguments, peer=True, absent=str(error)))
    return [*found, *(ours(stage, scenario.programs) for stage in stages)]


@dataclass(frozen=True)
class Turns:
    """Who takes turns, and how often; `within_s`: how long one run may take."""

    stages: Sequence[str]
    peers: Sequence[str]
    guarantees: Sequence[str]
    rounds: int
    seed: int
    within_s: float


def measure(
    cluster: Cluster, runs: Path, wanted: Sequence[Scenario], turns: Turns, log: Callable[[str], None],
    keep: Callable[[Sequence[Found]], None],
) -> list[Found]:  # fmt: skip
    """What each scenario gave."""
    found: list[Found] = []
    for scenario in wanted:
        work = scenario.make(cluster, runs)
        work.name, work.timeout_s = scenario.name, turns.within_s
        log(f"{scenario.name}: {work.title}")
        who = taking_part(scenario, turns.stages, turns.peers)
        try:
            rows = run(work, who, turns.guarantees, turns.rounds, turns.seed, log, spared=lambda _: True)
        except (BenchmarkError, KafkaException) as error:
            log(f"{scenario.name}: {error}")
            entries = ((one.name, of) for one in who for of in one.under(turns.guarantees))
            rows = [Row(scenario.name, *entry, (), str(error)) for entry in entries]
        cluster.delete(f"{scenario.name}-")
        found.append(Found(scenario, work.title, work.figures, rows))
        keep(found)
    return found


def failed(found: Sequence[Found]) -> list[str]:
    """Where one of ours did not do what it was asked to."""
    return [
        f"{one.scenario.name}, {row.contender}"
        for one in found
        for row in one.rows
        if row.said and row.contender.startswith("milestones")
    ]
