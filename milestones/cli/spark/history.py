"""`milestones spark archive`, `milestones spark backfill`.

*Guarantees*: exit code 0 only when all is there.
*Assumes*: URLs are the same place here and on Spark's executors.
"""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from milestones.cli.console import OK, is_verbose, log_to_stderr, out, verbose_option
from milestones.cli.loading import load_streams
from milestones.cli.settings import config_options, settings
from milestones.cli.spark.sessions import session, spark_options


@click.command()
@click.argument("app")
@click.argument("url")
@spark_options
@config_options
@verbose_option
@click.pass_context
def archive(
    context: click.Context,
    app: str,
    url: str,
    master: str,
    spark_settings: dict[str, str],
    file: Path | None,
    given: dict[str, str],
    application_id: str | None,
    bootstrap_servers: str | None,
) -> int:
    """Add what is new in an application's input topics to an archive of Parquet files.

    Run it more often than Kafka's retention removes records; `milestones spark backfill --history URL` reads it.

    \b
    Examples:
      milestones spark archive words.py s3://bucket/history
      milestones spark archive shop.orders:topology file:///mnt/history --config shop.toml
    """
    log_to_stderr(verbose=is_verbose(context))
    short = {"application_id": application_id, "bootstrap_servers": bootstrap_servers}
    streams = load_streams(app, file, settings(given, **short))
    with session(f"{streams.config.application_id} archive", master, spark_settings) as spark:
        from milestones.pipeline.backfill import archive_inputs

        run = archive_inputs(streams.topology, spark, url, config=streams.config)
    for one in run.ranges:
        out().print(f"{one.partition}: {one.records:,} records, offsets {one.first} to {one.end}", highlight=False)
    out().print(f"{run.records:,} records in {run.seconds:.1f} s", highlight=False)
    return OK


@click.command()
@click.argument("app")
@click.option("--history", metavar="URL", help="An archive of what Kafka no longer has of the inputs.")
@click.option("--snapshots", metavar="URL", help="Make snapshots of the state here, for live instances (snapshot_url).")
@spark_options
@config_options
@verbose_option
@click.pass_context
def backfill(
    context: click.Context,
    app: str,
    history: str | None,
    snapshots: str | None,
    master: str,
    spark_settings: dict[str, str],
    file: Path | None,
    given: dict[str, str],
    application_id: str | None,
    bootstrap_servers: str | None,
) -> int:
    """Process an application's history in one batch on Spark, then hand over to live instances.

    Outputs, changelogs and offsets are committed as live instances would: those that start afterwards go on with
    exactly the records that came since. Interrupted, it goes on from what is committed.

    \b
    Examples:
      milestones spark backfill words.py
      milestones spark backfill words.py --history s3://bucket/history --snapshots s3://bucket/snapshots
    """
    log_to_stderr(verbose=is_verbose(context))
    short = {"application_id": application_id, "bootstrap_servers": bootstrap_servers}
    streams = load_streams(app, file, settings(given, **short))
    with session(f"{streams.config.application_id} backfill", master, spark_settings) as spark:
        from milestones.pipeline.backfill import backfill as run_backfill

        done = run_backfill(streams.topology, spark, history=history, snapshot_url=snapshots, config=streams.config)
    for at, offset in sorted(done.offsets.items()):
        out().print(f"{at}: live instances go on at offset {offset}", highlight=False)
    if done.snapshots is not None:
        out().print(f"{done.snapshots.entries:,} entries of state in snapshots at {snapshots}", highlight=False)
    out().print(f"{done.records:,} records in {done.seconds:.1f} s", highlight=False)
    return OK
