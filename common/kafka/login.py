"""Tries one login to Kafka before librdkafka's clients log in, because they repeat a refused login for ever.

*Guarantees*: a refused login raises `SecurityError` after one try. If no broker can be reached, no error is raised.
*Assumes*: one owner thread. The settings are those of a client, with confluent-kafka's names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kio.schema.metadata.v9 import MetadataRequest, MetadataResponse

from milestones.common.errors import ConfigError
from milestones.common.kafka.wire import ConnectionLostError, Connector
from milestones.common.kafka.wire_security import is_about_security
from milestones.common.kafka.wire_settings import Address, WireSettings

WITHIN_MS = 2_000
"""The longest time of a login, shared by all bootstrap servers that are tried."""

_ANY_ANSWER = MetadataRequest(
    topics=(),
    allow_auto_topic_creation=False,
    include_cluster_authorized_operations=False,
    include_topic_authorized_operations=False,
)


def log_in(*clients: Mapping[str, Any]) -> None:
    """Log in once with each different set of credentials in `clients`. The first client is left out, because its login
    has succeeded before. Raises `SecurityError` if Kafka refuses."""
    known: list[dict[str, Any]] = []
    for settings in clients:
        credentials = {name: value for name, value in settings.items() if is_about_security(name)}
        if known and credentials not in known:
            Login(settings).look()
        known.append(credentials)


class Login:
    """Logs in with the settings of a client until one login has succeeded. With empty settings it does nothing.
    `problem`: the reason why a server that was reached couldn't serve the login, or None."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.problem: str | None = None
        self._settings: WireSettings | None = None
        with suppress(ConfigError):  # a setting that librdkafka supports, but the runtime's own connections don't
            self._settings = WireSettings.of(settings) if settings else None

    @property
    def can_be_refused(self) -> bool:
        """True if the settings have credentials or TLS. Then this login must be tried before librdkafka's clients."""
        settings = self._settings
        return settings is not None and (settings.tls is not None or settings.sasl is not None)

    def look(self) -> None:
        """Log in, unless a login has succeeded before. Raises `SecurityError` if Kafka refuses."""
        settings = self._settings
        if settings is None:
            return
        deadline = time.monotonic() + WITHIN_MS / 1000
        for tried, address in enumerate(settings.bootstrap):
            left_ms = int((deadline - time.monotonic()) * 1000)
            share_ms = left_ms // (len(settings.bootstrap) - tried)  # a silent server leaves time for the others
            if share_ms > 0 and self._at(address, settings, share_ms):
                self._settings, self.problem = None, None
                return

    def _at(self, address: Address, settings: WireSettings, timeout_ms: int) -> bool:
        within = replace(settings, connect_timeout_ms=min(timeout_ms, settings.connect_timeout_ms))
        try:
            connection = Connector(within)(address)
        except ConnectionLostError as error:
            if error.connected:
                self._note(error, settings)
            return False
        try:
            # If the listener requires a login and the settings have none, it closes the connection at this request.
            connection.call(_ANY_ANSWER, MetadataResponse, timeout_ms)
        except ConnectionLostError as error:
            self._note(error, settings)
            return False
        finally:
            connection.close()
        return True

    def _note(self, error: ConnectionLostError, settings: WireSettings) -> None:
        self.problem = f"{error}; is security_protocol={settings.protocol} right for this listener?"
