from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common.assignment.model import (
    MIN_VERSION,
    Assignment,
    AssignmentOrigin,
    Subscription,
    UserDataError,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    profile_of,
)
from milestones.common.records import TaskId, TopicPartition

TASKS = st.builds(TaskId, st.integers(0, 20), st.integers(0, 300))
NAMES = st.text(min_size=1, max_size=8)


@given(
    st.builds(
        Subscription,
        process_id=NAMES,
        stage=NAMES,
        capacity=st.integers(1, 64),
        topics=st.just(("a", "b")),
        fingerprint=NAMES,
        instance_id=st.none() | NAMES,
        active=st.frozensets(TASKS),
        standby=st.frozensets(TASKS),
        promised=st.frozensets(TASKS),
        positions=st.dictionaries(TASKS, st.integers(0, 1 << 60)),
        lags=st.dictionaries(TASKS, st.integers(0, 1 << 60)),
        reason=st.text(max_size=20),
        endpoint=st.none() | NAMES,
        client_tags=st.dictionaries(NAMES, NAMES),
        generation=st.just(4),
    )
)
def test_a_subscription_survives_its_encoding(subscription):
    read = decode_subscription(encode_subscription(subscription), ("a", "b"), 4)
    assert read == replace(subscription, profile=profile_of(subscription))


@given(st.frozensets(TASKS), st.frozensets(TASKS), st.frozensets(TASKS), st.booleans(), st.none() | NAMES)
def test_an_assignment_survives_its_encoding(active, standby, warmup, followup, text):
    partitions = {task: (TopicPartition("a", task.partition), TopicPartition("b", task.partition)) for task in active}
    assignment = Assignment(active, standby, warmup, partitions, followup, text, text, promised=warmup)
    assignment = replace(assignment, origin=text and AssignmentOrigin(3, text, 1_000))
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_version_1_is_written_as_it_always_was_and_read_without_what_it_does_not_know():
    task = TaskId(0, 1)
    mine = Subscription(
        process_id="p", stage="m1", capacity=2, topics=(), fingerprint="f", active=frozenset({task}),
        positions={task: 7}, promised=frozenset({task}), reason="started", endpoint="host:1",
    )  # fmt: skip
    data = encode_subscription(mine, 1)
    assert orjson.loads(data) == {
        "v": 1, "process": "p", "stage": "m1", "capacity": 2, "topology": "f", "profile": profile_of(mine),
        "active": {"0": [1]},
    }  # fmt: skip
    read = decode_subscription(data, ())
    assert (read.version, read.active, read.positions, read.reason) == (1, {task}, {}, "")


@pytest.mark.parametrize("version", [0, 3])
def test_a_version_that_this_code_does_not_know_cannot_be_written(version):
    with pytest.raises(ValueError, match="only 1 to 2"):
        encode_subscription(Subscription("p", "m1", 1, (), "f"), version)


def test_no_bytes_are_an_empty_assignment():
    assert decode_assignment(b"") == Assignment()


def test_user_data_of_a_newer_version_is_read_as_far_as_it_is_known():
    data = {
        "v": 99, "process": "p", "stage": "m9", "capacity": 2, "topology": "f", "hologram": [1], "active": {"0": [1]},
    }  # fmt: skip
    read = decode_subscription(orjson.dumps(data), ("in",))
    assert (read.version, read.stage, read.active) == (99, "m9", frozenset({TaskId(0, 1)}))


def test_user_data_below_the_oldest_known_version_names_the_way_out():
    with pytest.raises(UserDataError, match="a release between the two"):
        decode_subscription(orjson.dumps({"v": MIN_VERSION - 1}), ())


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b"{}", b'{"v":1}', b'{"v":"x"}', b'{"v":1,"process":1}'])
def test_other_programs_user_data_is_an_error_not_a_guess(data):
    with pytest.raises(UserDataError):
        decode_subscription(data, ())


def test_garbled_assignments_are_an_error():
    with pytest.raises(UserDataError, match="garbled"):
        decode_assignment(b'{"v":1,"active":[1]}')


def test_a_thousand_tasks_take_a_few_kilobytes():
    tasks = frozenset(TaskId(sub, number) for sub in range(5) for number in range(200))
    partitions = {task: (TopicPartition(f"some-long-topic-name-{task.subtopology}", task.partition),) for task in tasks}
    assert len(encode_assignment(Assignment(active=tasks, partitions=partitions))) < 10_000


def test_the_profile_is_what_a_member_is_not_what_it_has():
    base = {"process_id": "p", "stage": "m1", "capacity": 1, "topics": ("b", "a"), "fingerprint": "f"}
    one = Subscription(**base)
    assert profile_of(one) == profile_of(
        Subscription(**{**base, "topics": ("a", "b")}, active=frozenset({TaskId(0, 0)}))
    )
    assert profile_of(one) != profile_of(Subscription(**{**base, "capacity": 2}))


def test_a_member_without_threads_is_refused():
    with pytest.raises(ValueError, match="capacity"):
        encode_subscription(Subscription(process_id="p", stage="m1", capacity=0, topics=(), fingerprint="f"))
