"""`StreamsConfig`: all settings of an application, checked.

*Guarantees*: immutable; made only of values that passed every check; the source of every value is known.
*Assumes*: nothing outside the given sources; neither Kafka nor the disk is touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack

from milestones.common.config import clients, passthrough
from milestones.common.config.key import Derived, Required, raise_all
from milestones.common.config.keys import EXACTLY_ONCE_V2, KEYS, Keys
from milestones.common.config.rules import RULES
from milestones.common.config.sources import (
    COMMAND_LINE,
    KEYWORD,
    ConfigSource,
    command_line,
    environment,
    keywords,
    toml_file,
)
from milestones.common.config.unknown_keys import LATER, NO_COUNTERPART, why_refused
from milestones.common.errors import ConfigError
from milestones.common.secrets import HIDDEN, shown

if TYPE_CHECKING:
    from milestones.common.config.settings import StreamsSettings


class StreamsConfig(Keys):
    """Settings of a Streams application; `docs/configuration.md` lists them.

    Sources, strongest first: keywords, environment variables `MILESTONES_<KEY>`, a TOML file (`from_toml`), defaults.
    `variables` replaces the process's environment. `ConfigError` names key, value and reason; several are reported
    together.

        config = StreamsConfig(application_id="words", bootstrap_servers="localhost:9092", producer_linger_ms=20)
        config.commit_interval_ms           # 30000, an int
        config.origin("commit_interval_ms") # "default"
    """

    _values: Mapping[str, Any]
    _origins: Mapping[str, str]
    _passed: Mapping[str, Any]
    _sources: Sequence[ConfigSource]

    def __init__(self, *, variables: Mapping[str, str] | None = None, **settings: Unpack[StreamsSettings]) -> None:
        self._load([environment(variables), keywords(settings)])

    @classmethod
    def from_toml(
        cls,
        path: str | os.PathLike[str],
        *,
        variables: Mapping[str, str] | None = None,
        **settings: Unpack[StreamsSettings],
    ) -> Self:
        """A config from a file; environment and keywords override it."""
        return cls._of([toml_file(path), environment(variables), keywords(settings)])

    def replace(self, **settings: Unpack[StreamsSettings]) -> Self:
        """This config with other values, from which derived defaults are worked out anew."""
        return self._of([*self._sources, keywords(settings)])

    def over_file(self, path: str | os.PathLike[str]) -> Self:
        """This config, with the values that it leaves open taken from a TOML file."""
        return self._of([toml_file(path), *self._sources])

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """This config with the options of a command line, which win over the code, too."""
        return self._of([*self._sources, command_line(options)])

    @classmethod
    def of_options(cls, file: str | os.PathLike[str] | None, options: Mapping[str, Any]) -> Self:
        """The config of a command: its options, the environment, a file if there is one."""
        files = [] if file is None else [toml_file(file)]
        return cls._of([*files, environment(None), command_line(options)])

    @classmethod
    def _of(cls, sources: Sequence[ConfigSource]) -> Self:
        config = cls.__new__(cls)
        config._load(sources)
        return config

    def _load(self, sources: Sequence[ConfigSource]) -> None:
        """1. lay the sources over each other; 2. parse; 3. check what values say together; 4. ask librdkafka."""
        raw = {name: (value, source.origin(name)) for source in sources for name, value in source.values.items()}
        errors: list[ConfigError] = []
        set_ = super().__setattr__
        set_("_sources", tuple(sources))
        set_("_origins", {name: origin for name, (_, origin) in raw.items()})
        set_("_passed", dict(_passed_through(raw, errors)))
        set_("_values", _parsed(raw, errors))
        raise_all(errors)
        raise_all([error for rule in RULES for error in rule(self)])
        raise_all(list(self._refused_by_clients()))

    def __setattr__(self, name: str, value: object) -> None:
        if name in KEYS:
            KEYS[name].__set__(self, value)
        raise AttributeError(f"a StreamsConfig can't be changed, and has no {name}")

    @property
    def exactly_once(self) -> bool:
        """True if `processing_guarantee` is `exactly_once_v2`."""
        return self.processing_guarantee == EXACTLY_ONCE_V2

    def origin(self, key: str) -> str:
        """The source of the value of `key`: `keyword`, `environment variable ...`, `file ...`, `command line`, or
        `default`."""
        if key not in KEYS and key not in self._passed:
            raise ConfigError(key, None, why_refused(key, _suggestions()))
        return self._origins.get(key, "default")

    def overridden(self) -> dict[str, str]:
        """The sources, by key, of values of a file or the environment that aren't used because the code has others."""
        found: dict[str, str] = {}
        for at, source in enumerate(self._sources):
            if source.name in (KEYWORD, COMMAND_LINE):
                continue
            for key, value in source.values.items():
                later = [one for one in self._sources[at + 1 :] if key in one.values]
                said = later[-1].name == KEYWORD if later else False
                if said and not _same(key, later[-1].values[key], value):
                    found[key] = source.origin(key)
        return found

    def as_dict(self) -> dict[str, Any]:
        """All values by key, those that are passed through included."""
        return {**self._values, **self._passed}

    def security_settings(self) -> dict[str, Any]:
        """The security settings of every connection, by librdkafka's names: `security.protocol`, `sasl.*`, `ssl.*`."""
        return self.passed("")

    def topic_settings(self) -> dict[str, str]:
        """Topic settings for internal topics, over their defaults (`topic_segment_bytes` gives `segment.bytes`)."""
        return {setting: _as_text(value) for setting, value in self.passed("topic_").items()}

    # Complete settings of the clients of the thread `name` (see `thread_name`), by librdkafka's names.
    consumer_settings: Final = clients.main_consumer
    restore_consumer_settings: Final = clients.restore_consumer
    global_consumer_settings: Final = clients.global_consumer
    producer_settings: Final = clients.producer
    admin_settings: Final = clients.admin
    client_queue_bytes: Final = clients.queue_bytes
    global_queue_bytes: Final = clients.global_queue_bytes
    member_settings: Final = clients.member
    static_id: Final = clients.static_id

    def passed(self, *prefixes: str) -> dict[str, Any]:
        """Settings passed through with one of these prefixes, by dotted name; a later prefix overrides."""
        found = [(passthrough.split(key), value) for key, value in self._passed.items()]
        return {at[1]: value for prefix in prefixes for at, value in found if at is not None and at[0] == prefix}

    def _refused_by_clients(self) -> Iterator[ConfigError]:
        """The errors of librdkafka: each client with settings of the user is made once, without brokers."""
        settings = {
            "main_consumer": self.consumer_settings("check"),
            "restore_consumer": self.restore_consumer_settings("check"),
            "global_consumer": self.global_consumer_settings("check"),
            "producer": self.producer_settings("check", "check" if self.exactly_once else None),
            "admin": self.admin_settings("check"),
        }
        reported = set[str]()
        for client, complete in settings.items():
            given = self._given_to(client)
            errors = list(passthrough.refused_by_client(client, complete, given)) if given else []
            yield from (error for error in errors if error.key not in reported)
            reported.update(error.key for error in errors)
        for client in ("main_consumer", "admin"):  # the group member's settings, and those of what asks about the group
            errors = list(passthrough.refused_by_member(settings[client], self._given_to(client)))
            yield from (error for error in errors if error.key not in reported)
            reported.update(error.key for error in errors)

    def _given_to(self, client: str) -> dict[str, tuple[str, object]]:
        """Pass-through settings of a client: by dotted name, the key that brought it and its value."""
        given: dict[str, tuple[str, object]] = {}
        for key, value in self._passed.items():
            prefix, setting = passthrough.split(key) or ("", "")
            if not prefix or client in passthrough.PREFIXES[prefix]:
                given[setting] = (key, value)
        return given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamsConfig) and self.as_dict() == other.as_dict()

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # values may be objects of the user

    def __repr__(self) -> str:
        """The values that aren't defaults; secrets are hidden."""
        given = {k: v for k, v in self.as_dict().items() if self.origin(k) != "default"}
        return f"StreamsConfig({', '.join(f'{k}={shown(k, v)!r}' for k, v in given.items())})"


def _same(key: str, one: object, other: object) -> bool:
    """True if two sources give the same value, each in its own form."""
    try:
        return bool(KEYS[key].kind.parse(one) == KEYS[key].kind.parse(other))
    except (KeyError, ValueError):
        return _as_text(one) == _as_text(other)


def _passed_through(raw: Mapping[str, tuple[Any, str]], errors: list[ConfigError]) -> Iterator[tuple[str, Any]]:
    """The pass-through settings among `raw`; an unknown key becomes an error."""
    for name, (value, origin) in raw.items():
        if name in KEYS:
            continue
        at = passthrough.split(name)
        if at is None:
            errors.append(ConfigError(name, HIDDEN, _at(_why_unknown(name, value), origin)))
        elif reason := passthrough.why_not(*at, value):
            errors.append(ConfigError(name, value, _at(reason, origin)))
        else:
            yield name, value


def _parsed(raw: Mapping[str, tuple[Any, str]], errors: list[ConfigError]) -> dict[str, Any]:
    """Every key's value, derived defaults last; a key without a usable value becomes an error."""
    values: dict[str, Any] = {}
    for name, key in KEYS.items():
        if name in raw:
            value, origin = raw[name]
            try:
                values[name] = key.kind.parse(value)
            except ValueError as error:
                errors.append(ConfigError(name, value, _at(str(error), origin)))
        elif isinstance(key.default, Required):
            ways = f"give it as a keyword, in the config file, or as MILESTONES_{name.upper()}"
            errors.append(ConfigError(name, None, f"has no default: {ways}"))
        elif not isinstance(key.default, Derived):
            values[name] = key.default
    if not errors:
        for name, key in KEYS.items():
            if name not in values and isinstance(key.default, Derived):
                values[name] = key.default.of(values)
        values |= {n: key.settle(values[n], values) for n, key in KEYS.items() if key.settle is not None}
    return values


def _why_unknown(name: str, value: object) -> str:
    prefixes = passthrough.prefixes_for(name.replace("_", "."), value)
    if prefixes and name not in NO_COUNTERPART:
        return f"is a setting of a Kafka client: write {' or '.join(prefix + name for prefix in prefixes)}"
    return why_refused(name, _suggestions())


def _suggestions() -> list[str]:
    return [*KEYS, *LATER, *NO_COUNTERPART]


def _at(reason: str, origin: str) -> str:
    return reason if origin == "keyword" else f"{reason} (from {origin})"


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
