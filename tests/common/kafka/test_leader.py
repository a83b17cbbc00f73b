"""What the elected leader answers, by a cluster in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.assignment.model import AssignmentOrigin, Subscription
from milestones.common.assignment.rules import Placement
from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.admin import STEP_MS
from milestones.common.kafka.leader import PATIENCE_MS, SECOND_LOOK_MS, TopologyLeader
from milestones.common.kafka.wire import ConnectionLostError
from milestones.common.records import TaskId, TopicPartition
from tests.common.kafka.fake_cluster import FakeCluster
from tests.milestones.fakes import World, counting, passing

ORIGIN = AssignmentOrigin(7, "one", 1_000)


class Leading:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, topology: Any = None, **settings: Any) -> None:
        self.world, self.cluster = World(topology or counting(), settings), FakeCluster()
        self.cluster.counts["in"] = 3
        self.leader = TopologyLeader(
            self.world.config, self.world.context.application.subtopologies, "leader", self.cluster.admin,
            self.world.clock,
        )  # fmt: skip

    def member(self, **fields: Any) -> Subscription:
        application = self.world.context.application
        return Subscription(
            process_id="p", stage="baseline", capacity=1, topics=application.source_topics,
            fingerprint=application.fingerprint, **fields,
        )  # fmt: skip

    def assign(self, **members: Subscription) -> Any:
        return self.assign_to(members or {"one": self.member()})

    def assign_to(self, members: Mapping[str, Subscription]) -> Any:
        """All steps at once."""
        steps = self.leader.assign(members, ORIGIN)
        while True:
            try:
                next(steps)
                self.world.clock.advance(STEP_MS)
            except StopIteration as done:
                return done.value


@pytest.fixture
def leading(monkeypatch: pytest.MonkeyPatch) -> Leading:
    return Leading(monkeypatch)


def test_all_tasks_are_assigned_once(leading: Leading) -> None:
    given = leading.assign(one=leading.member(), two=leading.member())
    assert sorted(task for assignment in given.values() for task in assignment.active) == [
        TaskId(0, partition) for partition in range(3)
    ]


def test_changelogs_are_created_as_kafka_streams_makes_them(leading: Leading) -> None:
    leading.assign()
    (topic,) = leading.cluster.created.values()
    assert (topic.name, topic.partitions, topic.settings["cleanup.policy"]) == ("app-counts-changelog", 3, "compact")


def test_a_changelog_that_is_made_beside_one_that_nobody_reads_is_told(
    leading: Leading, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as that of a Java application, whose store has another name."""
    leading.cluster.counts |= {"app-KSTREAM-AGGREGATE-STATE-STORE-0000000001-changelog": 3, "app-in": 3, "another-x": 1}
    leading.assign()
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "made app-counts-changelog, which begin empty" in said
    assert "while no operator reads app-KSTREAM-AGGREGATE-STATE-STORE-0000000001-changelog" in said
    assert "compare `describe()`" in said


def test_nothing_is_told_of_other_topics_when_none_is_made_or_when_there_are_none(
    leading: Leading, caplog: pytest.LogCaptureFixture
) -> None:
    leading.assign()
    leading.cluster.counts["app-old-changelog"] = 3
    leading.assign()
    assert "begin empty" not in caplog.text


def test_topic_settings_of_the_config_go_to_internal_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(monkeypatch, topic_segment_bytes=1_000_000)
    leading.assign()
    assert str(leading.cluster.created["app-counts-changelog"].settings["segment.bytes"]) == "1000000"


def test_a_missing_source_topic_is_told_to_every_member_by_its_name(leading: Leading) -> None:
    leading.cluster.counts = {}
    given = leading.assign(one=leading.member(), two=leading.member())
    assert all("in" in str(assignment.error) and not assignment.active for assignment in given.values())
    assert not any(assignment.shutdown for assignment in given.values())
    assert leading.cluster.created == {}


def test_one_members_wish_shuts_all_members_down_without_a_look_at_the_cluster(leading: Leading) -> None:
    leading.cluster.error = KafkaException(KafkaError(KafkaError._TRANSPORT))
    given = leading.assign(one=leading.member(), two=leading.member(shutdown="thread 7 died"))
    assert {(a.error, a.shutdown) for a in given.values()} == {("thread 7 died", True)}


def test_a_cluster_that_does_not_answer_for_a_minute_makes_the_member_join_again(leading: Leading) -> None:
    leading.cluster.error = KafkaException(KafkaError(KafkaError._TRANSPORT))
    began_ms = leading.world.clock.monotonic_ms()
    with pytest.raises(ConnectionLostError):
        leading.assign()
    assert PATIENCE_MS < leading.world.clock.monotonic_ms() - began_ms < PATIENCE_MS + 5_000


def test_each_look_without_an_answer_is_followed_by_one_of_another_client_that_may_take_longer(
    leading: Leading,
) -> None:
    """A broker that stands still is left soon, and a large cluster has its time."""
    leading.cluster.looks = [KafkaException(KafkaError(KafkaError._TIMED_OUT)) for _ in range(5)]
    assert len(leading.assign()["one"].active) == 3
    assert leading.cluster.timeouts_ms[:6] == [2_000, 4_000, 8_000, 10_000, 10_000, 10_000]
    assert leading.cluster.renewed == 5


def test_a_cluster_that_refuses_is_an_error_with_its_reason_not_a_bug(leading: Leading) -> None:
    leading.cluster.error = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(MilestonesError, match="CLUSTER_AUTHORIZATION_FAILED") as raised:
        leading.assign()
    assert not isinstance(raised.value, ConnectionLostError)


def test_an_internal_topic_of_another_shape_is_the_errors_own(leading: Leading) -> None:
    leading.cluster.counts["app-counts-changelog"] = 2
    with pytest.raises(SourceTopicError, match="internal topic app-counts-changelog has 2 partitions"):
        leading.assign()


CHANGELOG = [TopicPartition("app-counts-changelog", partition) for partition in range(3)]
FIRST = TaskId(0, 0)


def taking_over(leading: Leading, **settings: Any) -> dict[str, Subscription]:
    """`old` runs all three tasks, `new` has a standby of the first one at position 95,000."""
    leading.assign()
    all_ = frozenset(TaskId(0, partition) for partition in range(3))
    old = leading.member(active=all_)
    return {"old": old, "new": replace(old, process_id="q", active=frozenset(), **settings)}


def test_positions_become_lags_by_the_ends_of_all_changelogs_asked_at_once(leading: Leading) -> None:
    members = taking_over(leading, standby=frozenset({FIRST}), positions={FIRST: 95_000})
    leading.cluster.ends = dict.fromkeys(CHANGELOG, 100_000)
    given = leading.assign_to(members)
    assert sorted(leading.cluster.asked) == CHANGELOG
    assert given["new"].promised == {FIRST}, "5,000 records behind are caught up"
    assert not given["new"].warmup


def test_a_lag_above_the_configured_one_makes_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(monkeypatch, acceptable_recovery_lag=4_999)
    members = taking_over(leading, standby=frozenset({FIRST}), positions={FIRST: 95_000})
    leading.cluster.ends = dict.fromkeys(CHANGELOG, 100_000)
    given = leading.assign_to(members)
    assert given["new"].warmup == {FIRST}
    assert len(given["old"].active) == 3


def test_tasks_stay_where_they_are_when_it_is_not_known_where_changelogs_end(leading: Leading) -> None:
    members = taking_over(leading)
    given = leading.assign_to(members)
    assert given["old"].active == members["old"].active
    assert not given["old"].followup


def test_changelogs_that_were_just_made_are_empty_and_not_asked_for(leading: Leading) -> None:
    given = leading.assign(one=leading.member(), two=replace(leading.member(), process_id="q"))
    assert leading.cluster.asked == []
    assert sorted(len(a.active) for a in given.values()) == [1, 2]


def test_standbys_follow_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(monkeypatch, num_standby_replicas=1)
    given = leading.assign(one=leading.member(), two=replace(leading.member(), process_id="q"))
    assert given["one"].standby == given["two"].active


def test_a_group_that_speaks_version_1_is_assigned_without_warm_ups(leading: Leading) -> None:
    members = taking_over(leading)
    leading.cluster.ends = dict.fromkeys(CHANGELOG, 100_000)
    given = leading.assign_to({name: replace(m, version=1) for name, m in members.items()})
    assert len(given["new"].promised) == 1
    assert not given["new"].warmup


def all_to_the_last(members: Any, plan: Any, rules: Any) -> Placement:
    return Placement(active={max(members): plan.tasks.keys()})


def test_the_users_own_assignor_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(monkeypatch, task_assignor=all_to_the_last)
    given = leading.assign(one=leading.member(), two=leading.member())
    assert [len(given[name].active) for name in ("one", "two")] == [0, 3]


def test_each_rebalance_is_one_line_of_json_in_the_log(leading: Leading, caplog: pytest.LogCaptureFixture) -> None:
    members = taking_over(leading, reason="warm-up 0_0 has caught up", positions={FIRST: 95_000})
    caplog.set_level("INFO", "milestones.common.kafka.leader")
    leading.cluster.ends = dict.fromkeys(CHANGELOG, 100_000)
    leading.assign_to(members)
    (line,) = [text for text in caplog.messages if text.startswith("rebalance: ")]
    told = orjson.loads(line.removeprefix("rebalance: "))
    assert (told["group"], told["generation"], told["followup"]) == ("app", 7, True)
    assert told["moves"] == [{"task": "0_0", "from": "old", "to": "new", "is": "withheld"}]
    assert told["why"] == {"not said": ["old"], "warm-up 0_0 has caught up": ["new"]}


def test_assignments_say_who_made_them_and_when_but_not_to_members_of_version_1(leading: Leading) -> None:
    assert leading.assign()["one"].origin == ORIGIN
    assert leading.assign(one=replace(leading.member(), version=1))["one"].origin is None


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER])
def test_a_request_for_internal_topics_that_fails_in_passing_is_made_again(leading: Leading, code: int) -> None:
    """While the controller moves no member may end: the next one that is elected would meet the same."""
    leading.cluster.refusals = [code] * 3
    assert len(leading.assign()["one"].active) == 3
    assert set(leading.cluster.created) == {"app-counts-changelog"}


def test_internal_topics_that_cannot_be_made_for_long_make_the_member_join_again(leading: Leading) -> None:
    leading.cluster.refusals = [KafkaError.NOT_CONTROLLER] * 1_000
    with pytest.raises(ConnectionLostError, match="NOT_CONTROLLER"):
        leading.assign()


def test_internal_topics_that_may_not_be_made_are_an_error_that_says_what_to_check(leading: Leading) -> None:
    leading.cluster.refusals = [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(MilestonesError, match=r"can't create internal topic app-counts-changelog.*rights") as raised:
        leading.assign()
    assert not isinstance(raised.value, ConnectionLostError)


def test_a_topic_that_one_look_misses_is_looked_for_again(leading: Leading) -> None:
    """A broker that has just started may not know it yet."""
    leading.cluster.looks = [{}]
    began_ms = leading.world.clock.monotonic_ms()
    assert len(leading.assign()["one"].active) == 3
    assert leading.world.clock.monotonic_ms() - began_ms >= SECOND_LOOK_MS
    assert leading.cluster.renewed == 1, "perhaps another broker knows it"


def test_a_topic_of_a_pattern_that_a_member_has_seen_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member asked for this rebalance because of it, and won't again."""
    leading = Leading(monkeypatch, passing((re.compile("in.*"),)))
    leading.cluster.looks = [{"in": 1}]
    leading.cluster.counts = {"in": 1, "in-2": 3}
    given = leading.assign(one=replace(leading.member(), topics=("in", "in-2")))
    assert len(given["one"].active) == 3


def test_tasks_that_somebody_has_are_taken_from_him_after_a_second_look_only(leading: Leading) -> None:
    leading.cluster.looks = [{"in": 2}]
    given = leading.assign(one=leading.member(active=frozenset(TaskId(0, partition) for partition in range(3))))
    assert len(given["one"].active) == 3
