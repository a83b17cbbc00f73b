"""Defines the command `milestones` and its sub-commands.

*Guarantees*: a command returns its exit code. `main` turns errors into panels and exit codes.
*Assumes*: commands import large modules inside their functions, so that `--help` is fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from milestones.cli.configuring import config
from milestones.cli.console import (
    BAD_CONFIG,
    INTERRUPTED,
    OK,
    err,
    is_verbose,
    out,
    show_error,
    show_usage_error,
    verbose_option,
)
from milestones.cli.loading import load, load_streams
from milestones.cli.resetting import reset
from milestones.cli.settings import config_options, no_pair
from milestones.cli.snapshots import snapshots
from milestones.cli.spark import spark
from milestones.cli.state import state
from milestones.cli.status import status
from milestones.cli.workers import become, linked, run_workers, workers_options
from milestones.client.logs import log_to_stderr
from milestones.flags import STAGES

if TYPE_CHECKING:
    from milestones.client.streams import Streams
    from milestones.workers.place import WorkerPlace

click.rich_click.TEXT_PARAGRAPH_LINEBREAKS = "\n\n"
click.rich_click.PADDING_HELPTEXT_FIRST_LINE = (0, 0, 1, 0)

EXIT_CODES = (
    "Exit codes: 0 ok, 1 failed, 2 bad config or topology, 3 Kafka unreachable,\n\n4 state unusable, 130 interrupted."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.version_option(package_name="milestones")
@verbose_option
def cli() -> None:
    """Kafka stream processing whose threading model migrates, one milestone at a time.

    \b
    New here?
      milestones demo                  watch an example, with a Kafka broker of its own
      milestones broker                run a Kafka broker for development
      milestones describe words.py     print the sub-topologies of an application
      milestones run words.py          run an application
      milestones status words.py       show its instances, threads and lags
      milestones config                list the settings
    The --help of each command has examples.
    """


@cli.command()
@click.argument("app")
@click.option("--stage", metavar="STAGE", help="Stage or flags that execute it; `milestones stages` lists them.")
@config_options
@workers_options
@click.option("--profile", is_flag=True, help="Print what each node costs, at the end and at each SIGUSR1.")
@click.option(
    "--profile-stacks", "stacks", type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also write the profile as stacks, for speedscope or flamegraph.pl.",
)  # fmt: skip
@verbose_option
@click.pass_context
def run(
    context: click.Context,
    app: str,
    stage: str | None,
    file: Path | None,
    given: dict[str, str],
    workers: int,
    worker: WorkerPlace | None,
    profile: bool,
    stacks: Path | None,
) -> int:
    """Run an application until it is interrupted.

    APP names a Topology, a StreamsBuilder, a Streams, or a function without arguments that returns one: as
    `module:attribute`, as `path/file.py:attribute`, or as `path/file.py` when there is only one in the file.

    Settings: the command line overrides the code of a Streams, the code overrides the environment (MILESTONES_KEY), the
    environment overrides the file, and the file overrides the defaults.

    \b
    Examples:
      milestones run words.py
      milestones run words.py -a words-2 -b localhost:9092
      milestones run shop.orders:topology --config shop.toml
      milestones run words.py -c words.toml --set num_stream_threads=2
      milestones run words.py -b kafka:9092 --stage baseline
      milestones run words.py --workers auto
      milestones run words.py --profile --profile-stacks words.stacks
    """
    if worker is None and workers != 1:
        return run_workers(context, workers)
    link = linked(worker)
    verbose = is_verbose(context)
    if stage is not None:
        if not stage.strip():
            raise click.BadParameter("it is empty; `milestones stages` lists the stages", param_hint="--stage")
        given["milestones"] = stage
    streams = load_streams(app, file, given)
    name = None if worker is None else str(worker)
    log_to_stderr(streams.config.log_level, streams.config.log_format, verbose=verbose, worker=name)
    if worker is not None:
        become(streams, worker, link)
        stacks = None if stacks is None else stacks.with_name(f"{stacks.stem}-{worker.number}{stacks.suffix}")
    with _profiled(streams, stacks) if profile or stacks is not None else nullcontext():
        code = streams.run()
    if streams.error is not None and (verbose or err().is_terminal):  # otherwise the error is in the log only
        show_error(streams.error, verbose=verbose)
    return code


def _profiled(streams: Streams, stacks: Path | None) -> AbstractContextManager[None]:
    from milestones.cli.profiling import profiled

    return profiled(streams, stacks)


@cli.command()
@click.argument("app")
@click.option("--mermaid", is_flag=True, help="As a Mermaid chart, for Markdown pages.")
@verbose_option
def describe(app: str, mermaid: bool) -> int:
    """Print the sub-topologies of an application, as Kafka Streams prints them.

    Nothing is started, and no Kafka is needed. APP: see `milestones run --help`.

    \b
    Examples:
      milestones describe words.py
      milestones describe shop.orders:topology --mermaid > topology.mmd
    """
    from milestones.client.streams import Streams

    found = load(app)
    topology = found.topology if isinstance(found, Streams) else found
    description = topology.describe()
    click.echo((description.mermaid() if mermaid else str(description)).rstrip("\n"))
    return OK


@cli.command()
@verbose_option
def stages() -> int:
    """List the stages.

    \b
    Examples:
      milestones stages
      milestones run words.py --stage baseline
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("stage", "flag", "what changes"):
        table.add_column(heading, no_wrap=heading != "what changes")
    for stage in STAGES:
        needs = f" [dim](needs {' and '.join(stage.needs)})[/]" if stage.needs else ""
        table.add_row(stage.name, stage.flag or "–", stage.title + needs)
    out().print(table)
    return OK


@cli.command()
@click.option("-p", "--port", type=click.IntRange(1, 65535), help="Port to listen on; a free one by default.")
@click.option("-d", "--data-dir", type=click.Path(path_type=Path), help="Keep the data here. Default: a temporary one.")
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="A setting of Kafka's broker.")
@verbose_option
def broker(port: int | None, data_dir: Path | None, properties: Sequence[str]) -> int:
    """Run a real Kafka broker on this machine, for development.

    No installation is needed: Java is found or comes as a wheel, and Kafka's jars are downloaded once. The broker
    listens on the loopback interface only. Ctrl-C ends it.

    \b
    Examples:
      milestones broker
      milestones broker --port 9092 --data-dir ./kafka-data
      milestones broker --property num.partitions=4
    """
    try:
        from milestones.common.kafka.embedded import run_broker
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{error}; the broker needs: pip install 'milestones[embedded]'") from error
    parsed = {key: value for key, _, value in (text.partition("=") for text in properties)}
    wrong = [text for text in properties if "=" not in text]
    if wrong:
        raise no_pair(wrong[0], "KEY=VALUE", "--property")
    return run_broker(data_dir, port, parsed, log=lambda line: err().print(line, highlight=False, markup=False))


@cli.command()
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True, help="How long text flows in."
)
@click.option("--stage", metavar="STAGE", help="Stage or flags that execute it; the newest by default.")
@click.option("--keep", "folder", type=click.Path(path_type=Path), help="Keep data and logs in this new folder.")
@verbose_option
def demo(seconds: float, stage: str | None, folder: Path | None) -> int:
    """Count the words of a book with two instances, and kill one of them.

    The demo starts a Kafka broker and two instances, kills one with kill -9, and checks every count at the end. The
    first time, Kafka's jars are downloaded.

    \b
    Examples:
      milestones demo
      milestones demo --seconds 20 --keep ./demo
    """
    from milestones import demo as demonstration

    return demonstration.run(seconds=seconds, stage=stage, folder=folder)


cli.add_command(config)
cli.add_command(status)
cli.add_command(reset)
cli.add_command(snapshots)
cli.add_command(state)
cli.add_command(spark)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command in `arguments`, and end the process with the command's exit code."""
    sys.exit(invoke(sys.argv[1:] if arguments is None else arguments))


def invoke(arguments: Sequence[str]) -> int:
    """Run a command, and print its error if it fails. Returns the exit code."""
    verbose = not {"-v", "--verbose"}.isdisjoint(arguments)
    try:
        given = list(arguments) or ["--help"]
        return int(cli.main(given, prog_name="milestones", standalone_mode=False, obj=given) or OK)
    except click.ClickException as error:
        show_usage_error(error)
        return BAD_CONFIG
    except (KeyboardInterrupt, click.Abort):
        err().print("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        return OK
    except Exception as error:
        return show_error(error, verbose=verbose)


__all__ = ["cli", "invoke", "main"]
