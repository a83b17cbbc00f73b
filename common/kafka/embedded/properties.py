"""The settings of a single Kafka node that starts fast, stays small and answers test traffic at once.

*Guarantees*: pure functions. A caller's own property wins over ours. Nothing but loopback is listened on.
*Assumes*: Kafka 4 in KRaft mode, one node that is broker and controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
NODE_ID = 1
CLIENT_LISTENER = "PLAINTEXT"
CONTROLLER_LISTENER = "CONTROLLER"

# Alone, hence one replica of everything; few partitions of the internal topics make their creation cheap.
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

# Kafka's defaults are for machines that do nothing else: eight I/O threads, 128 MB for the log cleaner.
_SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "group.coordinator.threads": "1",
    "share.coordinator.threads": "1",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}

# What a test would wait for.
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

# When a node that is alone stands still for longer than its session, its own controller ends that: partitions have no
# leader for some milliseconds, and a transaction that completes just then does so without its markers, as with a killed
# broker (see `controller_properties`). So the session is longer than any test makes a broker stand still. A killed
# broker's session isn't waited for: a controller alone ends it.
_PATIENT = {"broker.session.timeout.ms": "30000"}

# Test data have times of their own, such as those of a test driver's clock: what is deleted by age looks like a loss.
_KEEPING = {"log.retention.ms": "-1"}

DELETES_BY_AGE = {
    "log.retention.ms": str(7 * 24 * 3_600_000),
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
}
"""Properties of a broker that deletes by age, and compacts, as one in production, and looks each second in place of
five minutes, or fifteen seconds: what needs its records for longer must have said so when its topic was made."""

# A missing topic is an error in Kafka Streams; a broker that makes it up in passing would hide that.
_STRICT = {"auto.create.topics.enable": "false"}


def server_properties(
    log_dir: Path,
    ports: Mapping[str, int],
    protocols: Mapping[str, str],
    overrides: Mapping[str, str],
    advertised: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """All settings of the node.

    `ports` and `protocols` (security protocols) are by listener name, `CONTROLLER_LISTENER` included in both.
    `advertised`: listener -> the port that clients are told, where it isn't the listener's own.
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
    """Settings of the same node's controller alone, which ends its killed broker's session.

    A broker that is started while the session of its killed self lasts loads the transactions that were about to
    complete, can't reach itself to write their markers, takes their partitions for deleted when the session ends, and
    may complete them without: what was committed then is aborted with the producer's next transaction, or locks its
    partitions for ever (seen with 4.3.1: "likely deleted already and hence can be skipped" in its log).
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
"""The file in a log directory that a broker leaves which wasn't killed."""
FENCED = "handleBrokerFenced: changing"
"""What such a controller logs when it ends a session, just before it writes it down; a clean end waits for that."""
FENCING_S = 30
"""How long that may take: there is nothing to wait for when the broker was killed before its session began."""


def properties_text(properties: Mapping[str, str]) -> str:
    """`properties` in the format of Java's property files."""
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
    """log4j2 settings: one file of at most 20 MB and two older ones (what the JVM itself prints goes elsewhere); None:
    the console."""
    appender = {**(_CONSOLE if log_file is None else _rolling(log_file)), **_LOG_LINES}
    return {
        "status": "error",
        # Else the log ends where the shutdown begins.
        "shutdownHook": "disable",
        "appenders": "one",
        **{f"appender.one.{name}": value for name, value in appender.items()},
        "rootLogger.level": "INFO",
        "rootLogger.appenderRefs": "one",
        "rootLogger.appenderRef.one.ref": appender["name"],
    }
