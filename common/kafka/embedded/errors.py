"""The errors of the embedded broker.

*Guarantees*: every message names what failed, where, and what to do about it.
*Assumes*: nothing.
"""

from __future__ import annotations

from milestones.common.errors import MilestonesError


class EmbeddedKafkaError(MilestonesError):
    """The embedded broker can't be had: base of the errors below."""

    exit_code = 3


class JavaNotFoundError(EmbeddedKafkaError):
    """No Java runtime that is new enough."""


class JarsError(EmbeddedKafkaError):
    """Kafka's jars could not be downloaded or kept."""


class PortTakenError(EmbeddedKafkaError):
    """The port asked for belongs to another process."""


class DataDirInUseError(EmbeddedKafkaError):
    """Another broker runs on the data directory."""


class BrokerDiedError(EmbeddedKafkaError):
    """The broker ended by itself, or never answered; the message ends with the tail of its log."""
