"""`MemberSettings`: the settings of a group member.

*Guarantees*: the constructor raises `ConfigError` for a value that can't work.
*Assumes*: `client` has confluent-kafka's names and values. Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from milestones.common.errors import ConfigError

PROTOCOL_TYPE = "consumer"
PROTOCOLS: Mapping[str, int] = {"milestones-v2": 2, "milestones-v1": 1}
"""The names of the protocols that this code speaks, newest first, each with its version of the user data."""


@dataclass(frozen=True)
class MemberSettings:
    """The settings of one member. `group_id`: the group, in Kafka Streams the application id.

    `client`: connection and security settings, with confluent-kafka's names. `instance_id`: the id for static
    membership (KIP-345), different for each live member of the group. `max_poll_interval_ms`: also the time that the
    group waits for this member in a rebalance. `protocols`: the offered protocols, newest first, each with its version
    of the user data. All members must offer one common protocol. `unreachable_after_ms`: if no broker answers for this
    time after the start, the member fails. Later the member waits for Kafka without a limit.
    """

    group_id: str
    client: Mapping[str, object] = field(repr=False)
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    unreachable_after_ms: int = 60_000
    protocols: Mapping[str, int] = field(default_factory=lambda: PROTOCOLS)

    def __post_init__(self) -> None:
        for key, name in (("group_id", self.group_id), ("instance_id", self.instance_id)):
            # librdkafka refuses other names in the group metadata of a transaction.
            if name is not None and not (name.isascii() and name.isprintable() and name):
                raise ConfigError(key, name, "must be printable ASCII, at least one character")
        for key in ("heartbeat_interval_ms", "max_poll_interval_ms", "retry_backoff_ms", "unreachable_after_ms"):
            if getattr(self, key) < 1:
                raise ConfigError(key, getattr(self, key), "must be at least 1")
        if self.heartbeat_interval_ms * 2 > self.session_timeout_ms:
            reason = f"must be at most half of session_timeout_ms ({self.session_timeout_ms}), better a third"
            raise ConfigError("heartbeat_interval_ms", self.heartbeat_interval_ms, reason)
        if not self.protocols:
            raise ConfigError("protocols", self.protocols, "name at least one")

    @property
    def request_timeout_ms(self) -> int:
        """The longest time of one short request. It is a third of the session timeout, so that a second try is in
        time."""
        return max(self.session_timeout_ms // 3, 1)
