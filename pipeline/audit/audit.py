"""Checks an application's outputs and stores against its inputs, on Spark.

1. plan: which input counts, which output belongs to it (`planning.py`);
2. fold the inputs through the topology, sub-topology by sub-topology; compare stores on the way (`folding.py`);
3. compare outputs (`comparing.py`).

*Guarantees*: reads only. A reported error is an error, if user code returns the same results for the same input. A
difference that may have another reason is reported as doubtful, with the reason.
*Assumes*: the inputs' history is in Kafka. The operators are correct: the fold runs the runtime's own task, so that an
operator's error is on both sides, and isn't found.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial, reduce
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from milestones.common.config import StreamsConfig
from milestones.common.config.settings import StreamsSettings
from milestones.common.errors import ConfigError, TopologyError
from milestones.common.records import TopicPartition
from milestones.common.topology import StreamsBuilder, Topology
from milestones.instance.application import Application
from milestones.pipeline.audit.actual import actual
from milestones.pipeline.audit.comparing import EXAMPLES, Comparison
from milestones.pipeline.audit.computed import write_computed
from milestones.pipeline.audit.folding import fold
from milestones.pipeline.audit.plan import AuditPlan
from milestones.pipeline.audit.planning import plan_audit
from milestones.pipeline.audit.report import Audited, AuditReport
from milestones.pipeline.audit.rows import ACTUAL, FOLDED, Problem, RowKind
from milestones.pipeline.audit.texts import Texts
from milestones.pipeline.hosting.payload import Payload, pack
from milestones.pipeline.spark_jobs import SparkJobError, context_of, reason_in

SHUFFLED = 250_000
"""The approximate number of records in one partition of a shuffle."""

UPSERTED = "from stage m5 on an upsert sink sends the last record per key and commit (upserts=True)"
"""The doubt about the topic of an upsert sink."""


def audit(
    topology: Topology | StreamsBuilder,
    spark: SparkSession,
    *,
    begin: Mapping[TopicPartition, int] | None = None,
    work: str | None = None,
    config: StreamsConfig | None = None,
    **settings: Unpack[StreamsSettings],
) -> AuditReport:
    """Process the application's committed input once more, and compare the results with the application's outputs and
    stores.

    The application may run meanwhile. `begin`: the offset at which the application began to read each input partition,
    0 by default. `work`: URL of a folder that all Spark tasks can reach. It is needed when tasks run on other machines.
    Settings are given as in `Streams`, by name or as `config`. Raises `SourceTopicError`, `KafkaUnreachableError`,
    `SparkJobError`, and `MilestonesError` if a part of the history is gone.
    """
    began = time.monotonic()
    config = StreamsConfig(**settings) if config is None else config.replace(**settings)
    built = topology.build() if isinstance(topology, StreamsBuilder) else topology
    application, context = Application.of(built, config), context_of(spark)
    if application.globals is not None:
        raise TopologyError(
            f"{application.id} has global stores ({', '.join(spec.name for spec in application.globals.stores)}): what "
            "their readers found depends on when they looked, so that no audit can tell right outputs from wrong ones"
        )
    near = str(context.master).startswith("local")
    with ExitStack() as closing:
        folder = _folder(work, closing, near=near)
        plan = plan_audit(application, config, folder, begin)
        run = _Run(spark, pack(built, config, near=near), plan, folder, Texts(application), closing)
        try:
            return run.report(application, config, began)
        except Exception as error:
            if type(error).__module__.startswith(("pyspark", "py4j")):
                raise SparkJobError(f"audit of {application.id}: {reason_in(error)}") from error
            raise


def _folder(work: str | None, closing: ExitStack, *, near: bool) -> str:
    if work is not None:
        return f"{work.rstrip('/')}/{time.time_ns()}"
    if not near:
        raise ConfigError("work", None, "Spark runs on other machines: give the URL of a folder that all of them reach")
    directory = closing.enter_context(tempfile.TemporaryDirectory(prefix="milestones-audit-"))
    return Path(directory).as_uri()


class _Run:
    """One audit. *Owns*: the DataFrames that Spark caches, until `closing` ends."""

    def __init__(
        self, spark: SparkSession, payload: Payload, plan: AuditPlan, folder: str, texts: Texts, closing: ExitStack
    ) -> None:
        self._spark, self._payload, self._plan, self._folder = spark, payload, plan, folder
        self._texts, self._closing = texts, closing
        self._partitions = max(4, -(-plan.size // SHUFFLED))
        self._doubts = {sub: list(doubts) for sub, doubts in plan.doubts.items()}

    def report(self, application: Application, config: StreamsConfig, began: float) -> AuditReport:
        folded = self._folded()
        for row in folded.where(f"kind = '{RowKind.DOUBT}'").select("sub", "what").distinct().collect():
            self._doubts.setdefault(row["sub"], []).append(row["what"])
        inputs = {
            f"{row['source']}-{row['source_partition']}": row["seq"]
            for row in folded.where(f"kind = '{RowKind.INPUT}'").orderBy("source", "source_partition").collect()
        }
        return AuditReport(
            application_id=application.id,
            guarantee=config.processing_guarantee,
            topics=list(self._topics(folded)),
            stores=list(self._stores(folded)),
            inputs=inputs,
            seconds=time.monotonic() - began,
            notes=self._plan.notes,
            skipped=self._plan.skipped,
            live=self._plan.live,
        )

    def _folded(self) -> DataFrame:
        frames = []
        computed = self._plan.computed
        for jobs in self._plan.levels:
            frame = self._kept(partial(fold, self._payload, jobs), len(jobs), FOLDED)
            frames.append(frame)
            if computed:
                write_computed(frame, sorted(computed), self._folder, self._partitions)
        return reduce(DataFrame.unionByName, frames, self._spark.createDataFrame([], from_arrow_schema(FOLDED)))

    def _kept(self, function: Callable[[Any], Iterator[Any]], count: int, schema: pa.Schema) -> DataFrame:
        """Return the rows of `count` Spark tasks as a DataFrame that Spark caches on disk."""
        rows = self._spark.range(0, count, 1, count).mapInArrow(function, from_arrow_schema(schema))
        frame = rows.persist(StorageLevel.DISK_ONLY)
        self._closing.callback(frame.unpersist)
        frame.count()
        return frame

    # -- outputs

    def _topics(self, folded: DataFrame) -> Iterable[Audited]:
        outputs = self._plan.outputs
        if not outputs:
            return
        found = self._kept(partial(actual, outputs), len(outputs), ACTUAL)
        topics = sorted({part.partition.topic for part in outputs})
        wanted = folded.where(folded["topic"].isin(topics) & (folded["kind"] == RowKind.OUTPUT.value))
        comparison = Comparison(wanted, found, self._plan.untimed, self._partitions)
        self._closing.callback(comparison.close)
        for name, topic in sorted(comparison.topics().items()):
            doubts = [doubt for sub in sorted(topic.subs) for doubt in self._doubts.get(sub, [])]
            doubts += [UPSERTED] * (name in self._plan.upserted)
            if not topic.subs and not self._texts.is_written(name):
                continue  # a function might have chosen this topic, and others write to it
            examples = [self._texts.of_output(*example) for example in topic.examples]
            counts = {problem: count for problem, count in topic.counts.items() if count}
            yield Audited(name, topic.expected, topic.actual, counts, doubts, examples, topic.timeline)

    # -- stores

    def _stores(self, folded: DataFrame) -> Iterable[Audited]:
        entries: Counter[tuple[int, str, str]] = Counter()
        for row in folded.where(f"kind = '{RowKind.STORE}'").collect():
            entries[row["sub"], row["what"], row["topic"]] += row["seq"]
        differences = folded.where(f"kind = '{RowKind.DIFFERENCE}'")
        counts: defaultdict[str, Counter[Problem]] = defaultdict(Counter)
        for row in differences.groupBy("topic", "what").count().collect():
            counts[row["topic"]][Problem(row["what"])] += row["count"]
        for (sub, name, changelog), count in sorted(entries.items()):
            found = counts[changelog]
            rows = differences.where(differences["topic"] == changelog)
            examples = [
                self._texts.of_entry(name, row)
                for problem in found
                for row in rows.where(rows["what"] == problem.value).limit(EXAMPLES).collect()
            ]
            there = count - found[Problem.LOST] + found[Problem.UNEXPECTED]
            doubts = [doubt for doubt in self._doubts.get(sub, []) if "caches" not in doubt]
            yield Audited(name, count, there, dict(found), doubts, examples)
