"""Ways in which a plan must come to the same results on our side: restarts, roll-backs, long commits, partitions.

| way | the same as |
|---|---|
| restarts, elsewhere or where the disk was kept; each record twice, as after a roll-back; both, behind a cache | one run without any, record by record, changelogs too |
| a stage whose changelogs have one record per key and commit, with restarts | the same, except for changelogs |
| commits of several records each, with restarts: Spark's micro-batches | one run with a commit per record, where each task's topics are of one writer |
| several partitions | each partition's records alone, where no task reads what another one writes; else one partition, where no operator looks at the time of its whole partition |
| several partitions, with restarts | several partitions without any |

*Guarantees*: the same seed tries the same ways. The first difference is reported.
*Assumes*: the plain run is compared with Java's by `bench.py`.
"""  # noqa: E501  a row of a table

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from compat_tests.java.cases import WALL_MS, Advance, Case, Pipe, Row
from compat_tests.java.comparing import UNORDERED, first_difference
from compat_tests.java.declared import JOINED_RECORDS
from compat_tests.java.fed import AsJava, FedDriver, Fifo
from compat_tests.java.ours import AS_JAVA, changelogs_of_commits
from compat_tests.java.registry import Entry, settings_of
from milestones.common import serdes
from milestones.common.partitioner import partition_of
from milestones.common.records import Output
from milestones.common.task.task import Task
from milestones.common.topology import Topology

PARTITIONS = 3
NUMBER_BYTES = 4
CACHE = 10 << 20
TIMES_OF_PARTITIONS = ("windowed", "join_streams", "suppress_time")
"""Operations whose results depend on the highest time of their partition."""
CHANGELOGS = re.compile("-changelog$")
NUMBERED = re.compile(f"-SUBSCRIPTION-(REGISTRATION|STATE-STORE)-|{UNORDERED.pattern}")
"""Topics whose values have the numbers of partitions in them: where an answer goes, where an update came from."""
Rows = Mapping[tuple[str, int], "list[Row]"]
"""By topic and partition of the task that wrote them."""


class Written(NamedTuple):
    """What a run has written: by task, and by topic, in the order in which the tasks were committed. `of_commits`: the
    changelogs of which only the last record of each key counts."""

    of_tasks: Rows
    of_topics: Mapping[str, list[Row]]
    of_commits: frozenset[str]


class Way(NamedTuple):
    """How a case is run. `restarts`: called before each record; `twice`: see `FedDriver`; `batch`: records per commit;
    `cache`: its bytes."""

    name: str
    restarts: Callable[[FedDriver, Task], object] | None = None
    twice: Callable[[], bool] = bool
    batch: int = 1
    partitions: int = 1
    order: Callable[[], Any] = AsJava
    cache: int = 0
    stage: str = "baseline"


def run(entry: Entry, case: Case, way: Way) -> Written:
    """What all steps lead to."""
    topology = entry.build()
    driver = FedDriver(
        topology, start_time_ms=WALL_MS, topics=entry.inputs, order=way.order, partitions=way.partitions,
        before=way.restarts, twice=way.twice, statestore_cache_max_bytes=way.cache, milestones=way.stage,
        **settings_of(entry.name), default_key_serde=serdes.STRING, default_value_serde=serdes.STRING, **AS_JAVA,
    )  # fmt: skip
    with driver:
        for number, step in enumerate(case, 1):
            driver.holds = way.batch > 1
            if isinstance(step, Advance):
                driver.commit()
                driver.advance_wall_clock(step.ms)
            else:
                driver.pipe(step.topic, step.key, step.value, step.timestamp, [*step.headers])
            if number % way.batch == 0:
                driver.commit()
        driver.commit()
        of_topics = {topic: _rows(topic, outputs) for topic, outputs in driver.produced().items()}
        of_tasks = {at: _rows(at[0], outputs) for at, outputs in driver.written.items()}
        return Written(of_tasks, of_topics, changelogs_of_commits(topology))


def _rows(topic: str, outputs: Iterable[Output]) -> list[Row]:
    """In changelogs of joined records without the number at the end of the key, which leaps at a restart."""
    end = -NUMBER_BYTES if re.search(JOINED_RECORDS, topic) else None
    return [Row(key and key[:end], value, time, tuple(headers or ())) for _, _, key, value, time, headers, _ in outputs]


def difference_between_ways(entry: Entry, case: Case, seed: str, most: int | None = None) -> str | None:
    """The first difference of a way, with its name; None when all come to the same. `most`: how many ways are
    tried, chosen by chance; None: all."""
    topology, rng = entry.build(), random.Random(seed)
    known: dict[Way, Written] = {}

    def written(way: Way) -> Written:
        if way not in known:
            known[way] = _each_alone(entry, case) if way is ALONE else run(entry, case, way)
        return known[way]

    ways = [*_ways(entry, topology, rng)]
    for way, same_as, judge in ways if most is None else rng.sample(ways, min(most, len(ways))):
        found = judge(run(entry, case, way), written(same_as))
        if found is not None:
            return f"{way.name}: {found}"
    return None


Judge = Callable[[Written, Written], "str | None"]


def _ways(entry: Entry, topology: Topology, rng: random.Random) -> Iterator[tuple[Way, Way, Judge]]:
    """Ways, what each is to be the same as, and how that is judged."""

    def seldom() -> bool:
        return rng.random() < 0.3

    def sometimes(driver: FedDriver, task: Task) -> None:
        if seldom():
            driver.restart(task, kept=rng.random() < 0.5)

    mixed = Way("some restarts, some records twice", sometimes, seldom)
    yield Way("a restart elsewhere before each record", partial(_restart, kept=False)), PLAIN, _same
    yield Way("a restart with the disk kept before each record", partial(_restart, kept=True)), PLAIN, _same
    yield Way("each record twice", twice=_always), PLAIN, _same
    yield mixed, PLAIN, _same
    yield mixed._replace(name=f"at m6, {mixed.name}", stage="m6"), PLAIN, _same_results
    if not bounded(entry):
        yield mixed._replace(name=f"behind a cache, {mixed.name}", cache=CACHE), PLAIN._replace(cache=CACHE), _same
    if single_writers(topology, entry):
        batch = rng.randint(2, 5)
        way = Way(f"commits of {batch} records, some restarts", sometimes, batch=batch, order=Fifo)
        yield way, IN_ORDER, _same_of_long_commits
    if isolated(topology, entry):
        yield SEVERAL, ALONE, _same_of_partitions
    elif not looks_at_times(entry):
        yield SEVERAL, IN_ORDER, _same_of_keys
    yield SEVERAL._replace(name="several partitions, some restarts", restarts=sometimes), SEVERAL, _same


PLAIN = Way("plain")
IN_ORDER = Way("plain, in the order of writing", order=Fifo)
SEVERAL = Way("several partitions", partitions=PARTITIONS, order=Fifo)
ALONE = Way("each partition alone")


def _always() -> bool:
    return True


def _restart(driver: FedDriver, task: Task, *, kept: bool) -> None:
    driver.restart(task, kept=kept)


def _each_alone(entry: Entry, case: Case) -> Written:
    """What each partition comes to, with a topology of its own. Global tables have all records."""
    everywhere = {op["topic"] for op in json.loads(entry.name)["ops"] if op["op"] == "global"}
    parts: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    piped = 0
    for step in case:
        if isinstance(step, Pipe):
            piped += 1
        if isinstance(step, Advance) or step.topic in everywhere:
            for part in parts:
                part.append(step)
        else:
            at = piped % PARTITIONS if step.key is None else partition_of(step.key, PARTITIONS)
            parts[at].append(step)
    rows = {
        (topic, number): rows
        for number, part in enumerate(parts)
        for topic, rows in run(entry, tuple(part), Way("alone", order=Fifo)).of_topics.items()
    }
    return Written(rows, {}, changelogs_of_commits(entry.build()))


# ---- which plans a way is for


def bounded(entry: Entry) -> bool:
    """Whether a cache may have windows that are gone."""
    return any(op["op"] == "windowed" for op in json.loads(entry.name)["ops"])


def isolated(topology: Topology, entry: Entry) -> bool:
    """Whether no task reads what another one writes."""
    return all(set(entry.inputs).issuperset(sub.source_topics) for sub in topology.resolve("bench"))


def single_writers(topology: Topology, entry: Entry) -> bool:
    """Whether all topics of each task are inputs, or are written by one other task: then the order between them doesn't
    depend on when that one commits."""
    subs = topology.resolve("bench")
    writers = {topic: sub.id for sub in subs for topic in sub.sink_topics}
    return all(len({writers.get(topic, -1) for topic in sub.source_topics}) == 1 for sub in subs)


def looks_at_times(entry: Entry) -> bool:
    """Whether a result depends on the highest time that its partition had."""
    ops = json.loads(entry.name)["ops"]
    return any(op["op"] in TIMES_OF_PARTITIONS or op.get("extractor") == "partition_time" for op in ops)


# ---- what is compared


def _same(ours: Written, others: Written) -> str | None:
    return _first(ours.of_tasks, others.of_tasks, ours.of_commits)


def _same_results(ours: Written, others: Written) -> str | None:
    """Without changelogs."""
    return _first(_without(CHANGELOGS, ours), _without(CHANGELOGS, others), ours.of_commits)


def _same_of_long_commits(ours: Written, others: Written) -> str | None:
    """Without what suppress logs at a commit: not what has come and gone since the last one."""
    return _first(_without(UNORDERED, ours), _without(UNORDERED, others), ours.of_commits)


def _same_of_partitions(ours: Written, others: Written) -> str | None:
    """Without what has the number of a partition in it."""
    return _first(_without(NUMBERED, ours), _without(NUMBERED, others), ours.of_commits)


def _same_of_keys(ours: Written, others: Written) -> str | None:
    """By key, whichever tasks wrote them; without what has the number of a partition in it."""
    return _first(_by_key(ours), _by_key(others), ours.of_commits)


def _without(topics: re.Pattern[str], written: Written) -> Rows:
    return {at: rows for at, rows in written.of_tasks.items() if not topics.search(at[0])}


def _by_key(written: Written) -> dict[tuple[str, bytes | None], list[Row]]:
    found: dict[tuple[str, bytes | None], list[Row]] = {}
    for topic, rows in written.of_topics.items():
        if not NUMBERED.search(topic):
            for row in rows:
                found.setdefault((topic, row.key), []).append(row)
    return found


def _first(
    ours: Mapping[tuple[str, Any], list[Row]], others: Mapping[tuple[str, Any], list[Row]], of_commits: Collection[str]
) -> str | None:
    for at in sorted(ours.keys() | others.keys(), key=str):
        topic, of = at
        found = first_difference(topic, ours.get(at, []), others.get(at, []), "else", of_commits=of_commits)
        if found is not None:
            return f"{topic}, of {of!r}:\n{found}"
    return None
