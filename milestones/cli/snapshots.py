"""`milestones snapshots`: lists, verifies and removes the snapshots of an application.

*Guarantees*: without `--prune` nothing is changed. `--prune` removes only snapshots that an instance would remove, too.
With `--verify`, exit code 0 means that every file of every snapshot was read and is unchanged.
*Assumes*: the objects at the URL can be listed, which isn't possible with plain HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from milestones.cli.console import OK, err, out, verbose_option
from milestones.cli.loading import load_config
from milestones.cli.settings import config_options
from milestones.common.clock import SystemClock
from milestones.common.errors import ConfigError, StateError

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from milestones.common.records import TopicPartition
    from milestones.common.state.snapshots.repository import Listed, SnapshotRepository
    from milestones.common.state.snapshots.snapshot import SnapshotManifest

HEADINGS = ("partition", "generation", "offset", "entries", "MB", "kind", "age", "state")


@click.command()
@click.argument("app")
@click.option("--url", metavar="URL", help="URL of the snapshots, in place of the setting snapshot_url.")
@click.option("--verify", is_flag=True, help="Read all files, and check that they are unchanged.")
@click.option("--prune", "pruned", is_flag=True, help="Remove snapshots that no reader needs any more.")
@config_options
@verbose_option
def snapshots(app: str, url: str | None, verify: bool, pruned: bool, file: Path | None, given: dict[str, str]) -> int:
    """List the snapshots of an application's stores.

    The snapshots are at the application's `snapshot_url`. The newest snapshot of each store and partition is listed
    first. A running application removes old snapshots itself: it keeps the two newest of each partition, and older ones
    for an hour. --prune does the same. With exit code 4 some snapshots can't be used.

    \b
    Examples:
      milestones snapshots words.py
      milestones snapshots words.py --url s3://bucket/snapshots --verify
      milestones snapshots shop.orders:topology --config shop.toml --prune
    """
    from milestones.common.state.snapshots.repository import SnapshotRepository

    config = load_config(app, file, given)
    repository = SnapshotRepository.of(config, url)
    if not repository.objects.lists:
        raise ConfigError("snapshot_url", repository.url, "plain HTTP can't be listed: use the URL of the store behind")
    partitions = repository.partitions()
    if not partitions:
        err().print(f"there are no snapshots of {config.application_id} at {repository.url}")
    troubles = list(_removed(repository, partitions)) if pruned else []
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        justify: JustifyMethod = "left" if heading in ("partition", "kind", "state") else "right"
        table.add_column(heading, overflow="fold", justify=justify)
    verified: dict[str, str | None] = {}
    for changelog in partitions:
        for found in repository.published(changelog):
            wrong = _wrong(repository, found, verified if verify else None)
            table.add_row(*_row(changelog, found, "whole" if verify else "", wrong))
            troubles += [] if wrong is None else [wrong]
    if partitions:
        out().print(table)
    if troubles:
        raise StateError("\n".join(dict.fromkeys(troubles)))
    return OK


def _removed(repository: SnapshotRepository, partitions: list[TopicPartition]) -> Iterator[str]:
    """Remove snapshots that no reader needs. Yields the reasons why some can't be removed."""
    from milestones.common.state.snapshots.garbage import prune

    objects = size = 0
    for changelog in partitions:
        done = prune(repository, changelog, SystemClock())
        objects, size = objects + done.objects, size + done.bytes
        if done.held_up is not None:
            yield f"nothing of {changelog} was removed: {done.held_up}"
    err().print(f"{objects} objects of {size / 1e6:,.1f} MB were removed")


def _wrong(repository: SnapshotRepository, found: Listed, verified: dict[str, str | None] | None) -> str | None:
    """Returns the reason why a snapshot can't be used, or None. `verified`: the results for files that were already
    read; with None, no files are read."""
    if found.manifest is None:
        return str(found.trouble)
    if verified is None:
        return None
    for file in found.manifest.files:
        path = f"{repository.place(found.manifest.partition_of)}/{found.manifest.path_of(file)}"
        if path not in verified:
            try:
                repository.verify(found.manifest, file)
                verified[path] = None
            except StateError as error:
                verified[path] = str(error)
        if (wrong := verified[path]) is not None:
            return wrong
    return None


def _row(changelog: TopicPartition, found: Listed, good: str, wrong: str | None) -> list[str]:
    manifest = found.manifest
    state = good if wrong is None else "can't be used"
    if manifest is None:
        return [str(changelog), *[""] * 6, state]
    return [
        f"{manifest.store}-{manifest.partition}", str(manifest.generation), f"{manifest.offset:,}",
        f"{manifest.entries:,}", f"{manifest.size / 1e6:,.1f}", _kind(manifest), _age(manifest.created_ms), state,
    ]  # fmt: skip


def _kind(manifest: SnapshotManifest) -> str:
    return "base" if manifest.base is None else f"delta {manifest.deltas}"


def _age(created_ms: int) -> str:
    minutes = (SystemClock().wall_ms() - created_ms) // 60_000
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 2_880 else f"{minutes // 1_440:,} d"
