"""`ConfigSource`: values from one source, which is keywords, the environment, a command line or a TOML file.

*Guarantees*: each source has one flat table of unchecked values. Keys are in snake case.
*Assumes*: nothing.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from milestones.common.config.keys import KEYS
from milestones.common.config.value_types import OPTIONS, PAIRS
from milestones.common.errors import ConfigError

log: Final = logging.getLogger(__name__)

KEYWORD, COMMAND_LINE = "keyword", "command line"
ENVIRONMENT_PREFIX = "MILESTONES_"
RESERVED_ENVIRONMENT = frozenset({"FAULT", "MAVEN_REPOSITORY"})
"""Variables with the prefix that aren't config keys: test faults, and the Maven mirror for the embedded broker's
jars."""

_OF_A_SERVICE = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_ADDRESS_OF_A_SERVICE = re.compile(r"(tcp|udp|sctp)://")
"""Patterns of variables that Kubernetes sets in every container for a Service called `milestones` or `milestones-...`.
After the prefix they are called `SERVICE_HOST`, `SERVICE_PORT`, `PORT=tcp://...`, `PORT_9700_TCP_ADDR`,
`METRICS_PORT=tcp://...`."""


@dataclass(frozen=True)
class ConfigSource:
    """One source of config values. `name`: the name of the source. `values`: its values by key, not yet checked."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def origin(self, key: str) -> str:
        """Returns a text for the place where the value of `key` was given."""
        if self.name == "environment":
            return f"environment variable {ENVIRONMENT_PREFIX}{key.upper()}"
        return self.name


def keywords(values: Mapping[str, Any]) -> ConfigSource:
    """Returns the values given in code. Dots in names are replaced by underscores, so that Kafka's own names work,
    too."""
    return ConfigSource(KEYWORD, {name.replace(".", "_"): value for name, value in values.items()})


def command_line(values: Mapping[str, Any]) -> ConfigSource:
    """Returns the options of a command. They override all other sources, also the code."""
    return ConfigSource(COMMAND_LINE, values)


def environment(variables: Mapping[str, str] | None) -> ConfigSource:
    """Returns the values of the variables `MILESTONES_<KEY>`. `variables`: None means the environment of this process.
    Empty variables are left out, and those that Kubernetes sets for a Service called `milestones`."""
    variables = os.environ if variables is None else variables
    names = (name for name in variables if name.startswith(ENVIRONMENT_PREFIX))
    found = {name.removeprefix(ENVIRONMENT_PREFIX): variables[name] for name in names}
    return ConfigSource("environment", {n.lower(): v for n, v in found.items() if _is_setting(n, v)})


def _is_setting(name: str, value: str) -> bool:
    if name in RESERVED_ENVIRONMENT:
        return False
    if not value.strip():
        log.debug("environment variable %s%s is empty: the setting counts as not given", ENVIRONMENT_PREFIX, name)
        return False
    if _OF_A_SERVICE.fullmatch(name) or (name.endswith("PORT") and _ADDRESS_OF_A_SERVICE.match(value)):
        log.debug("environment variable %s%s is set by Kubernetes for a Service: ignored", ENVIRONMENT_PREFIX, name)
        return False
    return True


def toml_file(path: str | os.PathLike[str]) -> ConfigSource:
    """Returns the values of a TOML file. The names of a table and its key are joined: `fetch_min_bytes` in the table
    `[consumer]` becomes `consumer_fetch_min_bytes`."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("config file", str(path), f"can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("config file", str(path), f"isn't TOML: {error}") from error
    values: dict[str, Any] = {}
    for name, value in _flat(content, ""):
        if name in values:
            raise ConfigError(name, value, f"is given twice in {path}")
        values[name] = value
    return ConfigSource(f"file {path}", values)


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = prefix + name.replace(".", "_")
        takes_table = key in KEYS and KEYS[key].kind in (OPTIONS, PAIRS)
        if isinstance(value, dict) and not takes_table:
            yield from _flat(value, f"{key}_")
        else:
            yield key, value
