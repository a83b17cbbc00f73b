"""Options of every command that starts Spark, and the session that they make.

*Guarantees*: the session is stopped at the end; without PySpark the error says what to install.
*Assumes*: the application was loaded before: a session's processes look for modules where this one does by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Command = TypeVar("Command", bound=Callable[..., Any])


def _settings(_: click.Context, __: click.Parameter, values: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.BadParameter(f"{text!r} isn't spark.KEY=VALUE")
        found[key] = value
    return found


def spark_options(command: Command) -> Command:
    """`--master` and `--spark`; the command takes `master` and `spark_settings`."""
    options = (
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            metavar="URL",
            help="Where Spark runs: local[N], local-cluster[EXECUTORS,CORES,MIB], spark://HOST:PORT, yarn, k8s://...",
        ),
        click.option(
            "--spark",
            "spark_settings",
            multiple=True,
            metavar="spark.KEY=VALUE",
            callback=_settings,
            help="A setting of Spark's. May be repeated.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def session(name: str, master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    """A session; `UsageError` without PySpark."""
    try:
        from milestones.pipeline import spark_session
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{error}; Spark needs: pip install 'milestones[spark]'") from error
    with spark_session(name, master=master, settings=settings) as made:
        yield made
