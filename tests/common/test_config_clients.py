"""What the Kafka clients are given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from milestones.common.config import thread_name
from milestones.common.config.keys import OLDER_PROTOCOLS
from milestones.common.kafka.membership.settings import PROTOCOLS
from tests.common.test_config import config, refusal

NAME = thread_name("words-1", 2)


def test_clients_are_named_as_kafka_streams_names_them() -> None:
    words = config()
    names = [
        words.consumer_settings(NAME)["client.id"],
        words.restore_consumer_settings(NAME)["client.id"],
        words.producer_settings(NAME)["client.id"],
        words.admin_settings("words-1")["client.id"],
    ]
    assert names == [
        "words-1-StreamThread-2-consumer",
        "words-1-StreamThread-2-restore-consumer",
        "words-1-StreamThread-2-producer",
        "words-1-admin",
    ]


def test_librdkafka_takes_the_settings_as_they_are() -> None:
    words = config(processing_guarantee="exactly_once_v2", producer_linger_ms=3)
    offline = {"bootstrap.servers": ""}
    for settings in (words.consumer_settings(NAME), words.restore_consumer_settings(NAME)):
        Consumer(settings | offline).close()
    Producer(words.producer_settings(NAME, "words-id") | offline)
    AdminClient(words.admin_settings("words-1") | offline)


def test_input_is_read_committed_under_exactly_once_and_as_wanted_otherwise() -> None:
    level = "isolation.level"
    assert config().consumer_settings(NAME)[level] == "read_uncommitted"
    assert config(consumer_isolation_level="read_committed").consumer_settings(NAME)[level] == "read_committed"
    assert config(processing_guarantee="exactly_once_v2").consumer_settings(NAME)[level] == "read_committed"


def test_state_is_restored_from_committed_records_whatever_the_guarantee() -> None:
    words = config(consumer_isolation_level="read_uncommitted")
    assert words.restore_consumer_settings(NAME)["isolation.level"] == "read_committed"


def test_the_nearest_prefix_wins() -> None:
    words = config(consumer_fetch_min_bytes=1, main_consumer_fetch_min_bytes=2)
    assert words.consumer_settings(NAME)["fetch.min.bytes"] == 2
    assert words.restore_consumer_settings(NAME)["fetch.min.bytes"] == 1


def test_only_a_producer_with_an_id_is_transactional() -> None:
    words = config(transaction_timeout_ms=15_000)
    assert "transactional.id" not in words.producer_settings(NAME)
    settings = words.producer_settings(NAME, "words-a")
    assert (settings["transactional.id"], settings["transaction.timeout.ms"]) == ("words-a", 15_000)
    assert settings["partitioner"] == "murmur2_random"


def test_security_goes_to_every_client_and_to_the_group_member() -> None:
    security = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "me"}
    words = config(**security, sasl_password="x", group_instance_id="one", session_timeout_ms=12_000)
    member = words.member_settings(NAME, 2)
    for settings in (
        words.consumer_settings(NAME),
        words.restore_consumer_settings(NAME),
        words.producer_settings(NAME),
        words.admin_settings("words-1"),
        member.client,
    ):
        assert settings["sasl.mechanism"] == "SCRAM-SHA-256"
    assert (member.group_id, member.instance_id, member.session_timeout_ms) == ("words", "one-2", 12_000)


def test_whoever_has_a_place_in_the_group_has_a_static_id_of_its_own() -> None:
    words = config(group_instance_id="one")
    assert [words.member_settings(NAME, place).instance_id for place in (1, 2, "spark")] == [
        "one-1", "one-2", "one-spark",
    ]  # fmt: skip
    assert config().static_id(1) is None


def test_a_member_offers_every_protocol_or_only_those_up_to_upgrade_from() -> None:
    assert config().member_settings(NAME, 1).protocols == PROTOCOLS
    old = {from_: config(upgrade_from=from_).member_settings(NAME, 1).protocols for from_ in OLDER_PROTOCOLS}
    newest = next(iter(PROTOCOLS)).removeprefix("milestones-")
    assert {f"milestones-{from_}" for from_ in old} | {f"milestones-{newest}"} == set(PROTOCOLS)
    assert old["v1"] == {"milestones-v1": 1}


def test_an_unknown_version_to_upgrade_from_is_refused_with_those_there_are() -> None:
    assert "must be one of v1" in str(refusal(upgrade_from="2.8"))


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("consumer_fetch_min_byte", 1, "No such configuration property"),
        ("consumer_fetch_min_bytes", "x", "Invalid value"),
        ("consumer_linger_ms", 1, "producer property"),
        ("producer_linger_ms", -1, "outside allowed range"),
        ("producer_max_in_flight", 6, "<= 5"),
        ("admin_nonsense", "x", "No such configuration property"),
        ("ssl_ca_location", "/no/such/file", "ssl.ca.location failed|librdkafka"),
        ("consumer_fetch_min_bytes", {"a": 1}, "must be text"),
        ("consumer_fetch_min_bytes", None, "must be text"),
        ("consumer_group_id", "x", "application_id"),
        ("main_consumer_enable_auto_commit", "true", "runtime commits"),
        ("consumer_auto_offset_reset", "latest", "set auto_offset_reset"),
        ("consumer_session_timeout_ms", 1, "set session_timeout_ms"),
        ("restore_consumer_isolation_level", "read_uncommitted", "committed records only"),
        ("producer_transactional_id", "x", "names its transactions"),
        ("producer_partitioner", "random", "partitioner"),
        ("producer_error_cb", print, "callbacks"),
        ("sasl_mechanism", "OAUTHBEARER", "SCRAM-SHA-256"),
        ("topic_cleanup_policy", "delete", "compacted"),
        ("topic_segment_byte", 1, "topic_segment_bytes"),
    ],
)
def test_a_client_setting_that_cannot_be_passed_on_is_refused_by_its_key(key: str, value: object, why: str) -> None:
    extra = {"security_protocol": "ssl"} if key.startswith("ssl") else {}
    error = refusal(**{key: value}, **extra)
    assert error.key == key
    assert re.search(why, error.reason), error.reason


def test_security_that_the_group_member_does_not_support_is_refused_at_once(tmp_path: Path) -> None:
    security = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "me"}
    error = refusal(**security, sasl_password="x", sasl_oauthbearer_method="default")
    assert error.key == "sasl_oauthbearer_method"


def test_topic_settings_are_text_under_kafkas_names() -> None:
    words = config(topic_segment_bytes=1000, topic_preallocate=True)
    assert words.topic_settings() == {"segment.bytes": "1000", "preallocate": "true"}
