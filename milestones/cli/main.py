"""The commands.

*Guarantees*: a command returns its exit code; `main` turns errors into panels and exit codes.
*Assumes*: heavy parts are imported inside the commands that need them, so that `--help` is quick.
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
from milestones.client.logs import log_to_stderr
from milestones.flags import STAGES

if TYPE_CHECKING:
    from milestones.client.streams import Streams

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
      milestones demo                  see it work, on a Kafka that comes along
      milestones broker                a Kafka to develop against
      milestones describe words.py     what a topology is made of
      milestones run words.py          run an application
      milestones status words.py       its instances, threads and lags
      milestones config                what can be set
    The --help of each command has examples.
    """


@cli.command()
@click.argument("app")
@click.option("--stage", metavar="STAGE", help="Stage or flags that execute it; `milestones stages` lists them.")
@config_options
@click.option("--profile", is_flag=True, help="Print what each node costs, at the end and at each SIGUSR1.")
@click.option(
    "--profile-stacks", "stacks", type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write that as stacks, too, for speedscope or flamegraph.pl.",
)  # fmt: skip
@verbose_option
@click.pass_context
def run(
    context: click.Context,
    app: str,
    stage: str | None,
    file: Path | None,
    given: dict[str, str],
    profile: bool,
    stacks: Path | None,
) -> int:
    """Run an application until it is interrupted.

    APP names a Topology, a StreamsBuilder, a Streams, or a function without arguments that returns one: as
    `module:attribute`, as `path/file.py:attribute`, or as `path/file.py` when there is only one in the file.

    Settings: the command line wins over what the code of a Streams says, that over the environment (MILESTONES_KEY),
    that over the file, that over the defaults.

    \b
    Examples:
      milestones run words.py
      milestones run words.py -a words-2 -b localhost:9092
      milestones run shop.orders:topology --config shop.toml
      milestones run words.py -c words.toml --set num_stream_threads=2
      milestones run words.py -b kafka:9092 --stage baseline
      milestones run words.py --profile --profile-stacks words.stacks
    """
    verbose = is_verbose(context)
    if stage is not None:
        if not stage.strip():
            raise click.BadParameter("it is empty; `milestones stages` lists the stages", param_hint="--stage")
        given["milestones"] = stage
    streams = load_streams(app, file, given)
    log_to_stderr(streams.config.log_level, streams.config.log_format, verbose=verbose)
    with _profiled(streams, stacks) if profile or stacks is not None else nullcontext():
        code = streams.run()
    if streams.error is not None and (verbose or err().is_terminal):  # else the log, which has it, is enough
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

    Nothing is started, and no Kafka is needed. APP is as in `milestones run`.

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
@click.option("-d", "--data-dir", type=click.Path(path_type=Path), help="Keep the data here; else they go at the end.")
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="A broker setting of Kafka's.")
@verbose_option
def broker(port: int | None, data_dir: Path | None, properties: Sequence[str]) -> int:
    """Run a real Kafka broker on this machine, for development.

    Needs no installation: Java is found or comes as a wheel, Kafka's jars are downloaded once. It listens on loopback
    only, and ends with Ctrl-C.

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
@click.option("--keep", "folder", type=click.Path(path_type=Path), help="A new folder for data and logs; they stay.")
@verbose_option
def demo(seconds: float, stage: str | None, folder: Path | None) -> int:
    """Count the words of a book on a Kafka that comes along, and lose an instance on the way.

    Starts a broker and two instances, kills one with kill -9, and checks every count at the end. The first time,
    Kafka's jars are downloaded.

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
    """The program: runs a command and ends the process with its exit code."""
    sys.exit(invoke(sys.argv[1:] if arguments is None else arguments))


def invoke(arguments: Sequence[str]) -> int:
    """Run a command; its exit code. Errors are printed."""
    verbose = not {"-v", "--verbose"}.isdisjoint(arguments)
    try:
        return int(cli.main(list(arguments) or ["--help"], prog_name="milestones", standalone_mode=False) or OK)
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
