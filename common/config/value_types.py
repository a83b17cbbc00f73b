"""`ValueType`: a type of config values, with its parser.

*Guarantees*: a parser returns a value of its type, or raises `ValueError`. The error's text fits after the words
`config key=value: `. A parser accepts text, too, because the environment contains only text.
*Assumes*: nothing.
"""

from __future__ import annotations

import importlib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from milestones.common.functions import AWAITED_BY_NOBODY, is_coroutine_function
from milestones.common.offset_reset import reset_policy
from milestones.common.state.snapshots.sealing import SnapshotKeys

T = TypeVar("T")

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""The pattern of names that Kafka accepts for topics. Ids that become part of a topic's name or of a path must match
it, too."""


@dataclass(frozen=True)
class ValueType(Generic[T]):
    """A type of values."""

    parse: Callable[[object], T]
    """Converts the given object to a value of the type."""
    text: str
    """The type's name in the documentation."""
    takes: str
    """The annotation, in `settings.py`, of all objects that `parse` accepts."""


def integer(at_least: int | None = None, at_most: int | None = None) -> ValueType[int]:
    """Returns the type of whole numbers within limits. It also accepts text with digits, such as `30_000`."""
    limits = [f"at least {at_least}"] * (at_least is not None) + [f"at most {at_most}"] * (at_most is not None)
    wanted = " ".join(["an integer", " and ".join(limits)]).strip()

    def parse(value: object) -> int:
        number = _whole(value)
        if number is None or (at_least is not None and number < at_least) or (at_most is not None and number > at_most):
            raise ValueError(f"must be {wanted}")
        return number

    return ValueType(parse, wanted.removeprefix("an "), "int | str")


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            return None
    return None


def _boolean(value: object) -> bool:
    found = {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError("must be true or false")
    return found


BOOLEAN = ValueType(_boolean, "`true` \\| `false`", "bool | str")


def choice(*options: str, hints: Mapping[str, str] | None = None) -> ValueType[str]:
    """Returns the type of one of the given words, in upper or lower case. `hints`: advice for certain wrong words."""
    literals = ", ".join(f'"{option}"' for option in options)
    by_lower = {option.lower(): option for option in options}

    def parse(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else None
        if word in by_lower:
            return by_lower[word]
        hint = (hints or {}).get(word or "", "")
        raise ValueError(f"must be one of {', '.join(options)}" + (f"; {hint}" if hint else ""))

    return ValueType(parse, " \\| ".join(f"`{option}`" for option in options), f"Literal[{literals}] | str")


def legal_name(what: str) -> ValueType[str]:
    """Returns the type of names that Kafka accepts: at most 249 ASCII letters, digits, `.`, `_` and `-`."""

    def parse(value: object) -> str:
        if isinstance(value, str) and LEGAL_NAME.fullmatch(value) and value not in (".", ".."):
            return value
        raise ValueError(f"{what} consists of 1 to 249 of the characters a-z A-Z 0-9 . _ - and isn't . or ..")

    return ValueType(parse, "string (`a-z A-Z 0-9 . _ -`)", "str")


def _read(value: object) -> object:
    """Converts a text with a list or table in TOML, as in the environment. Any other value is returned unchanged."""
    if isinstance(value, str) and value.strip().startswith(("[", "{")):
        try:
            return tomllib.loads(f"value = {value.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            return value
    return value


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError("must be text that isn't empty")


def _path(value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not (isinstance(text, str) and text.strip() and "\0" not in text):
        raise ValueError("must be the path of a directory")
    if not text.startswith("~"):
        return text
    try:
        return str(Path(text).expanduser())
    except RuntimeError as error:
        reason = "there is no user of that name whose home directory ~ could mean; write ./~ for a folder"
        raise ValueError(reason) from error


def _servers(value: object) -> str:
    value = _read(value)
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not items:
        raise ValueError("must be host:port, or several of them (a list, or text with commas)")
    servers = [item.strip() if isinstance(item, str) else "" for item in items]
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or re.search(r"[\s/]", host) or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{server!r} isn't host:port, such as localhost:9092")
    return ",".join(servers)


def _words(value: object) -> frozenset[str]:
    value = _read(value)
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple, set, frozenset)) or not all(isinstance(item, str) for item in items):
        raise ValueError('must be a stage ("m3") or names of flags (a list, a set, or text with commas)')
    return frozenset(item.strip() for item in items if item.strip())


def _names(value: object) -> tuple[str, ...]:
    value = _read(value)
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of names, or text with commas")
    return tuple(item.strip() for item in items if item.strip())


def _pairs(value: object) -> Mapping[str, str]:
    value = _read(value)
    if isinstance(value, str):
        if value.strip().startswith("{"):
            raise ValueError("isn't a table as TOML writes it, such as {zone = 'a'}")
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(equals and name.strip() for name, equals, _ in parts):
            raise ValueError("as text it is name=value,name=value")
        return {name.strip(): item.strip() for name, _, item in parts}
    if isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        return dict(value)
    raise ValueError("must be a mapping of text to text, or name=value,name=value")


def _options(value: object) -> Mapping[str, str]:
    value = _read(value)
    if not isinstance(value, Mapping):
        return _pairs(value)
    plain = {True: "true", False: "false"}
    items = {name: plain[item] if isinstance(item, bool) else item for name, item in value.items()}
    return _pairs({name: str(item) if isinstance(item, int) else item for name, item in items.items()})


def _encryption_keys(value: object) -> str:
    text = _text(value)
    SnapshotKeys.parse(text)
    return text


def _priorities(value: object) -> Mapping[int, int]:
    wanted = "must be a table of sub-topologies' numbers and weights of at least 1, or number=weight,number=weight"
    value = _read(value)
    try:
        pairs = _pairs(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(wanted) from error
    if not isinstance(pairs, Mapping):
        raise ValueError(wanted)
    found: dict[int, int] = {}
    for number, weight in pairs.items():
        sub, least = _whole(number), _whole(weight)
        if sub is None or least is None or sub < 0 or least < 1:
            raise ValueError(wanted)
        found[sub] = least
    return found


TEXT = ValueType(_text, "string", "str")
PATH = ValueType(_path, "path", "str | PathLike[str]")
SERVERS = ValueType(_servers, "host:port list", "Names")
STAGE = ValueType(_words, "stage, or list of flags", "Words")
NAMES = ValueType(_names, "list of strings", "Names")
PAIRS = ValueType(_pairs, "table of strings", "str | Mapping[str, str]")
OPTIONS = ValueType(_options, "table of strings, secret", "str | Mapping[str, str | int]")
ENCRYPTION_KEYS = ValueType(_encryption_keys, "`id:key` or `id:key,oldid:oldkey`, secret", "str")
PRIORITIES = ValueType(
    _priorities, "table of integers at least 1", "str | Mapping[int, int | str] | Mapping[str, int | str]"
)


def optional(kind: ValueType[T]) -> ValueType[T | None]:
    """Returns a type that accepts the values of `kind`, and None."""

    def parse(value: object) -> T | None:
        return None if value is None else kind.parse(value)

    return ValueType(parse, kind.text, f"{kind.takes} | None")


def imported(text: str) -> Any:
    """Import and return the object that `module:attribute` names. Raises `ValueError` if this fails."""
    module, _, path = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except Exception as error:  # whatever the user's module raises while it is imported
        raise ValueError(f"can't be imported: {type(error).__name__}: {error}") from error
    return found


def handler(what: str, *names: str, called: str = "Handler") -> ValueType[Any]:
    """Returns the type of handlers: the name of a built-in handler, a callable of the user, or `module:attribute` of a
    callable. `called`: the callable's type, for annotations."""

    def parse(value: object) -> Any:
        if isinstance(value, str) and value.strip().lower() in names:
            return value.strip().lower()
        return _function(value, f"{what} is one of {', '.join(names)}, or a callable, or module:attribute")

    text = " \\| ".join(f"`{name}`" for name in names) + " \\| `module:attribute` \\| callable"
    return ValueType(parse, text, f"str | {called}")


def _function(value: object, wanted: str) -> Any:
    found = imported(value.strip()) if isinstance(value, str) and ":" in value else value
    if not callable(found):
        raise ValueError(wanted)
    if is_coroutine_function(found):
        raise ValueError(f"it {AWAITED_BY_NOBODY}")
    return found


def _extractor(value: object) -> Any:
    from milestones.common.topology import timestamps  # here, so that a config alone doesn't load the topology

    if isinstance(value, str) and value.strip().lower() in EXTRACTORS:
        return getattr(timestamps, value.strip().lower())
    return _function(value, f"must be one of {', '.join(EXTRACTORS)}, or a callable, or module:attribute")


EXTRACTORS = (
    "fail_on_invalid_timestamp",
    "log_and_skip_on_invalid_timestamp",
    "use_partition_time_on_invalid_timestamp",
    "wallclock_timestamp_extractor",
)
EXTRACTOR = ValueType(
    _extractor,
    " \\| ".join(f"`{n}`" for n in EXTRACTORS) + " \\| `module:attribute` \\| callable",
    "str | TimestampExtractor",
)


_WRAPS = "wrap_processor_supplier", "wrap_fixed_key_processor_supplier"


def _wrapper(value: object) -> Any:
    found = imported(value.strip()) if isinstance(value, str) and ":" in value else value
    found = found() if isinstance(found, type) else found
    if not all(callable(getattr(found, name, None)) for name in _WRAPS):
        raise ValueError("must be a ProcessorWrapper, its class, or module:attribute")
    return found


WRAPPER = ValueType(
    _wrapper, "`module:attribute` \\| `ProcessorWrapper`", "str | ProcessorWrapper | type[ProcessorWrapper]"
)


def _optimization(value: object) -> frozenset[str]:
    from milestones.common.topology.optimization import parts_of  # here, for the same reason

    value = _read(value)
    if not isinstance(value, str | list | tuple | set | frozenset) or not all(isinstance(each, str) for each in value):
        raise ValueError("is all, none, or names of optimisations (a list, a set, or text with commas)")
    return parts_of(value)


OPTIMIZATION = ValueType(_optimization, "`all` \\| `none` \\| names, as a list or as text with commas", "Words")


RESET = ValueType(reset_policy, "`earliest` \\| `latest` \\| `none` \\| `by_duration:` and a duration", "OffsetReset")


def _serde(value: object) -> Any:
    from milestones.common import serdes  # a serde needs no config, so the import goes this way only

    found = value
    if isinstance(value, str):
        known = sorted(n.lower() for n, item in vars(serdes).items() if n.isupper() and _is_serde(item))
        word = value.strip()
        if ":" in word:
            found = imported(word)
        elif word.lower() in known:
            found = getattr(serdes, word.upper())
        else:
            raise ValueError(f"no serde of that name; built in are {', '.join(known)}; or give module:attribute")
    if _is_serde(found):
        return found
    if isinstance(found, type) and _has_both_ways(found):
        raise ValueError("this is the class of a serde: give an instance of it")
    from milestones.common.typed_serdes import of  # of a type

    try:
        return of(found)  # type: ignore[arg-type]  # refused below
    except TypeError as error:
        raise ValueError(str(error)) from error


def _is_serde(value: object) -> bool:
    return not isinstance(value, type) and _has_both_ways(value)


def _has_both_ways(value: object) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("serialize", "deserialize"))


SERDE = ValueType(
    _serde, "serde, its name, a type such as `str` (see `serdes.of`), or `module:attribute`", "str | SerdeLike[Any]"
)
