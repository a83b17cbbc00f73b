"""`StreamsConfig`: the settings of an application, with Kafka Streams' names in snake case (`docs/configuration.md`).

*Guarantees*: a `StreamsConfig` is immutable. All its values, and their combinations, were checked.
*Assumes*: nothing.
"""

from __future__ import annotations

from milestones.common.config.clients import thread_name
from milestones.common.config.key import ConfigErrors, ConfigKey
from milestones.common.config.keys import AT_LEAST_ONCE, EXACTLY_ONCE_V2, KEYS
from milestones.common.config.streams import StreamsConfig

__all__ = ["AT_LEAST_ONCE", "EXACTLY_ONCE_V2", "KEYS", "ConfigErrors", "ConfigKey", "StreamsConfig", "thread_name"]
