"""Makes the complete librdkafka settings of each client of the runtime.

*Guarantees*: a user can't override settings that the runtime controls. A user can override all others. If several keys
concern the same setting, the one with the longest prefix wins.
*Assumes*: the user's settings for librdkafka were checked when the config was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milestones.common.config.streams import StreamsConfig
    from milestones.common.kafka.membership.settings import MemberSettings

CONSUMER_DEFAULTS: Mapping[str, Any] = {
    "fetch.queue.backoff.ms": 10,  # 2.4 times the throughput: with librdkafka's 1000 fetching stops after a full queue
    # A new partition is fetched only after the present fetch is over. And only an empty fetch reports the end of a
    # changelog that ends with control records, for which a takeover waits.
    "fetch.wait.max.ms": 100,
    "max.partition.fetch.bytes": 262_144,  # records of one partition before the next partition's in the queue
    "queued.min.messages": 10_000,  # for the whole client; as fast as 100,000
    "queued.max.messages.kbytes": 16_384,  # for the whole client; also limits the bytes of one answer
}
RESTORE_DEFAULTS: Mapping[str, Any] = {
    "max.partition.fetch.bytes": 1_048_576,
    "queued.min.messages": 20_000,  # as fast as 100,000; records of standbys wait behind fewer records of active tasks
    "queued.max.messages.kbytes": 65_536,
}
LARGEST_ANSWER_BYTES, LARGEST_RECORD_BYTES = 52_428_800, 1_000_000
"""The defaults of librdkafka's `fetch.max.bytes` and `message.max.bytes`. librdkafka lowers the first one to the size
of the queue."""
NO_TOPICS: Mapping[str, Any] = {"allow.auto.create.topics": False}
"""The setting with which a client never creates topics, even if the brokers would allow it. Otherwise a changelog that
was deleted would be created empty, with settings that lose state."""
PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "linger.ms": 5,  # as fast as Kafka Streams' 100, with half the latency; 0 costs CPU
    "queue.buffering.max.messages": 100_000,  # 10,000 would halve the throughput
    "queue.buffering.max.kbytes": 131_072,
    "batch.size": 1_000_000,
    **NO_TOPICS,
}
CONSUMER_FIXED: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,  # control records have offsets, too, so the client must report partitions' ends
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
    """Returns the name of the `index`-th stream thread (from 1), as in Kafka Streams. The names of the thread's clients
    begin with it."""
    return f"{client_id}-StreamThread-{index}"


def main_consumer(config: StreamsConfig, name: str) -> dict[str, Any]:
    """Returns the settings of the main consumer of the thread `name`. Under `exactly_once_v2` it reads committed
    records only. Under `at_least_once` the key `consumer_isolation_level` decides; the default is `read_uncommitted`,
    as in Kafka."""
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
    """Returns the settings of the restore consumer of the thread `name`. It always reads committed records only,
    because aborted records must not be restored, even after a change of the processing guarantee."""
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
    """Returns the settings of the consumer of the thread `name` that reads the topics of global stores. They are the
    settings of a restore consumer, overridden by the user's keys `consumer_...` and `global_consumer_...`."""
    return {
        **restore_consumer(config, name),
        **config.passed("consumer_", "global_consumer_"),
        **_common(config, f"{name}-global-consumer"),
        "isolation.level": "read_committed",
        **CONSUMER_FIXED,
    }


def producer(config: StreamsConfig, name: str, transactional_id: str | None = None) -> dict[str, Any]:
    """Returns the settings of the producer of the thread `name`. With a `transactional_id` it is transactional."""
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
    """Returns the settings of the admin client of the instance `name`."""
    return {**NO_TOPICS, **config.security_settings(), **config.passed("admin_"), **_common(config, f"{name}-admin")}


def static_id(config: StreamsConfig, index: int | str) -> str | None:
    """Returns the static id of a group member, or None without `group_instance_id`. `index`: the number of the member's
    thread (from 1), or another word, such as "spark"."""
    return None if config.group_instance_id is None else f"{config.group_instance_id}-{index}"


def member(config: StreamsConfig, name: str, index: int | str) -> MemberSettings:
    """Returns the settings of the group member of the thread `name`. `index`: see `static_id`."""
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
    """Returns the bytes that the queue of the global stores' consumer may have, by its settings (see `queue_bytes`)."""
    return _fetched_bytes(global_consumer(config, name))


def queue_bytes(config: StreamsConfig, name: str) -> int:
    """Returns the bytes that the queues of the Kafka clients of the thread `name` may have, by their settings.
    Compressed records may need more. The memory that a client itself needs per record isn't counted."""
    consumers = main_consumer(config, name), restore_consumer(config, name)
    fetched = sum(_fetched_bytes(settings) for settings in consumers)
    return fetched + 1024 * int(producer(config, name)["queue.buffering.max.kbytes"])


def _fetched_bytes(settings: Mapping[str, Any]) -> int:
    """Returns the largest size of a consumer's queue. It is a full queue plus one answer that arrived just before."""
    queued = 1024 * int(settings["queued.max.messages.kbytes"])
    answer = int(settings.get("fetch.max.bytes", min(queued, LARGEST_ANSWER_BYTES)))
    return queued + max(answer, int(settings.get("message.max.bytes", LARGEST_RECORD_BYTES)))


def _common(config: StreamsConfig, client_id: str) -> dict[str, Any]:
    return {"bootstrap.servers": config.bootstrap_servers, "client.id": client_id}
