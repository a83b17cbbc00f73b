"""Defines the command line options for settings: a file, single keys, and short forms of the most used keys.

*Guarantees*: options override every other source of settings. A secret on the command line causes a warning.
*Assumes*: `StreamsConfig` reads the environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import rich_click as click

from milestones.common.config import ConfigErrors
from milestones.common.config.key import raise_all
from milestones.common.config.sources import ENVIRONMENT_PREFIX
from milestones.common.errors import ConfigError
from milestones.common.secrets import is_secret

CONFIG_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SHORT = {"application_id": "-a ID", "bootstrap_servers": "-b HOST:PORT"}


def no_pair(text: str, form: str, option: str | None = None) -> click.BadParameter:
    """Returns the error for an option's value that doesn't have the form `form`. Only the beginning of the value is
    shown, because the rest may be a secret."""
    beginning = re.split(r"[^\w.-]", text, maxsplit=1)[0]
    return click.BadParameter(f"{beginning!r} isn't {form}", param_hint=option)


def _pairs(_: click.Context, __: click.Parameter, values: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise no_pair(text, "KEY=VALUE")
        found[key.strip().replace(".", "_").replace("-", "_")] = value
    return found


def config_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--config`, `--set`, `--application-id` and `--bootstrap-servers` to a command. The command gets `file`, and
    `given` with all settings of the command line."""

    @click.option("-c", "--config", "file", type=CONFIG_FILE, help="Settings from a TOML file.")
    @click.option(
        "-s",
        "--set",
        "given",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_pairs,
        help="One setting, as `milestones config` lists them. May be repeated.",
    )
    @click.option("-a", "--application-id", metavar="ID", help="Short for --set application_id=ID.")
    @click.option("-b", "--bootstrap-servers", metavar="HOST:PORT", help="Short for --set bootstrap_servers=...")
    @wraps(command)
    def merging(*args: Any, given: dict[str, str], **options: Any) -> int:
        short = {key: options.pop(key) for key in SHORT}
        used = {key: value for key, value in short.items() if value is not None}
        for key in filter(is_secret, given):
            click.echo(f"warning: {visible(key)}", err=True)
        return command(*args, given=given | used, **options)

    return merging


def visible(key: str) -> str:
    """Returns the warning about a secret that is an argument of the process."""
    return (
        f"{key} is an argument of this process, which all users of the machine can read in its list of processes: give "
        f"it as {ENVIRONMENT_PREFIX}{key.upper()}, or in a file (--config)"
    )


@contextmanager
def options_named() -> Iterator[None]:
    """Inside the block, add the name of the option to a config error if the setting has an option of its own."""
    try:
        yield
    except ConfigError as error:
        each = error.errors if isinstance(error, ConfigErrors) else (error,)
        raise_all([_with_option(one) for one in each])


def _with_option(error: ConfigError) -> ConfigError:
    option = SHORT.get(error.key)
    return error if option is None else ConfigError(error.key, error.value, f"{error.reason}, or with {option}")
