"""Makes the text of `docs/configuration.md` from the table of keys.

`milestones config --markdown > docs/configuration.md` writes the page.

*Guarantees*: the page and the table agree. A test compares them.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milestones.common.config.clients import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, RESTORE_DEFAULTS
from milestones.common.config.key import ConfigKey, Derived, Required
from milestones.common.config.keys import KEYS, ApplicationKeys, KafkaKeys, StateKeys
from milestones.common.config.passthrough import CONTROLLED, CONTROLLED_TOPIC
from milestones.common.config.sources import ENVIRONMENT_PREFIX
from milestones.common.config.thread_keys import ThreadKeys
from milestones.common.config.unknown_keys import LATER, NO_COUNTERPART
from milestones.common.config.watch_keys import WatchKeys
from milestones.common.kafka.sasl import MECHANISMS
from milestones.common.kafka.wire_security import HONOURED, REFUSED, REFUSED_FAMILIES

_INTRODUCTION = f"""\
# Configuration

`milestones config` lists the keys and explains each, `milestones config --markdown` prints this page.

Keys have Kafka Streams' names with underscores. Durations are in milliseconds, sizes in bytes. If several sources give
a value, the first source in this list wins:

1. an option of a command: `milestones run words.py --set num_stream_threads=2`;
2. a keyword in the code: `Streams(topology, application_id="words", num_stream_threads=2)`;
3. the environment: `{ENVIRONMENT_PREFIX}NUM_STREAM_THREADS=2`;
4. a TOML file: `StreamsConfig.from_toml("words.toml")`, or `--config words.toml`;
5. the default.

Don't write settings into the code that differ from place to place, such as `bootstrap_servers`. If the code overrides a
value of the environment or of a file, a warning at the start names the setting. A warning also names each setting that
has no effect at the stage that runs (column *stage*).

```toml
application_id = "words"
bootstrap_servers = ["localhost:9092"]
processing_guarantee = "exactly_once_v2"

[producer]                      # tables join their names: this is producer_linger_ms
linger_ms = 20
```

All values are checked before anything starts, and all errors are reported together. An unknown name is an error.
`config.origin("commit_interval_ms")` returns the source of a value. Passwords, keys and tokens are never printed,
neither in errors nor in logs. The same holds for user, password and query of a URL.

In the environment a list or a table is written as in TOML (`{ENVIRONMENT_PREFIX}CLIENT_TAGS={{zone = "a"}}`), or as
`zone=a,rack=b`. An empty variable counts as not set. Kubernetes sets variables in containers for a Service called
`milestones` or `milestones-...`, such as `{ENVIRONMENT_PREFIX}SERVICE_HOST`, `{ENVIRONMENT_PREFIX}PORT=tcp://...` and
`{ENVIRONMENT_PREFIX}METRICS_PORT=tcp://...`. These variables are ignored.
"""

_NOT_OF_TOPICS = " and ".join(f"`{name}`" for name in CONTROLLED_TOPIC)
_PASSED = f"""\
## Settings of the Kafka clients

A key with one of these prefixes is passed to librdkafka. Its dots are written as underscores:
`consumer_fetch_min_bytes=1000` sets `fetch.min.bytes`. librdkafka itself checks names and values when the config is
made. If two keys set the same name, the longer prefix wins.

| prefix | goes to |
|---|---|
| `consumer_` | main, restore and global consumers |
| `main_consumer_`, `restore_consumer_`, `global_consumer_` | one of them |
| `producer_` | producers |
| `admin_` | admin clients |
| `security_protocol`, `sasl_`, `ssl_`, `enable_ssl_` | every client and the group member (see Security) |
| `topic_` | topic settings of internal topics (`topic_segment_bytes`); not {_NOT_OF_TOPICS} |
"""


def markdown() -> str:
    """Returns the text of the page."""
    return "\n".join([_INTRODUCTION, *_tables(), _PASSED, *_defaults(), *_controlled(), *_security(), *_refused()])


def _tables() -> Iterator[str]:
    groups = {
        "Application": ApplicationKeys,
        "Processing threads": ThreadKeys,
        "State and memory": StateKeys,
        "Kafka": KafkaKeys,
        "Metrics, probes and logs": WatchKeys,
    }
    for title, group in groups.items():
        yield f"## {title}\n"
        yield "| key | type | default | importance | stage | meaning |\n|---|---|---|---|---|---|"
        keys = (KEYS[name] for name, key in vars(group).items() if isinstance(key, ConfigKey))
        for key in sorted(keys, key=lambda key: ("high", "medium", "low").index(key.importance)):
            cells = (f"`{key.name}`", key.kind.text, described_default(key), key.importance, key.stage, key.doc)
            yield "| " + " | ".join(cells) + " |"
        yield ""


def described_default(key: ConfigKey[Any]) -> str:
    """Returns the default of a key, in Markdown."""
    default = key.default
    if isinstance(default, Required):
        return "*required*"
    if isinstance(default, Derived):
        return default.text
    if isinstance(default, frozenset):
        return ", ".join(f"`{item}`" for item in sorted(default))
    return "none" if default in (None, (), {}) else f"`{default}`"


def _defaults() -> Iterator[str]:
    yield "These defaults differ from librdkafka's, or are important to know:\n"
    yield "| setting | value |\n|---|---|"
    tables = {"consumer_": CONSUMER_DEFAULTS, "restore_consumer_": RESTORE_DEFAULTS, "producer_": PRODUCER_DEFAULTS}
    for prefix, defaults in tables.items():
        for name, value in defaults.items():
            yield f"| `{prefix}{name.replace('.', '_')}` | `{value}` |"
    yield ""


def _controlled() -> Iterator[str]:
    yield "The runtime controls these settings. If you set one of them, this is an error:\n"
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


_SECURITY = f"""\
## Security

Every connection uses `security_protocol` (`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`), and the settings of TLS
and SASL with librdkafka's names. The group member, and the code that asks about the group, have connections of their
own, without librdkafka. These connections support {{honoured}}. They don't support:

- SASL OAUTHBEARER and GSSAPI (Kerberos), and with them MSK IAM and the like: use {", ".join(MECHANISMS)},
  or a client certificate;
- PKCS#12 and JKS key stores, certificates and keys as text: use PEM files.

`ssl_curves_list` names one curve. `ssl_cipher_suites` concerns TLS 1.2 only, as in librdkafka. If Kafka refuses the
login, the application ends after one try, with exit code 2.

These settings are refused:
"""


def _security() -> Iterator[str]:
    yield _SECURITY.format(honoured=", ".join(f"`{name.replace('.', '_')}`" for name in sorted(HONOURED)))
    yield "| setting | reason |\n|---|---|"
    families = {f"{prefix}*": reason for prefix, reason in REFUSED_FAMILIES.items()}
    for name, reason in sorted({**REFUSED, **families}.items()):
        yield f"| `{name}` | {reason} |"
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
