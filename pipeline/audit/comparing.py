"""Compares the expected outputs with the actual ones, on Spark.

Two records are equal if topic, key, value, timestamp and headers are equal. If several records are equal, the n-th
expected record is matched with the n-th actual one.

| what | is told as |
|---|---|
| should be there and isn't | lost |
| is there once more than it should | duplicate |
| is there and comes of no input | unexpected |
| one lost and one unexpected of the same key | wrong |
| comes before one that its task wrote earlier, of the same input partition | reordered |
| is in another partition than the partitioner's | misplaced |

*Guarantees*: counts are exact. At most `EXAMPLES` examples of each problem are kept for a topic.
*Assumes*: different records have different 64-bit hashes. With 10 million records, one of 400,000 audits meets two
equal hashes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as sql

from milestones.pipeline.audit.rows import Problem

EXAMPLES = 20
BUCKETS = 60
"""The number of buckets of a timeline."""

PAIRED = 100_000
"""At most this number of lost records, and of extra records, is looked at one by one."""


@dataclass
class Compared:
    """One topic. `examples`: rows of both sides, as `(problem, expected, actual)`."""

    expected: int = 0
    actual: int = 0
    counts: Counter[Problem] = field(default_factory=Counter)
    examples: list[tuple[Problem, Row | None, Row | None]] = field(default_factory=list)
    subs: set[int] = field(default_factory=set)
    timeline: list[tuple[int, int]] = field(default_factory=list)

    def note(self, problem: Problem, expected: Row | None, actual: Row | None) -> None:
        self.counts[problem] += 1
        if self.counts[problem] <= EXAMPLES:
            self.examples.append((problem, expected, actual))


class Comparison:
    """*Owns*: the matches that Spark caches, until `close`."""

    def __init__(self, expected: DataFrame, actual: DataFrame, untimed: Iterable[str], partitions: int) -> None:
        """`expected`: rows of kind `output` from folds. `actual`: the records in the output topics. `untimed`: topics
        whose timestamps the broker sets. `partitions`: of shuffles.
        """
        self._expected, self._actual = expected.drop("kind", "other", "what"), actual
        self._untimed, self._partitions = list(untimed), partitions
        self._matches = self._matched().persist()

    def close(self) -> None:
        """Let Spark forget it."""
        self._matches.unpersist()

    def topics(self) -> dict[str, Compared]:
        """Return the findings of each topic."""
        found: defaultdict[str, Compared] = defaultdict(Compared)
        for row in self._expected.where("sure").groupBy("topic", "sub").count().collect():
            found[row["topic"]].expected += row["count"]
            found[row["topic"]].subs.add(row["sub"])
        for row in self._actual.groupBy("topic").count().collect():
            found[row["topic"]].actual += row["count"]
        self._leftovers(found)
        self._out_of_order(found)
        self._tell(found, Problem.MISPLACED, self._matches.where("wanted >= 0 and wanted <> partition"))
        self._draw(found)
        return dict(found)

    def _draw(self, found: Mapping[str, Compared]) -> None:
        """Count the expected records in each part of the time."""
        sure = self._expected.where("sure")
        (ends,) = sure.agg(sql.min("time").alias("first"), sql.max("time").alias("last")).collect()
        if ends["first"] is None:
            return
        width = max(1, (ends["last"] - ends["first"]) // BUCKETS)
        bucket = sql.floor((sql.col("time") - ends["first"]) / width).alias("bucket")
        for row in sure.groupBy("topic", bucket).count().orderBy("bucket").collect():
            found[row["topic"]].timeline.append((ends["first"] + row["bucket"] * width, row["count"]))

    # -- matching

    def _identity(self) -> Column:
        time = sql.when(sql.col("topic").isin(self._untimed), None).otherwise(sql.col("time"))
        fields = [sql.col("topic"), sql.col("key"), sql.col("value"), time, sql.col("headers")]
        return sql.xxhash64(*fields, *(each.isNull() for each in fields[1:]))  # a null doesn't change a hash

    def _matched(self) -> DataFrame:
        expected = self._expected.select(
            self._identity().alias("id"), "topic", "sub", "task", "seq", "sure", "source", "source_partition",
            sql.col("partition").alias("wanted"),
        )  # fmt: skip
        actual = self._actual.select(
            self._identity().alias("id"), sql.col("topic").alias("its_topic"), "partition", "offset"
        )
        in_order = Window.partitionBy("id").orderBy("wanted", "sub", "task", "seq")
        as_found = Window.partitionBy("id").orderBy("partition", "offset")
        left = expected.repartition(self._partitions, "id").withColumn("n", sql.row_number().over(in_order))
        right = actual.repartition(self._partitions, "id").withColumn("n", sql.row_number().over(as_found))
        return left.join(right, ["id", "n"], "full")

    # -- records without a match

    def _leftovers(self, found: Mapping[str, Compared]) -> None:
        lost = self._matches.where("offset is null and sure")
        extra = self._matches.where("seq is null").withColumn("again", sql.col("n") > 1)
        for row in lost.groupBy("topic").count().collect():
            found[row["topic"]].counts[Problem.LOST] += row["count"]
        for row in extra.groupBy("its_topic", "again").count().collect():
            problem = Problem.DUPLICATE if row["again"] else Problem.UNEXPECTED
            found[row["its_topic"]].counts[problem] += row["count"]
        if any(one.counts for one in found.values()):
            self._look_at(found, lost, extra)

    def _look_at(self, found: Mapping[str, Compared], lost: DataFrame, extra: DataFrame) -> None:
        """Match expected with actual records where possible, and keep examples of the rest."""
        whole = self._expected.join(
            sql.broadcast(lost.select("sub", "task", "seq").limit(PAIRED)), ["sub", "task", "seq"]
        )
        at = extra.select(sql.col("its_topic").alias("topic"), "partition", "offset", "again").limit(PAIRED)
        others = self._actual.join(sql.broadcast(at), ["topic", "partition", "offset"])
        unpaired: defaultdict[tuple[str, bytes | None], list[Row]] = defaultdict(list)
        for row in sorted(others.collect(), key=lambda row: (row["partition"], row["offset"])):
            if row["again"]:
                _example(found[row["topic"]], Problem.DUPLICATE, None, row)
            else:
                unpaired[row["topic"], _key(row)].append(row)
        for row in sorted(whole.collect(), key=lambda row: (row["sub"], row["task"], row["seq"])):
            topic, same = found[row["topic"]], unpaired[row["topic"], _key(row)]
            if same:
                topic.counts.subtract((Problem.LOST, Problem.UNEXPECTED))
                topic.note(Problem.WRONG, row, same.pop(0))
            else:
                _example(topic, Problem.LOST, row, None)
        for (name, _), rows in unpaired.items():
            for row in rows:
                _example(found[name], Problem.UNEXPECTED, None, row)

    # -- matched records in a wrong place

    def _out_of_order(self, found: Mapping[str, Compared]) -> None:
        """Return the records that come behind a record that their task wrote later, from the same input partition."""
        flow = Window.partitionBy("topic", "partition", "sub", "task", "source", "source_partition").orderBy("offset")
        # Where the client chose a partition at random, equal records can't be told apart.
        certain = self._matches.where("seq is not null and offset is not null and not (wanted < 0 and n > 1)")
        ordered = certain.withColumn("before", sql.lag("seq").over(flow)).where("seq < before")
        self._tell(found, Problem.REORDERED, ordered)

    def _tell(self, found: Mapping[str, Compared], problem: Problem, rows: DataFrame) -> None:
        for row in rows.groupBy("topic").count().collect():
            found[row["topic"]].counts[problem] += row["count"]
        if not any(one.counts[problem] for one in found.values()):
            return
        some = rows.select("sub", "task", "seq", "partition", "offset").limit(EXAMPLES)
        whole = self._expected.withColumnRenamed("partition", "wanted").join(
            sql.broadcast(some), ["sub", "task", "seq"]
        )
        for row in whole.collect():
            _example(found[row["topic"]], problem, row, row)


def _example(topic: Compared, problem: Problem, expected: Row | None, actual: Row | None) -> None:
    if sum(known is problem for known, _, _ in topic.examples) < EXAMPLES:
        topic.examples.append((problem, expected, actual))


def _key(row: Any) -> bytes | None:
    key = row["key"]
    return None if key is None else bytes(key)
