from __future__ import annotations

from dataclasses import replace

import pytest

from milestones.common.assignment.model import Assignment, Subscription, UserDataError, profile_of
from milestones.common.errors import ConfigError, MembershipError
from milestones.common.kafka.membership import MemberSettings, group_metadata, verify_group_metadata_format
from milestones.common.kafka.membership import metadata as metadata_module
from milestones.common.kafka.membership.protocol import (
    assignment_bytes,
    join_request,
    read_assignment,
    read_subscription,
    subscription_bytes,
)
from milestones.common.records import TaskId, TopicPartition

TASK = TaskId(0, 1)
MINE = Subscription(
    process_id="p",
    stage="m1",
    capacity=2,
    topics=("in", "app-x-repartition"),
    fingerprint="f",
    active=frozenset({TASK}),
    generation=7,
)


def test_kafka_s_own_part_of_a_subscription_names_topics_owned_partitions_and_generation():
    data = subscription_bytes(MINE, [TopicPartition("in", 1), TopicPartition("in", 0)], MINE.version)
    assert data.startswith(b"\x00\x03" + b"\x00\x00\x00\x02" + b"\x00\x11app-x-repartition" + b"\x00\x02in")
    assert data.endswith(b"\x00\x02in" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1" + b"\0\0\0\7" + b"\xff\xff")
    read = read_subscription(data)
    assert read == replace(MINE, topics=("app-x-repartition", "in"), profile=profile_of(MINE))


def test_kafka_s_own_part_of_an_assignment_names_the_partitions_of_active_tasks():
    standby = TaskId(1, 0)
    partitions = {TASK: (TopicPartition("in", 1),), standby: (TopicPartition("other", 0),)}
    given = Assignment(active=frozenset({TASK}), standby=frozenset({standby}), partitions=partitions)
    data = assignment_bytes(given)
    assert data.startswith(b"\x00\x03" + b"\0\0\0\1" + b"\x00\x02in" + b"\0\0\0\1" + b"\0\0\0\1")
    assert read_assignment(data) == given


def test_a_member_that_got_no_bytes_has_no_tasks():
    assert read_assignment(b"") == Assignment()


def test_an_assignment_without_our_user_data_is_another_programs_and_not_one_without_tasks():
    """A broker assigns by itself where a consumer of the newer protocol is in the group."""
    two = b"\x00\x03" + b"\0\0\0\1" + b"\x00\x02in" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1"
    for data, given in ((two + b"\xff\xff\xff\xff", 2), (b"\x00\x03" + b"\0\0\0\0" + b"\0\0\0\0", 0)):
        with pytest.raises(UserDataError, match=rf"another program assigns its partitions \({given} to this member\)"):
            read_assignment(data)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\0\0\0", b"\0\3\0\0", b"\0\3\0\0\0\0\xff\xff\xff\xff\0\0\0\0"])
def test_metadata_of_another_program_is_an_error_not_a_crash(data):
    with pytest.raises(UserDataError):
        read_subscription(data)


def test_a_newer_version_of_kafka_s_format_is_read_as_far_as_known():
    data = subscription_bytes(MINE, [], 1)
    assert read_subscription(b"\x00\x09" + data[2:] + b"more").process_id == "p"


def test_the_group_gets_every_protocol_name_and_a_reason_of_bounded_length():
    settings = MemberSettings(group_id="g", client={}, instance_id="i")
    request = join_request(settings, "m", MINE, [], "why" * 200)
    assert [protocol.name for protocol in request.protocols] == ["milestones-v2", "milestones-v1"]
    assert [read_subscription(protocol.metadata).version for protocol in request.protocols] == [2, 1]
    assert len(request.reason or "") == 255
    assert request.group_instance_id == "i"


def test_group_metadata_has_librdkafka_s_bytes():
    verify_group_metadata_format()
    assert group_metadata("g", 1, "m", None)[:7] == b"CGMDv2:"
    assert group_metadata("g", 1, "m", "i").endswith(b"g\0m\0\0i\0")


def test_group_metadata_without_a_generation_is_never_made():
    for generation, member in ((-1, "m"), (1, "")):
        with pytest.raises(ValueError, match="unfenced"):
            group_metadata("g", generation, member, None)


def test_a_confluent_kafka_with_another_format_is_refused(monkeypatch):
    monkeypatch.setattr(metadata_module, "PREFIX", b"CGMDv3:")
    with pytest.raises(MembershipError, match="confluent-kafka"):
        verify_group_metadata_format.__wrapped__()


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("group_id", {"group_id": "grüppe"}),
        ("group_id", {"group_id": ""}),
        ("instance_id", {"instance_id": "a\0b"}),
        ("heartbeat_interval_ms", {"heartbeat_interval_ms": 30_000}),
        ("max_poll_interval_ms", {"max_poll_interval_ms": 0}),
        ("protocols", {"protocols": {}}),
    ],
)
def test_settings_that_can_t_work_are_refused_by_name(key, change):
    with pytest.raises(ConfigError) as caught:
        MemberSettings(**{"group_id": "g", "client": {}, **change})
    assert caught.value.key == key
