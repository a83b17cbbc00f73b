"""Provides what all commands on Spark share: their options, the loaded application, and the Spark session.

*Guarantees*: the session is stopped at the end. Without PySpark the error says what to install.
*Assumes*: the application was loaded before the session starts. The session's processes copy this process's module path
at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import rich_click as click

from milestones.cli.console import is_verbose, verbose_option
from milestones.cli.loading import load_streams
from milestones.cli.settings import config_options, no_pair
from milestones.client.logs import log_to_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Start: TypeAlias = "Callable[[str], AbstractContextManager[SparkSession]]"
"""A function that starts a Spark session for the application. Its argument is added to the session's name."""


def _settings(_: click.Context, __: click.Parameter, values: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise no_pair(text, "spark.KEY=VALUE")
        found[key] = value
    return found


def on_spark(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options for settings and for Spark, and `--verbose`, to a command. The command gets `streams`, the
    application that APP names, and `start`, which starts the session, in addition to its own parameters. It doesn't get
    APP itself. Logs go to standard error."""

    @click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs: local[N], local-cluster[EXECUTORS,CORES,MIB], spark://HOST:PORT, yarn, k8s://...",
    )
    @click.option(
        "--spark",
        "spark_settings",
        multiple=True,
        metavar="spark.KEY=VALUE",
        callback=_settings,
        help="A setting of Spark's. May be repeated.",
    )
    @config_options
    @verbose_option
    @click.pass_context
    @wraps(command)
    def loading(
        context: click.Context,
        /,
        *,
        app: str,
        master: str,
        spark_settings: dict[str, str],
        file: Path | None,
        given: dict[str, str],
        **own: Any,
    ) -> int:
        streams = load_streams(app, file, given)
        log_to_stderr(streams.config.log_level, streams.config.log_format, verbose=is_verbose(context))

        def start(what: str) -> AbstractContextManager[SparkSession]:
            return session(f"{streams.config.application_id} {what}".rstrip(), master, spark_settings)

        return command(streams=streams, start=start, **own)

    return loading


@contextmanager
def session(name: str, master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    """Start a Spark session, and stop it at the end of the block. Raises `UsageError` without PySpark."""
    try:
        from milestones.pipeline import spark_session
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{error}; Spark needs: pip install 'milestones[spark]'") from error
    with spark_session(name, master=master, settings=settings) as made:
        yield made
