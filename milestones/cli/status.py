"""`milestones status`: shows the instances of an application, their threads, tasks and lags.

*Guarantees*: nothing is changed. On a terminal the view is renewed every second until Ctrl-C. Otherwise, and with
`--once` or `--json`, it is printed once. If no instance is running, the command fails.
*Assumes*: the principal may describe the group and its topics.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import rich_click as click

from milestones.cli.console import OK, tables, verbose_option
from milestones.cli.loading import load_config
from milestones.cli.settings import config_options
from milestones.common.errors import KafkaUnreachableError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from milestones.cli.application_status import ApplicationStatus
    from milestones.cli.instances import InstancesObserver
    from milestones.cli.observing import ClusterObserver

INTERVAL_MS = 1_000


@click.command()
@click.argument("app", required=False)
@config_options
@click.option("--once", is_flag=True, help="Print it once. This is the default if the output isn't a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole status once, as JSON.")
@click.option(
    "--metrics", multiple=True, metavar="HOST:PORT",
    help="Ask these instances at their metrics_port instead of Kafka, if Kafka can't be reached. May be repeated.",
)
@click.option("--tasks/--threads", default=None, help="A row for each task, or for each thread. [default: what fits]")
@click.option("--memory", is_flag=True, help="Show what the memory of each instance is used for.")
@verbose_option
def status(
    app: str | None,
    file: Path | None,
    given: dict[str, str],
    once: bool,
    as_json: bool,
    metrics: tuple[str, ...],
    tasks: bool | None,
    memory: bool,
) -> int:
    """Show the instances of an application, with their threads, tasks and lags.

    Roles: an `active` task processes records. A `restoring` task will do so once its state is restored. A `standby`
    keeps a copy of the state. A `warm-up` is a copy that will become active, or replace a standby. A `promised` task
    waits until its present owner has released it.

    Members, tasks and the lag of inputs come from Kafka. States, the progress of restorations and the lag of standbys
    come from the instances. They are shown for instances that run with `metrics_port`.

    APP (see `milestones run --help`) names the application, or give its id with -a.

    \b
    Examples:
      milestones status words.py
      milestones status -a words -b localhost:9092
      milestones status -a words --once
      milestones status -a words --json
      milestones status -a words --memory
      milestones status --metrics 10.0.0.7:9400 --metrics 10.0.0.8:9400
    """
    observer = _observer(app, file, given, metrics)
    console = tables()
    try:
        shown = _first(observer)
        if as_json:
            _print_json(shown)
        elif once or not console.is_terminal:
            console.print(_view(shown, console, tasks, memory=memory, unlimited=True))
        else:
            _watch(observer, console, shown, tasks, memory=memory)
    finally:
        observer.close()
    return OK


def _observer(
    app: str | None, file: Path | None, given: dict[str, str], metrics: tuple[str, ...]
) -> ClusterObserver | InstancesObserver:
    """Returns the object that makes the status. With `metrics` it asks these instances only, otherwise Kafka and all
    instances."""
    from milestones.cli.instances import InstancesObserver
    from milestones.cli.observing import ClusterObserver

    return InstancesObserver(metrics) if metrics else ClusterObserver(load_config(app, file, given))


def _first(observer: ClusterObserver | InstancesObserver) -> ApplicationStatus:
    try:
        return observer.first()
    except KafkaUnreachableError as error:
        raise KafkaUnreachableError(
            f"{error}. Without Kafka you can ask single instances at their metrics_port: `milestones status "
            "--metrics HOST:PORT`"
        ) from error


def _print_json(shown: ApplicationStatus) -> None:
    from milestones.cli.application_status import as_json

    click.echo(orjson.dumps(as_json(shown), option=orjson.OPT_INDENT_2).decode())


def _view(
    shown: ApplicationStatus, console: Console, tasks: bool | None, *, memory: bool, unlimited: bool
) -> RenderableType:
    from milestones.cli.view import height, memory_view, view
    from milestones.common.clock import SystemClock

    if memory:
        return memory_view(shown)
    fits = unlimited or height(shown) <= console.height
    return view(shown, SystemClock().wall_ms(), tasks=fits if tasks is None else tasks)


def _watch(
    observer: ClusterObserver | InstancesObserver,
    console: Console,
    shown: ApplicationStatus,
    tasks: bool | None,
    *,
    memory: bool,
) -> None:
    """Show the status every second until Ctrl-C. If Kafka doesn't answer, the last status is shown, with the error
    below it."""
    from dataclasses import replace

    from rich.live import Live

    from milestones.common.clock import SystemClock

    clock = SystemClock()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_view(shown, console, tasks, memory=memory, unlimited=False), refresh=True)
            clock.sleep_ms(INTERVAL_MS)
            try:
                shown = observer.refresh()
            except KafkaUnreachableError as error:
                shown = replace(shown, notes=(str(error),))
