"""The common part of the commands that start Spark: options, the application, the session.

*Guarantees*: the session is stopped at the end; without PySpark the error says what to install.
*Assumes*: the application was loaded before: a session's processes look for modules where this one does by then.
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
"""Makes a session for an application; the argument says what for."""


def _settings(_: click.Context, __: click.Parameter, values: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise no_pair(text, "spark.KEY=VALUE")
        found[key] = value
    return found


def on_spark(command: Callable[..., int]) -> Callable[..., int]:
    """The options of settings, of Spark and `--verbose`. Beside its own parameters, of which APP isn't one, the command
    takes `streams`, what APP names, and `start`, which makes the session. Logs go to standard error."""

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
    """`UsageError` without PySpark."""
    try:
        from milestones.pipeline import spark_session
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{error}; Spark needs: pip install 'milestones[spark]'") from error
    with spark_session(name, master=master, settings=settings) as made:
        yield made
