"""Checks settings that the user passes to librdkafka or to internal topics.

*Guarantees*: if librdkafka doesn't know a setting, doesn't accept its value, or would ignore it, an error names the
setting. A setting that the runtime controls is an error, too.
*Assumes*: librdkafka's names contain dots and no underscores.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from milestones.common.errors import ConfigError
from milestones.common.kafka.sasl import MECHANISMS
from milestones.common.kafka.wire_security import why_refused
from milestones.common.secrets import scrubbed

PREFIXES: Mapping[str, frozenset[str]] = {
    "main_consumer_": frozenset({"main_consumer"}),
    "restore_consumer_": frozenset({"restore_consumer"}),
    "global_consumer_": frozenset({"global_consumer"}),
    "consumer_": frozenset({"main_consumer", "restore_consumer", "global_consumer"}),
    "producer_": frozenset({"producer"}),
    "admin_": frozenset({"admin"}),
    "topic_": frozenset(),
}
"""The clients to which keys with each prefix are passed. If several keys set the same name, the longest prefix wins."""

SECURITY = ("security_protocol", "sasl_", "ssl_", "enable_ssl_", "enable_sasl_", "https_")
"""The prefixes of keys that are passed to every client and to the group member."""

OWN_CONNECTIONS = frozenset({"", "consumer_", "main_consumer_", "admin_"})
"""The prefixes of settings that are also used by the runtime's own connections, which don't use librdkafka."""

_NOT_OURS = {
    "bootstrap.servers": "set bootstrap_servers",
    "metadata.broker.list": "set bootstrap_servers",
    "client.id": "set client_id: each client's name is derived from it",
    "logger": "client logs go to the logger milestones.librdkafka",
}
_CONSUMER = {
    "allow.auto.create.topics": "a missing source topic is an error",
    "auto.commit.interval.ms": "the runtime commits: set commit_interval_ms",
    "auto.offset.reset": "the runtime resets, per source: set auto_offset_reset",
    "enable.auto.commit": "the runtime commits, together with outputs and state",
    "enable.auto.offset.store": "the runtime commits, together with outputs and state",
    "enable.partition.eof": "the runtime needs to see the ends of partitions",
    "group.id": "it is application_id",
    "group.instance.id": "set group_instance_id",
    "group.protocol": "the runtime is a group member of its own, of the classic protocol",
    "group.remote.assignor": "the runtime assigns tasks itself",
    "heartbeat.interval.ms": "set heartbeat_interval_ms",
    "max.poll.interval.ms": "set max_poll_interval_ms",
    "max.poll.records": "set max_poll_records",
    "partition.assignment.strategy": "the runtime assigns tasks itself",
    "session.timeout.ms": "set session_timeout_ms",
}
_PRODUCER = {
    "acks": "the runtime waits for all in-sync replicas",
    "delivery.report.only.error": "the runtime reads delivery reports",
    "enable.idempotence": "the runtime's producers are idempotent, else order and exactly once are lost",
    "partitioner": "a record without a partition goes where Kafka's own partitioner puts its key",
    "request.required.acks": "the runtime waits for all in-sync replicas",
    "transaction.timeout.ms": "set transaction_timeout_ms",
    "transactional.id": "the runtime names its transactions itself",
}
CONTROLLED: Mapping[str, Mapping[str, str]] = {
    "main_consumer": _NOT_OURS | _CONSUMER,
    "restore_consumer": _NOT_OURS
    | _CONSUMER
    | {"isolation.level": "state is restored from committed records only, under every processing_guarantee"},
    "global_consumer": _NOT_OURS
    | _CONSUMER
    | {"isolation.level": "global stores have committed records only, under every processing_guarantee"},
    "producer": _NOT_OURS | _PRODUCER,
    "admin": _NOT_OURS,
}
"""librdkafka's settings that the runtime controls, for each client, with the reason or the key to set instead."""

CONTROLLED_TOPIC = {
    "cleanup.policy": "changelogs are compacted, repartition topics are purged by the runtime",
    "message.timestamp.type": "state and stream time need the timestamps that the runtime writes",
}
TOPIC_SETTINGS = frozenset(
    (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    )
)
"""Topic settings of Kafka that may be given to internal topics."""


def split(name: str) -> tuple[str, str] | None:
    """Split a key such as `consumer_fetch_min_bytes` into its prefix and librdkafka's name: `consumer_` and
    `fetch.min.bytes`. The prefix of security settings is empty. Returns None for a key that isn't passed on."""
    if name == SECURITY[0] or name.startswith(SECURITY[1:]):
        return "", name.replace("_", ".")
    for prefix in PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return prefix, name.removeprefix(prefix).replace("_", ".")
    return None


def why_not(prefix: str, setting: str, value: object) -> str | None:
    """Returns the reason why this setting can't be passed on, or None. librdkafka isn't asked."""
    if isinstance(value, (Mapping, list, tuple)) or value is None:
        return "must be text, a number or a boolean"
    if setting.endswith((".cb", "on.delivery", "on.commit")):
        return "callbacks belong to the runtime"
    if prefix == "topic_":
        return _why_not_of_topic(setting)
    if setting in ("sasl.mechanism", "sasl.mechanisms") and str(value).upper() not in MECHANISMS:
        return f"must be one of {', '.join(MECHANISMS)}: the group member speaks no other"
    if prefix in OWN_CONNECTIONS and (refusal := why_refused(setting)) is not None:
        return refusal
    reasons = (CONTROLLED[client].get(setting) for client in sorted(PREFIXES.get(prefix, ())))
    reason = next((reason for reason in reasons if reason and setting != "isolation.level"), None)
    if setting == "isolation.level" and prefix in ("restore_consumer_", "global_consumer_"):
        reason = CONTROLLED[prefix.removesuffix("_")][setting]
    return f"the runtime controls this setting: {reason}" if reason else None


def _why_not_of_topic(setting: str) -> str | None:
    if setting in CONTROLLED_TOPIC:
        return f"the runtime controls this setting: {CONTROLLED_TOPIC[setting]}"
    if setting in TOPIC_SETTINGS:
        return None
    near = difflib.get_close_matches(setting, TOPIC_SETTINGS, n=1)
    return "no setting of Kafka's topics" + (f"; did you mean topic_{near[0].replace('.', '_')}?" if near else "")


_ABOUT_ONE = ("No such configuration property", "Invalid value", "outside allowed range", "will be ignored", "expected")
"""Texts in librdkafka's errors about a single setting."""


class _Warnings(logging.Handler):
    """Collects librdkafka's warnings while a client is made."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


_CLIENTS: Mapping[str, Any] = {
    "main_consumer": Consumer,
    "restore_consumer": Consumer,
    "global_consumer": Consumer,
    "producer": Producer,
    "admin": AdminClient,
}


def refused_by_client(
    client: str, settings: Mapping[str, Any], given: Mapping[str, tuple[str, object]]
) -> Iterator[ConfigError]:
    """Yields librdkafka's errors about `settings`. To find them, the client is made without brokers, which takes less
    than a millisecond. `given`: the settings that the user has passed, each with its key and value."""
    together = _attempt(client, settings)
    if together is None:
        return
    single = {setting: _attempt_one(client, setting, settings[setting]) for setting in given}
    reasons = {setting: reason for setting, reason in single.items() if reason is not None}
    if not reasons:
        culprit = next((setting for setting in given if f"{setting} " in together), None)
        reasons = {setting: together for setting in given if culprit is None or setting == culprit}
    for setting, reason in reasons.items():
        key, value = given[setting]
        yield ConfigError(key, value, f"librdkafka: {scrubbed(reason, settings)}")


def refused_by_member(
    settings: Mapping[str, Any], given: Mapping[str, tuple[str, object]]
) -> Iterator[ConfigError]:
    """Yields errors about settings that the group member's own connections don't support. `given`: the settings that
    the user has passed, each with its key and value."""
    from milestones.common.kafka.wire_settings import WireSettings  # here, so that a config alone loads no client

    try:
        WireSettings.of(settings).tls_context()
    except ConfigError as error:
        key, _ = given.get(error.key, (error.key.replace(".", "_"), None))
        yield ConfigError(key, error.value, error.reason)


def prefixes_for(setting: str, value: object) -> list[str]:
    """Returns the prefixes with which `setting` would be a key for librdkafka. `setting`: a name with dots."""
    clients = {"consumer_": "main_consumer", "producer_": "producer"}
    if not isinstance(value, (str, int, float)):
        return []
    reasons = {prefix: _attempt_one(client, setting, value) or "" for prefix, client in clients.items()}
    return [prefix for prefix, reason in reasons.items() if "No such" not in reason and "ignored" not in reason]


def _attempt_one(client: str, setting: str, value: object) -> str | None:
    """Returns the reason why librdkafka refuses this setting independently of other settings, or None."""
    reason = _attempt(client, {"group.id": "check", setting: value} if "consumer" in client else {setting: value})
    return reason if reason and any(mark in reason for mark in _ABOUT_ONE) else None


def _attempt(client: str, settings: Mapping[str, Any]) -> str | None:
    """Make a client with these settings. Returns librdkafka's text if it refuses or ignores one of them, or None if it
    accepts all."""
    logger = logging.Logger("milestones.config.check")
    warnings = _Warnings()
    logger.addHandler(warnings)
    try:
        made = _CLIENTS[client]({k: v for k, v in settings.items() if k != "bootstrap.servers"}, logger=logger)
        made.poll(0)
        if isinstance(made, Consumer):
            made.close()
    except (KafkaException, TypeError, ValueError) as error:
        kafka_error = error.args[0] if error.args else error
        text = kafka_error.str() if hasattr(kafka_error, "str") else str(kafka_error)
        return str(text.strip())
    ignored = (m.split("Configuration property ")[1] for m in warnings.messages if "will be ignored by this" in m)
    return next(ignored, None)
