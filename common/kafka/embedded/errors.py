"""Defines the errors of the embedded broker.

*Guarantees*: every message says what failed, where, and what the user can do.
*Assumes*: nothing.
"""

from __future__ import annotations

from milestones.common.errors import MilestonesError


class EmbeddedKafkaError(MilestonesError):
    """The embedded broker can't be started or used. Base class of the errors below."""

    exit_code = 3


class JavaNotFoundError(EmbeddedKafkaError):
    """No Java runtime was found that is new enough."""


class JarsError(EmbeddedKafkaError):
    """Kafka's jars couldn't be downloaded, or couldn't be stored in the cache."""


class PortTakenError(EmbeddedKafkaError):
    """Another process uses the requested port."""


class DataDirInUseError(EmbeddedKafkaError):
    """Another running broker uses the data directory."""


class BrokerDiedError(EmbeddedKafkaError):
    """The broker ended by itself, or never answered. The message ends with the last lines of its log."""
