"""`misfit` and `too_tight`: check an existing internal topic, which a user, a broker or another version may have made.

*Guarantees*: only settings that would lose records are refused. The error contains the command that corrects them.
Limits are raised, never lowered.
*Assumes*: the settings are those in effect, with Kafka's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from milestones.common.kafka.internal_topics import ANY_TIME

if TYPE_CHECKING:
    from milestones.common.kafka.internal_topics import InternalTopic

POLICY = "cleanup.policy"
UNLIMITED = "-1"
LIMITS = ("retention.ms", "retention.bytes", *ANY_TIME)
"""Settings with a limit beyond which brokers delete or refuse records."""
LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
"""Settings of the age, by the broker's clock, at which brokers compact records away."""


def misfit(topic: InternalTopic, actual: Mapping[str, str]) -> str | None:
    """Returns the reason why a topic with the settings `actual` would lose records that the application needs. Returns
    None if nothing would be lost. Settings that the application itself configures aren't checked."""
    wanted, found = _policies(topic.settings), _policies(actual)
    if not found or not wanted or found == wanted:
        return None
    if "compact" in found and "compact" not in wanted:
        return _told(topic, actual, "records of one key would replace each other before they are processed")
    deletes = any(actual.get(limit, UNLIMITED) != UNLIMITED for limit in LIMITS[:2])
    if "delete" in found and "delete" not in wanted and deletes:
        return _told(topic, actual, "state that is older than its retention would be lost")
    return None


def too_tight(topic: InternalTopic, actual: Mapping[str, str]) -> dict[str, str]:
    """Returns the limits in `actual` that are too low, with the values that the application needs. Limits of age and
    size count only if the topic's cleanup policy deletes records."""
    limits = (*(LIMITS if "delete" in _policies(actual) else ANY_TIME), *LAGS)
    return {
        limit: topic.settings[limit]
        for limit in limits
        if limit in topic.settings and limit in actual and _lower(actual[limit], topic.settings[limit])
    }


def _lower(actual: str, wanted: str) -> bool:
    """True if the limit `actual` is lower than the limit `wanted`. -1 means no limit."""
    return actual != UNLIMITED and (wanted == UNLIMITED or int(actual) < int(wanted))


def kept_tight(topic: str, changes: Mapping[str, str], reason: object) -> str:
    """Returns the warning that Kafka refused to change these settings of the topic."""
    told = ",".join(f"{name}={value}" for name, value in changes.items())
    return (
        f"internal topic {topic} needs {told}, but can't be changed ({reason}): its brokers delete records by age "
        "or size, compact them away, or refuse their times, even if the application still needs them. After a crash or "
        "a move, rows may be missing. Give this principal the right ALTER_CONFIGS on the topic, or set it yourself: "
        "kafka-configs.sh "
        f"--alter --entity-type topics --entity-name {topic} --add-config {told}"
    )


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
