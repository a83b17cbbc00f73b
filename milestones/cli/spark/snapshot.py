"""`milestones spark snapshot`: makes snapshots of an application's stores.

*Guarantees*: exit code 0 means that every snapshot was written.
*Assumes*: the URL means the same place on this machine, on Spark's executors and for the application's instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import rich_click as click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from milestones.cli.console import OK, out
from milestones.cli.spark.sessions import Start, on_spark

if TYPE_CHECKING:
    from milestones.client.streams import Streams


@click.command()
@click.argument("app")
@click.argument("url", required=False)
@click.option("--store", "stores", multiple=True, metavar="NAME", help="Only this store; may be repeated.")
@click.option("--parquet", is_flag=True, help="Write the stores' content as Parquet too.")
@on_spark
def snapshot(
    streams: Streams,
    start: Start,
    url: str | None,
    stores: Sequence[str],
    parquet: bool,
) -> int:
    """Make snapshots of an application's stores, from which its instances restore.

    Reads the changelogs and writes the stores' content to URL: a folder (file:///...), S3, GCS or Azure. Without URL it
    uses the setting `snapshot_url`. The application may run at the same time. Give the instances the same
    `snapshot_url`: an empty store then begins with its snapshot, and reads only the rest of its changelog. A snapshot
    is made from the one before it. Set `milestones` to the stage of the instances, because the format of the files
    depends on it.

    \b
    Examples:
      milestones spark snapshot words.py file:///mnt/snapshots
      milestones spark snapshot words.py s3://bucket/snapshots --parquet
      milestones spark snapshot shop.orders:topology --config shop.toml --store orders
    """
    with start("snapshots") as spark:
        from milestones.pipeline.snapshots import compact_changelog

        run = compact_changelog(
            streams.topology, spark, url, stores=list(stores) or None, parquet=parquet, config=streams.config
        )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("store", "partition", "offset", "entries", "MB", "records read", "built on", "seconds"):
        table.add_column(heading, justify="left" if heading == "store" else "right")
    for made in run.snapshots:
        manifest = made.manifest
        built_on = "is still good" if not made.new else "–" if made.base is None else f"{made.base:,}"
        table.add_row(
            manifest.store, str(manifest.partition), f"{manifest.offset:,}", f"{manifest.entries:,}",
            f"{manifest.size / 1e6:,.1f}", f"{made.records:,}", built_on, f"{made.seconds:.1f}",
        )  # fmt: skip
    out().print(table)
    for store, folder in run.parquet.items():
        out().print(f"{store} as Parquet: {folder}", soft_wrap=True)
    return OK
