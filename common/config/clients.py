"""Complete librdkafka settings for each client of the runtime.

*Guarantees*: settings that the runtime controls can't be overridden; all others can, by the key with the nearest
prefix.
*Assumes*: the pass-through settings were checked when the config was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milestones.common.config.streams import StreamsConfig
    from milestones.common.kafka.membership.settings import MemberSettings

CONSUMER_DEFAULTS: Mapping[str, Any] = {
    "fetch.queue.backoff.ms": 10,  # librdkafka's 1000 stalls the fetch after a full queue: 2.4 times the throughput
    # A partition is first fetched, or is fetched again, when the fetch under way is over. Of a changelog, an end after
    # control records is told by an empty fetch only: a takeover waits for it.
    "fetch.wait.max.ms": 100,
    "max.partition.fetch.bytes": 262_144,  # what comes of one partition before the next one's records in the one queue
    "queued.min.messages": 10_000,  # of the client, whatever its partitions; as fast as 100,000
    "queued.max.messages.kbytes": 16_384,  # likewise; the most bytes of an answer, too
}
RESTORE_DEFAULTS: Mapping[str, Any] = {
    "max.partition.fetch.bytes": 1_048_576,
    "queued.min.messages": 20_000,  # as fast as 100,000, and standbys' records wait behind fewer of active tasks'
    "queued.max.messages.kbytes": 65_536,
}
LARGEST_ANSWER_BYTES, LARGEST_RECORD_BYTES = 52_428_800, 1_000_000
"""librdkafka's `fetch.max.bytes`, which it brings down to what the queue may hold, and `message.max.bytes`."""
NO_TOPICS: Mapping[str, Any] = {"allow.auto.create.topics": False}
"""A client that names a topic doesn't make it, whatever brokers allow: a changelog that was deleted would come back
empty, with settings under which it loses state."""
PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "linger.ms": 5,  # as fast as Kafka Streams' 100, at half the latency; 0 costs CPU
    "queue.buffering.max.messages": 100_000,  # 10,000 would halve the rate
    "queue.buffering.max.kbytes": 131_072,
    "batch.size": 1_000_000,
    **NO_TOPICS,
}
CONSUMER_FIXED: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,  # positions go past control records, so ends must be told
    "auto.offset.reset": "error",
    **NO_TOPICS,
}
"""The settings that an `AssignedConsumer` needs."""
PRODUCER_FIXED: Mapping[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
}


def thread_name(client_id: str, index: int) -> str:
    """The name of the `index`-th stream thread (from 1), as Kafka Streams gives it; its clients' names begin so."""
    return f"{client_id}-StreamThread-{index}"


def main_consumer(config: StreamsConfig, name: str) -> dict[str, Any]:
    """Settings of the main consumer of the thread `name`. Input is read committed under exactly once, else as
    `consumer_isolation_level` says (read uncommitted, as Kafka's consumer does by default)."""
    isolation = "read_committed" if config.exactly_once else "read_uncommitted"
    return {
        **CONSUMER_DEFAULTS,
        "isolation.level": isolation,
        **config.security_settings(),
        **config.passed("consumer_", "main_consumer_"),
        **_common(config, f"{name}-consumer"),
        "group.id": config.application_id,
        **CONSUMER_FIXED,
    }


def restore_consumer(config: StreamsConfig, name: str) -> dict[str, Any]:
    """Settings of the restore consumer of the thread `name`. The consumer always reads committed records only: aborted
    ones must not come back, even after a change of the processing guarantee."""
    return {
        **CONSUMER_DEFAULTS,
        **RESTORE_DEFAULTS,
        **config.security_settings(),
        **config.passed("consumer_", "restore_consumer_"),
        **_common(config, f"{name}-restore-consumer"),
        "group.id": config.application_id,
        "isolation.level": "read_committed",
        **CONSUMER_FIXED,
    }


def global_consumer(config: StreamsConfig, name: str) -> dict[str, Any]:
    """Settings of the consumer of the thread `name` that follows the topics of global stores: those of a restore
    consumer, without the user's."""
    return {
        **restore_consumer(config, name),
        **config.passed("consumer_", "global_consumer_"),
        **_common(config, f"{name}-global-consumer"),
        "isolation.level": "read_committed",
        **CONSUMER_FIXED,
    }


def producer(config: StreamsConfig, name: str, transactional_id: str | None = None) -> dict[str, Any]:
    """Settings of the producer of the thread `name`; transactional when an id is given."""
    transactions: dict[str, Any] = {}
    if transactional_id is not None:
        transactions = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": config.transaction_timeout_ms,
        }
    return {
        **PRODUCER_DEFAULTS,
        **config.security_settings(),
        **config.passed("producer_"),
        **_common(config, f"{name}-producer"),
        **PRODUCER_FIXED,
        **transactions,
    }


def admin(config: StreamsConfig, name: str) -> dict[str, Any]:
    """Settings of the admin client of the client `name`."""
    return {**NO_TOPICS, **config.security_settings(), **config.passed("admin_"), **_common(config, f"{name}-admin")}


def static_id(config: StreamsConfig, index: int | str) -> str | None:
    """The static id of the member with this place in the group: a thread's number (from 1), or another word, such as
    "spark". None for a dynamic member."""
    return None if config.group_instance_id is None else f"{config.group_instance_id}-{index}"


def member(config: StreamsConfig, name: str, index: int | str) -> MemberSettings:
    """Settings of the group member of the thread `name`. `index`: as in `static_id`."""
    from milestones.common.kafka.membership.settings import (
        PROTOCOLS,
        MemberSettings,  # here, so that a config alone loads no client
    )

    newest = config.upgrade_from
    most = max(PROTOCOLS.values()) if newest is None else PROTOCOLS[f"milestones-{newest}"]
    return MemberSettings(
        group_id=config.application_id,
        client=main_consumer(config, name),
        instance_id=static_id(config, index),
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        protocols={name: version for name, version in PROTOCOLS.items() if version <= most},
    )


def global_queue_bytes(config: StreamsConfig, name: str) -> int:
    """The bytes that the consumer of global stores' topics may hold, by its settings: see `queue_bytes`."""
    return _fetched_bytes(global_consumer(config, name))


def queue_bytes(config: StreamsConfig, name: str) -> int:
    """The bytes that the Kafka clients of the thread `name` may hold, by their settings: without what compressed
    records grow by, and without the clients' own memory of each record."""
    consumers = main_consumer(config, name), restore_consumer(config, name)
    fetched = sum(_fetched_bytes(settings) for settings in consumers)
    return fetched + 1024 * int(producer(config, name)["queue.buffering.max.kbytes"])


def _fetched_bytes(settings: Mapping[str, Any]) -> int:
    """A full queue, and an answer that came while it was nearly full."""
    queued = 1024 * int(settings["queued.max.messages.kbytes"])
    answer = int(settings.get("fetch.max.bytes", min(queued, LARGEST_ANSWER_BYTES)))
    return queued + max(answer, int(settings.get("message.max.bytes", LARGEST_RECORD_BYTES)))


def _common(config: StreamsConfig, client_id: str) -> dict[str, Any]:
    return {"bootstrap.servers": config.bootstrap_servers, "client.id": client_id}
