"""`milestones spark run`: runs an application inside Spark tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from milestones.cli.console import INTERRUPTED, OK, err, out
from milestones.cli.spark.sessions import Start, on_spark
from milestones.client.process_runner import LOOK_S, signals

if TYPE_CHECKING:
    from milestones.client.streams import Streams
    from milestones.pipeline import Round, SparkRun

MODES = {"batch": "batch", "micro-batch": "micro_batch"}


@click.command()
@click.argument("app")
@click.option("--mode", type=click.Choice([*MODES]), default="batch", show_default=True, help="One batch, or a stream.")
@click.option(
    "--interval-ms", type=click.IntRange(min=0), default=1_000, show_default=True, help="Time between micro-batches."
)
@click.option("--max-records", type=click.IntRange(min=1), help="Approximate number of records of one micro-batch.")
@on_spark
def run(streams: Streams, start: Start, mode: str, interval_ms: int, max_records: int | None) -> int:
    """Run an application inside Spark tasks.

    APP and settings: see `milestones run --help`. The stage has no effect here. A batch processes the present records
    and ends. Micro-batches run until they are interrupted. Live instances of the application may run at the same time.

    \b
    Examples:
      milestones spark run words.py
      milestones spark run words.py -b kafka:9092 --master spark://spark:7077
      milestones spark run words.py --mode micro-batch --interval-ms 500
      milestones spark run words.py --spark spark.executor.memory=2g
    """
    with signals() as received, start("") as spark:
        from milestones.pipeline import run_on_spark

        begun = run_on_spark(
            streams.topology,
            spark,
            mode=MODES[mode],  # type: ignore[arg-type]
            interval_ms=interval_ms,
            max_records=max_records,
            config=streams.config,
        )
        with begun:
            _follow(begun, received)
    _report(begun)
    return INTERRUPTED if received else OK


def _follow(run: SparkRun, received: list[int]) -> None:
    """Print a line for each finished job, until the run ends. After a signal, stop the run."""
    told = 0
    while not run.wait(LOOK_S):
        for done in [done for done in run.progress.rounds if done.number > told]:
            told = done.number
            err().print(_line(done), highlight=False)
        if received:
            err().print("ending: committed results stay")
            run.stop()


def _line(done: Round) -> str:
    what = f"job {done.number}: sub-topology {', '.join(map(str, done.subtopologies))}, {done.tasks} tasks"
    if done.error is not None:
        return f"{what}: planned again: {done.error}"
    rate = f"{done.records:,} records in {done.seconds:.1f} s ({done.records_per_second:,.0f}/s)"
    return f"{what}: {rate}" + (f", {done.restored:,} restored" if done.restored else "")


def _report(run: SparkRun) -> None:
    progress = run.progress
    dropped = f", {progress.dropped:,} dropped (dropped-records-total)" if progress.dropped else ""
    out().print(f"{progress.records:,} records in {progress.jobs} jobs{dropped}", highlight=False)
    if progress.elsewhere:
        err().print(f"{progress.elsewhere} tasks belong to other members of the group, which process their input")
