"""`misfit`: checks an internal topic that was made by hand, or by a broker.

*Guarantees*: only settings that would lose records are refused, with the command that mends them.
*Assumes*: settings are those in effect, by Kafka's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.kafka.topics import InternalTopic

POLICY = "cleanup.policy"
UNLIMITED = "-1"


def misfit(topic: InternalTopic, actual: Mapping[str, str]) -> str | None:
    """Why the topic, with these settings, loses records that the application needs; None when it doesn't. Settings from
    the application's own configuration aren't checked."""
    wanted, found = _policies(topic.settings), _policies(actual)
    if not found or not wanted or found == wanted:
        return None
    if "compact" in found and "compact" not in wanted:
        return _told(topic, actual, "records of one key would replace each other before they are processed")
    deletes = any(actual.get(limit, UNLIMITED) != UNLIMITED for limit in ("retention.ms", "retention.bytes"))
    if "delete" in found and "delete" not in wanted and deletes:
        return _told(topic, actual, "state that is older than its retention would be lost")
    return None


def _policies(settings: Mapping[str, str]) -> frozenset[str]:
    return frozenset(policy for policy in str(settings.get(POLICY, "")).replace(" ", "").split(",") if policy)


def _told(topic: InternalTopic, actual: Mapping[str, str], harm: str) -> str:
    wanted = topic.settings[POLICY]
    return (
        f"internal topic {topic.name} has {POLICY}={actual[POLICY]}, the application needs {wanted}: {harm}. It was "
        "made by hand, or by a broker with auto.create.topics.enable. Where nothing is lost yet: kafka-configs.sh "
        f"--alter --entity-type topics --entity-name {topic.name} --add-config {POLICY}=[{wanted}]; else reset the "
        "application (`milestones reset`)"
    )
