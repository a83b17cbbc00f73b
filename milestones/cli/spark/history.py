"""`milestones spark archive` archives inputs. `milestones spark backfill` processes an application's history.

*Guarantees*: exit code 0 means that everything was written.
*Assumes*: a URL means the same place on this machine and on Spark's executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from milestones.cli.console import OK, out
from milestones.cli.spark.sessions import Start, on_spark

if TYPE_CHECKING:
    from milestones.client.streams import Streams


@click.command()
@click.argument("app")
@click.argument("url")
@on_spark
def archive(streams: Streams, start: Start, url: str) -> int:
    """Add new records of an application's input topics to an archive of Parquet files.

    Run it often enough that Kafka's retention doesn't remove records before. `milestones spark backfill --history URL`
    reads the archive.

    \b
    Examples:
      milestones spark archive words.py s3://bucket/history
      milestones spark archive shop.orders:topology file:///mnt/history --config shop.toml
    """
    with start("archive") as spark:
        from milestones.pipeline.backfill import archive_inputs

        run = archive_inputs(streams.topology, spark, url, config=streams.config)
    for one in run.ranges:
        out().print(f"{one.partition}: {one.records:,} records, offsets {one.first} to {one.end}", highlight=False)
    out().print(f"{run.records:,} records in {run.seconds:.1f} s", highlight=False)
    return OK


@click.command()
@click.argument("app")
@click.option("--history", metavar="URL", help="An archive of input records that Kafka no longer has.")
@click.option("--snapshots", metavar="URL", help="Make snapshots of the state here, for live instances (snapshot_url).")
@on_spark
def backfill(streams: Streams, start: Start, history: str | None, snapshots: str | None) -> int:
    """Process an application's history in one batch on Spark, then hand over to live instances.

    Outputs, changelogs and offsets are committed as live instances do it. Instances that start afterwards process
    exactly the records that came since. If a backfill was interrupted, run the command once more: it continues from the
    committed offsets.

    \b
    Examples:
      milestones spark backfill words.py
      milestones spark backfill words.py --history s3://bucket/history --snapshots s3://bucket/snapshots
    """
    with start("backfill") as spark:
        from milestones.pipeline.backfill import backfill as run_backfill

        done = run_backfill(streams.topology, spark, history=history, snapshot_url=snapshots, config=streams.config)
    for at, offset in sorted(done.missing.items()):
        out().print(f"{at}: history begins at offset {offset}: earlier records no longer exist", highlight=False)
    if done.elsewhere:
        out().print(f"{done.elsewhere} tasks: live instances have taken them over", highlight=False)
    for at, offset in sorted(done.offsets.items()):
        out().print(f"{at}: live instances continue at offset {offset}", highlight=False)
    if done.snapshots is not None:
        out().print(f"{done.snapshots.entries:,} entries of state in snapshots at {snapshots}", highlight=False)
    out().print(f"{done.records:,} records in {done.seconds:.1f} s", highlight=False)
    return OK
