"""An application in a world of its own, executed by a live stage or on Spark, to the judgement.

*Guarantees*: whoever executes it gets the same inputs; what it committed is judged by the oracles, where they know it.
*Assumes*: nobody dies, unless the case sees to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compat_tests.apps.topologies import named
from compat_tests.harness.brokers import Broker
from compat_tests.harness.feed import Sent
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import judge
from compat_tests.harness.world import World, new_world
from compat_tests.oracles.findings import Finding, Findings, hold
from compat_tests.oracles.rows import Origin, Row, origin_of
from compat_tests.random_topologies.shaped_judgement import Circumstances, judge_shaped
from compat_tests.spark.shapes import LAST_VALUES, Alike, Shape
from milestones.pipeline import SparkRun, run_on_spark
from milestones.testing import NotYet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH, MICRO_BATCH = "batch", "micro_batch"
WRITTEN, GATHERED = "spark-state", "spark-state-as-one"
"""Below a world's directory: where a run keeps state, and where the judgement looks for it."""
PORTIONS = 3
END_S = 120.0

Inputs = Mapping[str, list[Sent]]
Outputs = dict[str, dict[bytes | None, list["Result"]]]
"""By output topic and key, in order."""


@dataclass(frozen=True, order=True)
class Result:
    """One output, apart from where it lies."""

    value: bytes | None
    timestamp: int
    origin: Origin | None


Execute = Callable[[World, Shape, Inputs], None]
"""Makes the inputs, and has the application process them all."""


def outputs_of(
    execute: Execute, broker: Broker, shape: Shape, inputs: Inputs, guarantee: str, stage: str, directory: Path
) -> Outputs:
    """What was committed, once it was judged."""
    directory.mkdir(parents=True)
    with new_world(broker, f"spark-{shape.topology[:20]}", stage, guarantee, 0, directory) as world:
        world.create(**dict.fromkeys(shape.outputs, 2))
        for suffix in shape.inputs:
            world.input(suffix, shape.partitions(suffix))
        execute(world, shape, inputs)
        judge_all(world, shape)
        return committed(world, shape)


def judge_all(world: World, shape: Shape, *, crashed: bool = False, scratch: bool = False) -> None:
    """As the suite judges live instances; what Spark left on the disk included."""
    gather(world)
    judge(world, *shape.flows, repartitions=shape.repartitions, crashed=crashed, scratch=scratch)
    hold(judge_shapes(world, shape, repeats=crashed and not world.exactly_once))


def judge_shapes(world: World, shape: Shape, *, repeats: bool = False) -> Findings:
    """Windows and joins of a plan, against their definitions. Nobody waited until all was processed: one round."""
    how = Circumstances(lambda _: 0, repeats, prefix=f"{world.application_id}-")
    rows = [row._replace(topic=suffix) for suffix, feed in world.feeds.items() for row in feed.rows]
    findings: Findings = []
    for number in shape.shaped:
        assert shape.plan is not None
        found = world.cluster.read(world.topic(f"out{number}"))
        findings += judge_shaped(shape.plan, number, rows, found, how)
    return findings


def live(world: World, shape: Shape, inputs: Inputs) -> None:
    """The world's stage, in a process of its own."""
    feed(world, inputs)
    app = world.instance(shape.topology).start()
    world.finish(app, repartitions=shape.repartitions)


def in_batch(spark: SparkSession) -> Execute:
    """One batch over everything."""

    def execute(world: World, shape: Shape, inputs: Inputs) -> None:
        feed(world, inputs)
        run = on_spark(world, shape.topology, spark)
        assert run.wait(END_S), f"the batch goes on: {run.progress}"

    return execute


def in_micro_batches(spark: SparkSession) -> Execute:
    """Inputs come in portions while micro-batches of few records go on. Where a task merges several topics by time, all
    are there before: a record whose elder isn't there yet isn't waited for."""

    def execute(world: World, shape: Shape, inputs: Inputs) -> None:
        count = sum(map(len, inputs.values()))
        first, *others = [inputs] if shape.merges else portions(inputs)
        feed(world, first)
        with on_spark(
            world, shape.topology, spark, mode=MICRO_BATCH, interval_ms=100, max_records=count // 4
        ) as run:
            world.work_done(shape.repartitions, END_S)
            for portion in others:
                feed(world, portion)
                world.work_done(shape.repartitions, END_S)
            assert run.stop(END_S)

    return execute


def on_spark(world: World, topology: str, spark: SparkSession, **more: Any) -> SparkRun:
    """A run in this world; its state directories will be judged like those of instances."""
    settings = {**world.settings, "state_dir": str(world.directory / WRITTEN), **more}
    run = run_on_spark(named(topology)(world.application_id), spark, **settings)
    world.instances.append(SparkState(world, topology, run))
    return run


class SparkState(Instance):
    """No process of its own: a run, and the state that it leaves, as if it were an instance's."""

    def __init__(self, world: World, topology: str, run: SparkRun) -> None:
        super().__init__("spark", topology, {}, world.directory)
        self.run, self.starts = run, 1
        self.state_dir = world.directory / GATHERED

    def must_live(self) -> None:
        """Raise what the run has failed with."""
        self.run.wait(0)


def gather(world: World) -> None:
    """Have the tasks' directories side by side, as an instance has them: on Spark each task has a state directory."""
    for task in (world.directory / WRITTEN).glob(f"spark-*/*_*/{world.application_id}/*_*"):
        link = world.directory / GATHERED / world.application_id / task.name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(task)


def amid(world: World, inputs: int, timeout_s: float, before: int = 0) -> None:
    """Wait until some of so many inputs are committed beyond the `before` that were, not all."""

    def some() -> object:
        done = sum(world.committed().values())
        return done > before + (inputs - before) // 20 or NotYet(f"{done} of {inputs}")

    world.wait(some, "some of the inputs are committed", timeout_s)
    assert sum(world.committed().values()) < inputs, "the case came too late: it has to strike in the middle"


def feed(world: World, inputs: Inputs) -> None:
    for suffix, some in inputs.items():
        world.feeds[suffix].send(some)


def portions(inputs: Inputs) -> Iterator[Inputs]:
    """By time, so that what comes later is later."""
    times = sorted(sent.timestamp for some in inputs.values() for sent in some)
    bounds = [times[len(times) * number // PORTIONS] for number in range(PORTIONS)] + [times[-1] + 1]
    for first, end in pairwise(bounds):
        yield {suffix: [sent for sent in some if first <= sent.timestamp < end] for suffix, some in inputs.items()}


def committed(world: World, shape: Shape) -> Outputs:
    found: Outputs = {}
    for suffix in shape.outputs:
        by_key: defaultdict[bytes | None, list[Result]] = defaultdict(list)
        for row in world.cluster.read(world.topic(suffix)):
            by_key[row.key].append(Result(row.value, row.timestamp, _origin(world, row)))
        found[suffix] = dict(by_key)
    return found


def _origin(world: World, row: Row) -> Origin | None:
    origin = origin_of(row)
    return None if origin is None else origin._replace(topic=origin.topic.removeprefix(f"{world.application_id}-"))


def differences(shape: Shape, name: str, one: Outputs, other: Outputs) -> Findings:
    """Where the execution of that name committed something else than the first. Chance says in what order a task merges
    several upstream partitions behind a repartition: there only the values count, not their order, nor which input gave
    which."""
    found: Findings = []
    for topic in shape.compared:
        first, second = one[topic], other[topic]
        for key in sorted(first.keys() | second.keys(), key=lambda key: key or b""):
            where, alike = f"{name}: {topic}, key {key!r}", shape.alike(topic)
            mine, theirs = first.get(key, []), second.get(key, [])
            if (shape.topology, topic) in LAST_VALUES:
                mine, theirs = ([Result(each.value, 0, None) for each in some[-1:]] for some in (mine, theirs))
            found += _differ(where, alike, mine, theirs)
    return found


def _differ(where: str, alike: Alike, one: list[Result], other: list[Result]) -> Iterable[Finding]:
    sure = len({result.origin.place for result in one if result.origin is not None}) <= 1
    mine, theirs = (some if sure else sorted(_values(some)) for some in (one, other))
    if not alike(mine, theirs):
        yield Finding("differs", f"{where}: {_short(other)}, not {_short(one)}")


def _values(results: Iterable[Result]) -> list[bytes]:
    return [result.value or b"" for result in results]


def _short(results: list[Result]) -> str:
    return f"{len(results)} outputs that end with {results[-1].value if results else None!r}"
