"""`StreamsConfig`: all settings of an application, checked.

*Guarantees*: a `StreamsConfig` is immutable. All its values have passed every check. The source of each value is known.
*Assumes*: values come from the given sources only. Neither Kafka nor the disk is used.
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
    """The settings of a Streams application. `docs/configuration.md` lists them.

    Keywords override environment variables `MILESTONES_<KEY>`, which override a TOML file (`from_toml`), which
    overrides the defaults. `variables` replaces the process's environment. Raises `ConfigError`, which names key, value
    and reason. Several errors are reported together.

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
        """Make a config from a TOML file. Environment variables and keywords override the file."""
        return cls._of([toml_file(path), environment(variables), keywords(settings)])

    def replace(self, **settings: Unpack[StreamsSettings]) -> Self:
        """Returns a copy of this config with other values. Defaults that depend on other values are computed anew."""
        return self._of([*self._sources, keywords(settings)])

    def over_file(self, path: str | os.PathLike[str]) -> Self:
        """Returns a copy of this config. Keys that have their default get the values of a TOML file."""
        return self._of([toml_file(path), *self._sources])

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Returns a copy of this config with the options of a command line. They override all values, also the
        code's."""
        return self._of([*self._sources, command_line(options)])

    @classmethod
    def of_options(cls, file: str | os.PathLike[str] | None, options: Mapping[str, Any]) -> Self:
        """Make the config of a command from its options, the environment, and a TOML file if there is one."""
        files = [] if file is None else [toml_file(file)]
        return cls._of([*files, environment(None), command_line(options)])

    @classmethod
    def _of(cls, sources: Sequence[ConfigSource]) -> Self:
        config = cls.__new__(cls)
        config._load(sources)
        return config

    def _load(self, sources: Sequence[ConfigSource]) -> None:
        """Load the values. 1. Merge the sources. 2. Parse each value. 3. Check combinations. 4. Ask librdkafka."""
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
        """Returns the source of the value of `key`: `keyword`, `environment variable ...`, `file ...`, `command line`,
        or `default`."""
        if key not in KEYS and key not in self._passed:
            raise ConfigError(key, None, why_refused(key, _suggestions()))
        return self._origins.get(key, "default")

    def overridden(self) -> dict[str, str]:
        """Returns the keys whose values in a file or the environment aren't used, because the code sets other values.
        Each key is returned with the source of the unused value."""
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
        """Returns all values by key, including those that are passed to librdkafka and to internal topics."""
        return {**self._values, **self._passed}

    def security_settings(self) -> dict[str, Any]:
        """Returns the security settings for all connections, with librdkafka's names: `security.protocol`, `sasl.*`,
        `ssl.*`."""
        return self.passed("")

    def topic_settings(self) -> dict[str, str]:
        """Returns the user's settings for internal topics, with Kafka's names: the key `topic_segment_bytes` is
        `segment.bytes`. They override the defaults."""
        return {setting: _as_text(value) for setting, value in self.passed("topic_").items()}

    # Complete settings of the clients of the thread `name` (see `thread_name`), with librdkafka's names.
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
        """Returns the settings that the user has passed with these prefixes, by librdkafka's names. Settings of a later
        prefix override those of an earlier one."""
        found = [(passthrough.split(key), value) for key, value in self._passed.items()]
        return {at[1]: value for prefix in prefixes for at, value in found if at is not None and at[0] == prefix}

    def _refused_by_clients(self) -> Iterator[ConfigError]:
        """Yields the errors of librdkafka. To find them, each client with settings of the user is made once, without
        brokers."""
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
        for client in ("main_consumer", "admin"):  # the runtime's own connections use the settings of these clients
            errors = list(passthrough.refused_by_member(settings[client], self._given_to(client)))
            yield from (error for error in errors if error.key not in reported)
            reported.update(error.key for error in errors)

    def _given_to(self, client: str) -> dict[str, tuple[str, object]]:
        """Returns the settings that the user has passed to a client: for each of librdkafka's names the key and the
        value."""
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
        """Returns a text with the values that aren't defaults. Secrets are hidden."""
        given = {k: v for k, v in self.as_dict().items() if self.origin(k) != "default"}
        return f"StreamsConfig({', '.join(f'{k}={shown(k, v)!r}' for k, v in given.items())})"


def _same(key: str, one: object, other: object) -> bool:
    """True if two sources give the same value, such as the number 5 and the text "5"."""
    try:
        return bool(KEYS[key].kind.parse(one) == KEYS[key].kind.parse(other))
    except (KeyError, ValueError):
        return _as_text(one) == _as_text(other)


def _passed_through(raw: Mapping[str, tuple[Any, str]], errors: list[ConfigError]) -> Iterator[tuple[str, Any]]:
    """Yields the settings in `raw` that are passed to Kafka's clients or internal topics. An unknown key, or one that
    can't be passed on, is added to `errors`."""
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
    """Returns the value of each key. Defaults that depend on other values are computed last. A key without a usable
    value is added to `errors`."""
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
