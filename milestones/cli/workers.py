"""`milestones run --workers`: runs an application with several processes, and `--worker`, which makes a process one of
them.

*Guarantees*: the command with `--workers` doesn't load the application. `--worker 2/4` without a parent runs worker 2
of 4, for those who start the workers by other means.
*Assumes*: the arguments of the command are those of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import rich_click as click

from milestones.cli.console import is_verbose
from milestones.client.logs import log_to_stderr
from milestones.common.errors import ConfigError
from milestones.workers.counting import cores, parse_workers
from milestones.workers.place import COUNTS_PARTITIONS, WorkerPlace, inherited

if TYPE_CHECKING:
    from milestones.client.streams import Streams
    from milestones.workers.link import ParentLink

AUTOMATIC = 0
"""The value of `--workers auto`."""


def workers_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--workers` and the hidden `--worker` to a command."""
    workers = click.option(
        "--workers", metavar="N|auto", default="1", callback=_workers,
        help="Run this many processes, which share the partitions. auto: one per core, at most one per partition.",
    )  # fmt: skip
    worker = click.option("--worker", metavar="I/N", hidden=True, callback=_place)
    return workers(worker(command))


def _workers(_: click.Context, __: click.Parameter, given: str) -> int:
    try:
        count = parse_workers(given.strip())
    except ConfigError as error:
        raise click.BadParameter(f"{given!r} {error.reason}") from error
    return count or (AUTOMATIC if cores() > 1 else 1)


def _place(_: click.Context, __: click.Parameter, given: str | None) -> WorkerPlace | None:
    if given is None:
        return None
    try:
        return WorkerPlace.parse(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def run_workers(context: click.Context, workers: int) -> int:
    """Run this command as the parent of workers, and return the exit code."""
    from milestones.workers.parent import WorkersParent
    from milestones.workers.program import same_command

    verbose, arguments = is_verbose(context), list(context.find_root().obj)

    def command(place: WorkerPlace) -> list[str]:
        return same_command(arguments, "run", ["--worker", str(place)])

    def set_up_logs(level: str, form: str) -> None:
        log_to_stderr(level, form, verbose=verbose)

    return WorkersParent(command, workers or cores(), set_up_logs, auto=workers == AUTOMATIC).run()


def linked(worker: WorkerPlace | None) -> ParentLink | None:
    """Return the link to the parent of this worker, or None if it has none. The parent is watched from now on."""
    from milestones.workers.link import ParentLink

    found = None if worker is None else inherited()
    return None if found is None else ParentLink(found)


def become(streams: Streams, worker: WorkerPlace, link: ParentLink | None) -> None:
    """Give the application the settings of this worker."""
    from milestones.client.workers import become_worker

    if link is None and worker.number == COUNTS_PARTITIONS:
        raise click.BadParameter("the first worker is 1", param_hint="--worker")
    become_worker(streams, worker if link is None else link.place, link)
