"""The sources of values: keywords, the environment, a TOML file.

*Guarantees*: one flat table of raw values per source, keys in snake case; a value remembers its source.
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
"""Variables with the prefix that aren't config keys: armed test faults, and the folder of the embedded broker's
jars."""

_OF_A_SERVICE = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_ADDRESS_OF_A_SERVICE = re.compile(r"(tcp|udp|sctp)://")
"""What Kubernetes puts into every container for a Service called `milestones` or `milestones-...`: `SERVICE_HOST`,
`SERVICE_PORT`, `PORT=tcp://...`, `PORT_9700_TCP_ADDR`, `METRICS_PORT=tcp://...` behind our prefix."""


@dataclass(frozen=True)
class ConfigSource:
    """One place from which config values come: its name, and its values by key, not yet checked."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def origin(self, key: str) -> str:
        """The place at which the value of `key` was written."""
        if self.name == "environment":
            return f"environment variable {ENVIRONMENT_PREFIX}{key.upper()}"
        return self.name


def keywords(values: Mapping[str, Any]) -> ConfigSource:
    """Values given in code. Dots in names count as underscores, so that Kafka's own spelling works too."""
    return ConfigSource(KEYWORD, {name.replace(".", "_"): value for name, value in values.items()})


def command_line(values: Mapping[str, Any]) -> ConfigSource:
    """Options of a command, which win over all other sources, also over the code."""
    return ConfigSource(COMMAND_LINE, values)


def environment(variables: Mapping[str, str] | None) -> ConfigSource:
    """Variables `MILESTONES_<KEY>`; None means those of this process. Left out: empty ones, and those that Kubernetes
    makes for a Service of that name."""
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
        log.debug("environment variable %s%s is Kubernetes', for a Service: passed over", ENVIRONMENT_PREFIX, name)
        return False
    return True


def toml_file(path: str | os.PathLike[str]) -> ConfigSource:
    """A TOML file. Tables join their names: `[consumer]` with `fetch_min_bytes` is `consumer_fetch_min_bytes`."""
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
