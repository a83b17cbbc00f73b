"""`docs/configuration.md`, made from the table: `python -m milestones.common.config.document > docs/configuration.md`.

*Guarantees*: the page says what the table says; a test compares them.
*Assumes*: nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from milestones.common.config.clients import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, RESTORE_DEFAULTS
from milestones.common.config.key import ConfigKey, Derived, Required
from milestones.common.config.keys import KEYS, ApplicationKeys, KafkaKeys, StateKeys
from milestones.common.config.passthrough import CONTROLLED, CONTROLLED_TOPIC, SASL_MECHANISMS
from milestones.common.config.refused import LATER, NO_COUNTERPART
from milestones.common.config.sources import ENVIRONMENT_PREFIX

_INTRODUCTION = f"""\
# Configuration

This page is made from the table in `common/config/keys.py`:
`python -m milestones.common.config.document > docs/configuration.md`.

Keys carry Kafka Streams' names with underscores. Durations are milliseconds, sizes bytes. A value comes from, strongest
first:

1. a keyword: `Streams(topology, application_id="words", num_stream_threads=2)`, or `--set num_stream_threads=2`;
2. the environment: `{ENVIRONMENT_PREFIX}NUM_STREAM_THREADS=2`;
3. a TOML file: `StreamsConfig.from_toml("words.toml")`, or `--config words.toml`;
4. the default.

```toml
application_id = "words"
bootstrap_servers = ["localhost:9092"]
processing_guarantee = "exactly_once_v2"

[producer]                      # tables join their names: this is producer_linger_ms
linger_ms = 20
```

All values are checked before anything starts, and all errors are reported together. An unknown name is an error.
`config.origin("commit_interval_ms")` tells where a value came from.
"""

_NOT_OF_TOPICS = " and ".join(f"`{name}`" for name in CONTROLLED_TOPIC)
_PASSED = f"""\
## Settings of the Kafka clients

A key with one of these prefixes goes to librdkafka, dots written as underscores (`consumer_fetch_min_bytes=1000` is
`fetch.min.bytes`). librdkafka itself checks names and values when the config is made. The longer prefix wins.

| prefix | goes to |
|---|---|
| `consumer_` | main and restore consumers |
| `main_consumer_`, `restore_consumer_` | one of them |
| `producer_` | producers |
| `admin_` | admin clients |
| `security_protocol`, `sasl_`, `ssl_` | every client, the group member included; SASL: {", ".join(SASL_MECHANISMS)} |
| `topic_` | topic settings of internal topics (`topic_segment_bytes`); not {_NOT_OF_TOPICS} |
"""


def markdown() -> str:
    """The page."""
    return "\n".join([_INTRODUCTION, *_tables(), _PASSED, *_defaults(), *_controlled(), *_refused()])


def _tables() -> Iterator[str]:
    groups = {"Application": ApplicationKeys, "State and memory": StateKeys, "Kafka and metrics": KafkaKeys}
    for title, group in groups.items():
        yield f"## {title}\n"
        yield "| key | type | default | importance | stage | meaning |\n|---|---|---|---|---|---|"
        keys = (KEYS[name] for name, key in vars(group).items() if isinstance(key, ConfigKey))
        for key in sorted(keys, key=lambda key: ("high", "medium", "low").index(key.importance)):
            cells = (f"`{key.name}`", key.kind.text, _default(key), key.importance, key.stage, key.doc)
            yield "| " + " | ".join(cells) + " |"
        yield ""


def _default(key: ConfigKey[Any]) -> str:
    default = key.default
    if isinstance(default, Required):
        return "*required*"
    if isinstance(default, Derived):
        return default.text
    if isinstance(default, frozenset):
        return ", ".join(f"`{item}`" for item in sorted(default))
    return "none" if default in (None, (), {}) else f"`{default}`"


def _defaults() -> Iterator[str]:
    yield "Their defaults differ from librdkafka's, or are worth knowing, here:\n"
    yield "| setting | value |\n|---|---|"
    tables = {"consumer_": CONSUMER_DEFAULTS, "restore_consumer_": RESTORE_DEFAULTS, "producer_": PRODUCER_DEFAULTS}
    for prefix, defaults in tables.items():
        for name, value in defaults.items():
            yield f"| `{prefix}{name.replace('.', '_')}` | `{value}` |"
    yield ""


def _controlled() -> Iterator[str]:
    yield "These are the runtime's own; giving one is an error:\n"
    yield "| client | setting | reason |\n|---|---|---|"
    clients: dict[tuple[str, str], list[str]] = {}
    for client, reasons in CONTROLLED.items():
        for name, reason in reasons.items():
            clients.setdefault((name, reason), []).append(client)
    for (name, reason), owners in clients.items():
        where = "all" if len(owners) == len(CONTROLLED) else ", ".join(owners)
        yield f"| {where} | `{name}` | {reason} |"
    yield "| main_consumer | `isolation.level` | under `exactly_once_v2` only committed input is read |"
    yield ""


def _refused() -> Iterator[str]:
    yield "## Keys of later versions\n"
    yield "| key, not built yet | belongs to stage | meaning |\n|---|---|---|"
    for name, (stage, purpose) in LATER.items():
        yield f"| `{name}` | {stage} | {purpose} |"
    yield "\n## Kafka Streams' keys without a counterpart\n"
    yield "| key | instead |\n|---|---|"
    for name, instead in NO_COUNTERPART.items():
        yield f"| `{name}` | {instead} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(markdown())
