"""Checks combinations of values: one function per combination that can't work.

*Guarantees*: a rule yields an error for each key whose value it refuses, and changes nothing.
*Assumes*: each single value was checked before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from milestones.common.assignment.machines import given_tags
from milestones.common.errors import ConfigError
from milestones.common.kafka.sasl import MECHANISMS

if TYPE_CHECKING:
    from milestones.common.config.streams import StreamsConfig

MAX_TAGS, MAX_TAG_NAME, MAX_TAG_VALUE = 5, 20, 30
"""Kafka Streams' limits of tags. There are limits because the group's metadata contains the tags."""


def heartbeats_within_the_session(config: StreamsConfig) -> Iterator[ConfigError]:
    if config.heartbeat_interval_ms * 2 > config.session_timeout_ms:
        reason = f"must be at most half of session_timeout_ms ({config.session_timeout_ms}), better a third"
        yield ConfigError("heartbeat_interval_ms", config.heartbeat_interval_ms, reason)


def polls_within_the_poll_interval(config: StreamsConfig) -> Iterator[ConfigError]:
    if config.poll_ms >= config.max_poll_interval_ms:
        reason = f"must be less than max_poll_interval_ms ({config.max_poll_interval_ms}), else an idle thread leaves"
        yield ConfigError("poll_ms", config.poll_ms, reason)


def commits_within_the_transaction(config: StreamsConfig) -> Iterator[ConfigError]:
    if config.exactly_once and config.transaction_timeout_ms < config.commit_interval_ms:
        reason = (
            f"must be at least commit_interval_ms ({config.commit_interval_ms}) under exactly_once_v2, "
            "else the broker aborts each transaction before its commit"
        )
        yield ConfigError("transaction_timeout_ms", config.transaction_timeout_ms, reason)


def input_is_committed_under_exactly_once(config: StreamsConfig) -> Iterator[ConfigError]:
    for prefix in ("consumer_", "main_consumer_"):
        level = config.passed(prefix).get("isolation.level")
        if config.exactly_once and level is not None:
            reason = "the runtime controls this setting: exactly_once_v2 reads committed input only"
            yield ConfigError(f"{prefix}isolation_level", level, reason)


def sasl_names_its_mechanism(config: StreamsConfig) -> Iterator[ConfigError]:
    security = config.security_settings()
    protocol = str(security.get("security.protocol", ""))
    if protocol.lower().startswith("sasl") and not security.keys() & {"sasl.mechanism", "sasl.mechanisms"}:
        reason = f"needs sasl_mechanism, one of {', '.join(MECHANISMS)}"
        yield ConfigError("security_protocol", protocol, reason)


def replicas_exist(config: StreamsConfig) -> Iterator[ConfigError]:
    if config.replication_factor == 0:
        yield ConfigError("replication_factor", 0, "must be at least 1, or -1 for the brokers' default")


def tags_fit(config: StreamsConfig) -> Iterator[ConfigError]:
    tags = given_tags(config.client_tags)
    long = [n for n, v in tags.items() if len(n) > MAX_TAG_NAME or len(v) > MAX_TAG_VALUE]
    if len(tags) > MAX_TAGS or long:
        reason = f"at most {MAX_TAGS} tags, names up to {MAX_TAG_NAME} and values up to {MAX_TAG_VALUE} characters"
        yield ConfigError("client_tags", tags, reason)
    missing = [name for name in config.rack_aware_assignment_tags if name not in tags]
    if missing:
        reason = f"client_tags has no value for {', '.join(missing)}"
        yield ConfigError("rack_aware_assignment_tags", config.rack_aware_assignment_tags, reason)


def dead_letters_leave_the_application(config: StreamsConfig) -> Iterator[ConfigError]:
    topic = config.errors_dead_letter_queue_topic_name
    internal = topic is not None and topic.startswith(f"{config.application_id}-")
    if internal and topic is not None and topic.endswith(("-changelog", "-repartition")):
        yield ConfigError("errors_dead_letter_queue_topic_name", topic, "is the name of an internal topic")


RULES: tuple[Callable[[StreamsConfig], Iterator[ConfigError]], ...] = (
    heartbeats_within_the_session,
    polls_within_the_poll_interval,
    commits_within_the_transaction,
    input_is_committed_under_exactly_once,
    sasl_names_its_mechanism,
    replicas_exist,
    tags_fit,
    dead_letters_leave_the_application,
)
