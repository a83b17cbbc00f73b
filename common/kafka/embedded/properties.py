"""Makes the settings of a single Kafka node for tests: it starts fast, needs little memory, and answers fast.

*Guarantees*: the functions change nothing. A property given by the caller replaces the one made here. The node listens
on the loopback interface only.
*Assumes*: Kafka 4 in KRaft mode, with one node that is broker and controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
NODE_ID = 1
CLIENT_LISTENER = "PLAINTEXT"
CONTROLLER_LISTENER = "CONTROLLER"

# With one node there can be one replica only. Internal topics have few partitions, so that they are created fast.
_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

# Kafka's defaults are made for machines that run only Kafka: eight I/O threads, 128 MB for the log cleaner.
_SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "group.coordinator.threads": "1",
    "share.coordinator.threads": "1",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}

# Shorter times than Kafka's defaults, because tests would have to wait for them.
_IMPATIENT = {
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "7000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "controlled.shutdown.max.retries": "1",
}

# If the node is paused for longer than its session, its own controller ends the session. Then partitions have no leader
# for some milliseconds. A transaction that completes in this time gets no markers, as after a kill (see
# `controller_properties`). So the session is longer than any pause in a test. After a kill nobody waits for the end of
# this long session, because a controller alone ends it.
_PATIENT = {"broker.session.timeout.ms": "30000"}

# Test records may have old timestamps. If the broker deleted them by age, tests would take that for data loss.
_KEEPING = {"log.retention.ms": "-1"}

DELETES_BY_AGE = {
    "log.retention.ms": str(7 * 24 * 3_600_000),
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
}
"""Properties of a broker that deletes records by age and compacts topics, as in production. It does so every second,
not every five minutes or fifteen seconds. With it a test shows if an internal topic was created with the settings that
keep its records."""

# In Kafka Streams a missing topic is an error. A broker that creates missing topics would hide the error.
_STRICT = {"auto.create.topics.enable": "false"}


def server_properties(
    log_dir: Path,
    ports: Mapping[str, int],
    protocols: Mapping[str, str],
    overrides: Mapping[str, str],
    advertised: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Returns all settings of the node.

    `ports` and `protocols`: the port and the security protocol of each listener, including `CONTROLLER_LISTENER`.
    `advertised`: for a listener, the port that the broker names to clients, if this isn't the listener's own port.
    """
    addresses = {name: f"{name}://{HOST}:{port}" for name, port in ports.items()}
    told = {name: f"{name}://{HOST}:{port}" for name, port in {**ports, **(advertised or {})}.items()}
    clients = [address for name, address in told.items() if name != CONTROLLER_LISTENER]
    return {
        **_SINGLE_NODE,
        **_SMALL,
        **_IMPATIENT,
        **_PATIENT,
        **_KEEPING,
        **_STRICT,
        "log.dirs": str(log_dir),
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(clients),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": CLIENT_LISTENER,
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{ports[CONTROLLER_LISTENER]}",
        **overrides,
    }


_OF_THE_NODE = (
    "node.id",
    "log.dirs",
    "controller.listener.names",
    "controller.quorum.voters",
    "listener.security.protocol.map",
)


def controller_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns settings with which the same node runs as a controller only, to end the session of its killed broker.

    Without this, a broker that is restarted within the session of the killed one may lose transactions. It loads the
    transactions that were about to complete, but can't reach itself to write their markers. When the session ends, it
    believes that their partitions were deleted, and completes the transactions without markers. Then the committed
    records are aborted together with the producer's next transaction, or lock their partitions for ever. This was seen
    with Kafka 4.3.1, whose log says "likely deleted already and hence can be skipped".
    """
    controller = properties["controller.listener.names"]
    (address,) = (one for one in properties["listeners"].split(",") if one.startswith(f"{controller}://"))
    return {
        **{name: properties[name] for name in _OF_THE_NODE},
        "process.roles": "controller",
        "listeners": address,
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "500",
    }


CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
"""The file that a broker writes into its log directory at a clean shutdown."""
FENCED = "handleBrokerFenced: changing"
"""The text that the controller logs when it ends a session, just before it stores the change. A clean shutdown of the
controller waits until the change is stored."""
FENCING_S = 30
"""The longest wait for the end of a session. If the broker was killed before its session began, no end comes."""


def properties_text(properties: Mapping[str, str]) -> str:
    """Returns `properties` in the format of Java's property files."""
    return "".join(f"{_escape(key, ' :=')}={_escape(value)}\n" for key, value in properties.items())


def _escape(text: str, also: str = "") -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    for character in also:
        escaped = escaped.replace(character, "\\" + character)
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    return "".join(c if c.isascii() else _java_escape(c) for c in escaped)


def _java_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


_LOG_LINES = {
    "layout.type": "PatternLayout",
    "layout.pattern": "%d %p %m (%c{1})%n",
}

_CONSOLE = {"type": "Console", "name": "CONSOLE"}


def _rolling(log_file: Path) -> dict[str, str]:
    return {
        "type": "RollingFile",
        "name": "FILE",
        "fileName": str(log_file),
        "filePattern": f"{log_file}.%i",
        "policies.type": "Policies",
        "policies.size.type": "SizeBasedTriggeringPolicy",
        "policies.size.size": "20MB",
        "strategy.type": "DefaultRolloverStrategy",
        "strategy.max": "2",
    }


def logging_properties(log_file: Path | None) -> dict[str, str]:
    """Returns settings of log4j2. With a `log_file`, Kafka logs to this file, and keeps at most 20 MB in it and two
    older files. With None, Kafka logs to the console."""
    appender = {**(_CONSOLE if log_file is None else _rolling(log_file)), **_LOG_LINES}
    return {
        "status": "error",
        # Otherwise log4j2 would stop before Kafka has logged its shutdown.
        "shutdownHook": "disable",
        "appenders": "one",
        **{f"appender.one.{name}": value for name, value in appender.items()},
        "rootLogger.level": "INFO",
        "rootLogger.appenderRefs": "one",
        "rootLogger.appenderRef.one.ref": appender["name"],
    }
