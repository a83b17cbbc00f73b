"""The housekeeper: questions, purges, a watch over the source topics; driven by hand."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from weakref import WeakSet

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from milestones.common.errors import SourceTopicError, StateError
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.topic_metadata import number_of
from milestones.common.kafka.topics import ALL, Cluster, Described
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition
from milestones.instance.admin_thread import (
    WATCH_INTERVAL_MS,
    AskBounds,
    AskTopicIds,
    Bounds,
    Housekeeper,
    HousekeeperAdmin,
    NewSources,
    Purge,
    TopicIds,
)
from milestones.instance.changelog_trim import STEP_MS, Trim
from milestones.instance.partition_offsets import ALONE_MS, ANSWER_MS
from milestones.testing import until
from tests.common.kafka.fake_cluster import answered
from tests.milestones.fakes import CHANGELOG, IN, A, World, counting, passing


class FakeCluster:
    """Topics `counts` with partitions led by broker 1, but for those of `leaders`. Who asks a broker of `hanging` gets
    no answer."""

    client = None

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"in": 2, CHANGELOG: 2, "unrelated": 9}
        self.ids: dict[str, int] = {}
        self.leaders: dict[TopicPartition, int | None] = {}
        self.hanging: set[int] = set()
        self.error: Exception | None = None
        self.described: list[set[str]] = []
        self.looked: list[set[str] | None] = []
        self.listed: list[tuple[set[TopicPartition], bool, bool]] = []
        self.purged_: list[Mapping[TopicPartition, int]] = []
        self.looked_at_all = 0

    def renew_after(self, exception: Exception) -> None: ...

    def start_looking(self, topics: Any) -> dict[str, Future[dict[str, Described]]]:
        self.looked_at_all += topics is None
        self.looked.append(topics)
        asked = self.counts if topics is None else topics
        found = {name: Described(self.counts[name], self._id(name)) for name in asked if name in self.counts}
        return {ALL: answered(self.error or found)}

    def _id(self, topic: str) -> str:
        return str(Uuid(7, self.ids.get(topic, 1)))

    def close(self) -> None: ...

    def start_describing(self, topics: Any) -> dict[str, Future[Any]]:
        self.described.append(set(topics))
        return {topic: answered(self.error or self._description(topic)) for topic in topics}

    def _description(self, topic: str) -> object:
        if topic not in self.counts:
            return KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        partitions = []
        for number in range(self.counts[topic]):
            leader = self.leaders.get(TopicPartition(topic, number), 1)
            node = None if leader is None else SimpleNamespace(id=leader)
            partitions.append(SimpleNamespace(id=number, leader=node))
        return SimpleNamespace(topic_id=Uuid(7, self.ids.get(topic, 1)), partitions=partitions)

    def start_listing(
        self, partitions: Any, *, end: bool, committed: bool = False
    ) -> dict[TopicPartition, Future[Any]]:
        self.listed.append((set(partitions), end, committed))
        at = {self.leaders.get(partition, 1) for partition in partitions}
        if at & self.hanging:
            return {partition: Future() for partition in partitions}
        return {partition: answered(SimpleNamespace(offset=8 if end else 3)) for partition in partitions}

    def start_searching(self, times: Any, *, committed: bool) -> dict[TopicPartition, Future[Any]]:
        """Records have the times 0 to 7."""
        return {at: answered(SimpleNamespace(offset=time if time < 8 else -1)) for at, time in times.items()}

    def start_purging(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Future[Any]]:
        self.purged_.append(offsets)
        return dict.fromkeys(offsets, answered(None))

    def purged(self, answers: Any) -> None: ...


class Client: ...


class FakeCleaner:
    def __init__(self) -> None:
        self.runs: list[str] = []
        self.error: Exception | None = None
        self.wait_for: threading.Event | None = None

    def __call__(self) -> bool:
        if self.wait_for is not None:
            self.wait_for.wait(20)
        if self.error is not None:
            raise self.error
        self.runs.append("cleaned")
        return False


class Keeping:
    def __init__(self, topology: Any = None, sources: frozenset[str] = frozenset(), **settings: Any) -> None:
        self.world = World(topology or counting(), settings)
        self.cluster, self.cleaner = FakeCluster(), FakeCleaner()
        self.errors: list[Exception] = []
        cleaner: Any = self.cleaner
        self.runs = True
        self.keeper = Housekeeper(
            "keeper", self.world.config, self.world.context.application, cleaner, self.world.clock, self.errors.append,
            lambda: self.runs, sources,
        )  # fmt: skip

    def step(self, request: Any = None, *, ms: int = 0, cleans: bool = True) -> None:
        """`cleans`: a cleaning that has begun ends in this step."""
        self.world.clock.advance(ms)
        cluster: Any = self.cluster
        requests = request if isinstance(request, list) else [] if request is None else [request]
        self.keeper.run_once(cluster, self.world.clock.monotonic_ms(), requests)
        if cleans and self.keeper._cleaning.busy:
            until(lambda: self.keeper._cleaning.returned(20), "it is clean")

    @property
    def admin(self) -> HousekeeperAdmin:
        return HousekeeperAdmin(self.keeper.requests)

    def step_requests(self, *more: Any) -> None:
        """Take what waits in the mailbox, and these requests."""
        self.step([*self.keeper.requests.drain(), *more])

    def look(self) -> list[str]:
        """Look at the topics once more; the errors so far."""
        self.step(ms=WATCH_INTERVAL_MS)
        return [str(error) for error in self.errors]


def ask(committed: bool = False) -> AskBounds:
    return AskBounds(A, frozenset({IN}), Mailbox(5), committed)


@pytest.mark.parametrize("committed", [True, False])
def test_a_question_is_answered_into_the_mailbox_of_whoever_asked(committed: bool) -> None:
    k, question = Keeping(), ask(committed)
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {IN: (3, 8)})]
    assert k.cluster.listed == [({IN}, False, False), ({IN}, True, committed)]


def test_the_ids_of_the_topics_come_along_when_they_are_asked_for() -> None:
    k, question = Keeping(), AskBounds(A, frozenset({IN}), Mailbox(1), topic_ids=True)
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {IN: (3, 8)}, topic_ids={"in": str(Uuid(7, 1))})]


@pytest.mark.parametrize(("time", "offset"), [(5, 5), (7, 7), (8, 8), (900, 8)])
def test_the_first_record_of_a_time_comes_along_or_the_end_where_all_are_older(time: int, offset: int) -> None:
    k, question = Keeping(), AskBounds(A, frozenset({IN}), Mailbox(1), since={IN: time})
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {IN: (3, 8)}, since={IN: offset})]


@pytest.mark.parametrize(
    "error",
    [KafkaException(KafkaError(KafkaError._TIMED_OUT)), KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))],
)
def test_a_question_that_kafka_cannot_answer_is_answered_with_its_error(error: Exception) -> None:
    k, question = Keeping(), ask()
    k.step()
    k.cluster.error = error
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {}, error)]


def test_somebody_who_no_longer_reads_its_answers_stops_nobody() -> None:
    k, question = Keeping(), AskBounds(A, frozenset({IN}), Mailbox(1))
    for _ in range(3):
        k.step(question)
    assert len(question.reply_to.drain()) == 1


def test_a_purge_is_handed_on() -> None:
    k = Keeping()
    k.step(Purge({IN: 7}))
    assert k.cluster.purged_ == [{IN: 7}]


def test_a_changelog_is_trimmed_to_the_first_record_that_its_store_may_need() -> None:
    k = Keeping(windowstore_changelog_additional_retention_ms=STEP_MS)
    k.cluster.start_searching = lambda times, *, committed: {  # type: ignore[method-assign]
        at: answered(SimpleNamespace(offset=time // STEP_MS)) for at, time in times.items()
    }
    log = TopicPartition(CHANGELOG, 0)
    for request in (Trim({log: 9 * STEP_MS + 5}), None, None):
        k.step(request)
    assert k.cluster.purged_ == [{log: 8}]


def test_a_purge_is_answered_by_a_client_that_another_one_has_replaced_meanwhile() -> None:
    """One that is let go never answers: nothing would be purged any more."""
    k, cluster = Keeping(), Cluster({"bootstrap.servers": "127.0.0.1:1"}, request_timeout_ms=500)
    k.runs = False
    k.keeper._next_watch = 1 << 60
    k.keeper.run_once(cluster, 0, [Purge({IN: 7})])
    assert (under_way := k.keeper._purging) is not None
    cluster.renew()
    assert not wait([under_way], 20).not_done
    k.keeper.run_once(cluster, 0, [Purge({IN: 8})])
    assert k.keeper._purging is not under_way


def test_where_partitions_begin_is_told_by_a_client_that_another_one_has_replaced_meanwhile() -> None:
    k, question = Keeping(), ask()
    k.step(ms=WATCH_INTERVAL_MS)
    k.cluster.leaders, k.cluster.hanging = {IN: 5}, {5}
    asked_of = WeakSet[Any]()
    listing = k.cluster.start_listing

    def start_listing(*args: Any, **kwargs: Any) -> Any:
        asked_of.add(k.cluster.client)
        return listing(*args, **kwargs)

    def start_describing(topics: Any) -> Any:
        found = describing(topics)
        k.cluster.client = Client()  # type: ignore[assignment]
        return found

    describing, k.cluster.start_describing = k.cluster.start_describing, start_describing  # type: ignore[method-assign]
    k.cluster.start_listing = start_listing  # type: ignore[method-assign]
    k.step(question)
    k.cluster.client = None
    gc.collect()
    assert len(asked_of) == 1


def test_questions_that_come_together_share_their_requests() -> None:
    """A thousand tasks that start would be minutes of questions one after the other."""
    k = Keeping()
    k.cluster.counts["in"] = 50
    questions = [AskBounds(TaskId(0, n), frozenset({TopicPartition("in", n)}), Mailbox(1)) for n in range(50)]
    k.step(questions)
    assert all(question.reply_to.drain()[0].error is None for question in questions)
    assert len(k.cluster.listed) == 2


def test_questions_wait_for_the_topics_of_earlier_ones_for_a_while_to_be_put_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    k, unknown = Keeping(), Future[Any]()
    monkeypatch.setattr(k.cluster, "start_describing", lambda topics: {"in": unknown})
    k.step(ask())
    monkeypatch.undo()
    later = [ask() for _ in range(3)]
    for question in later:
        k.step(question, ms=100)
    assert not any(question.reply_to.drain() for question in later)
    k.step(ms=ALONE_MS)
    assert all(question.reply_to.drain() for question in later), "one that has no answer holds up nobody for long"
    assert [topics for topics in k.cluster.described if topics == {"in"}] == [{"in"}]


def test_a_leader_that_hangs_holds_up_nobody_elses_questions() -> None:
    k, other = Keeping(), TopicPartition("in", 1)
    k.cluster.leaders, k.cluster.hanging = {IN: 5}, {5}
    stuck, well = ask(), AskBounds(TaskId(0, 1), frozenset({other}), Mailbox(5))
    k.step([stuck, well])
    assert well.reply_to.drain() == [Bounds(TaskId(0, 1), {other: (3, 8)})]
    assert stuck.reply_to.drain() == []
    later = AskBounds(TaskId(0, 1), frozenset({other}), Mailbox(5))
    k.step(later)
    assert later.reply_to.drain()[0].error is None
    k.step(ms=ANSWER_MS)
    (answer,) = stuck.reply_to.drain()
    assert is_passing(answer.error)


def test_a_partition_without_a_leader_is_told_as_such_without_another_request() -> None:
    k, question = Keeping(), ask()
    k.cluster.leaders[IN] = None
    k.step(question)
    assert is_passing(question.reply_to.drain()[0].error)
    assert k.cluster.listed == []


@pytest.mark.parametrize("change", [{"ids": {CHANGELOG: 2}}, {"gone": True}, {"count": 5}])
def test_a_changelog_that_is_deleted_or_made_anew_ends_the_application_before_its_state_is_lost(change: Any) -> None:
    """Where a broker makes topics by itself it would come back empty, and state would go with the next move."""
    k = Keeping()
    assert k.look() == []
    k.cluster.ids |= change.get("ids", {})
    k.cluster.counts[CHANGELOG] = change.get("count", 2)
    if "gone" in change:
        del k.cluster.counts[CHANGELOG]
        assert k.look() == [], "one broker may not know it for a moment"
    assert f"internal topic {CHANGELOG}" in k.look()[0]
    assert isinstance(k.errors[0], SourceTopicError)
    assert "milestones reset" in str(k.errors[0])


def test_nobody_restores_from_a_changelog_that_was_made_anew_between_two_looks() -> None:
    """A thread that has lost its tasks joins again, and the group's leader makes the topics that aren't there."""
    k = Keeping()
    k.step(before := AskBounds(A, frozenset({TopicPartition(CHANGELOG, 0)}), Mailbox(1), topic_ids=True))
    assert before.reply_to.drain()[0].error is None
    k.cluster.ids[CHANGELOG] = 2
    k.step(after := AskBounds(A, frozenset({TopicPartition(CHANGELOG, 0)}), Mailbox(1), topic_ids=True))
    (answer,) = after.reply_to.drain()
    assert isinstance(answer.error, SourceTopicError)
    assert f"internal topic {CHANGELOG} was deleted and made anew" in str(k.errors[0])


def test_a_changelog_that_is_deleted_before_the_first_look_is_missed_once_the_application_runs() -> None:
    k = Keeping()
    del k.cluster.counts[CHANGELOG]
    k.runs = False
    assert k.look() == k.look() == [], "it isn't made yet"
    k.runs = True
    k.look()
    assert f"internal topic {CHANGELOG} was deleted" in k.look()[0]


def test_only_topics_that_are_named_are_looked_at_unless_there_is_a_pattern() -> None:
    k = Keeping()
    k.look()
    assert k.cluster.looked == [{"in", CHANGELOG}]
    assert k.cluster.looked_at_all == 0
    k = Keeping(topology=passing((re.compile("in.*"),)))
    k.look()
    assert k.cluster.looked_at_all == 1


def test_the_first_topic_that_a_pattern_ever_matches_is_news() -> None:
    k = Keeping(passing((re.compile("new.*"),)))
    assert k.look() == []
    k.cluster.counts["new"] = 1
    k.look()
    k.look()
    assert k.errors == [NewSources(frozenset({"new"}))]


def test_a_topic_that_comes_up_after_the_start_and_before_the_first_look_is_news() -> None:
    """The group may have been assigned without it."""
    k = Keeping(passing((re.compile("in.*"),)), sources=frozenset({"in"}))
    k.cluster.counts["in-2"] = 1
    k.look()
    k.look()
    assert k.errors == [NewSources(frozenset({"in-2"}))]


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([2, 3], "source topic in had 2 partitions and has 3 now"),
        ([2, None, None], "source topic in was deleted"),
        ([2, None, 2, None], None),
    ],
    ids=["more partitions", "missed by two looks in a row", "not known to brokers for a moment"],
)
def test_a_source_topic_that_changes_is_an_error_that_says_what_to_do(counts: Any, told: str | None) -> None:
    k = Keeping()
    for count in counts:
        assert k.errors == []
        k.cluster.counts = {CHANGELOG: 2} | ({} if count is None else {"in": count})
        k.look()
    assert [f"{told}" in str(error) and "milestones reset" in str(error) for error in k.errors] == [True] * bool(told)


def test_a_source_topic_that_was_made_anew_between_two_looks_ends_the_application_and_the_error_names_the_way() -> None:
    k = Keeping()
    assert k.look() == []
    k.cluster.ids["in"] = 2
    (told,) = k.look()
    assert "source topic in was deleted and made anew under the running application" in told
    assert "milestones reset --only in --execute" in told
    assert isinstance(k.errors[0], SourceTopicError)


def test_a_topic_of_a_pattern_that_was_made_anew_ends_the_application() -> None:
    k = Keeping(passing((re.compile("in.*"),)), sources=frozenset({"in"}))
    assert k.look() == []
    k.cluster.ids["in"] = 2
    assert ["made anew" in told for told in k.look()] == [True]


def test_nobody_is_told_where_a_source_begins_that_was_made_anew_between_two_looks() -> None:
    """A position out of range isn't the retention's doing then."""
    k = Keeping()
    k.look()
    k.cluster.ids["in"] = 2
    k.step(question := ask())
    (answer,) = question.reply_to.drain()
    assert isinstance(answer.error, SourceTopicError)
    assert "made anew" in str(k.errors[0])


def ask_ids(known: Mapping[TopicPartition, str], *topics: str) -> AskTopicIds:
    numbers = {at: number_of(id) for at, id in known.items()}
    return AskTopicIds(4, frozenset(topics or {"in"}), numbers, Mailbox(1))


FIRST, SECOND = str(Uuid(7, 1)), str(Uuid(7, 2))


@pytest.mark.parametrize("known", [{}, {IN: FIRST}], ids=["nothing is known", "it is the topic that is known"])
def test_a_task_learns_the_id_of_its_topic(known: Mapping[TopicPartition, str]) -> None:
    k, question = Keeping(), ask_ids(known)
    k.step(question)
    assert question.reply_to.drain() == [TopicIds(4, {"in": number_of(FIRST)})]
    assert k.errors == []


@pytest.mark.parametrize(("topic", "way"), [("in", "reset --only in --execute"), (CHANGELOG, "reset the application")])
def test_offsets_of_a_former_topic_end_the_application_before_anything_is_read(topic: str, way: str) -> None:
    k, question = Keeping(), ask_ids({TopicPartition(topic, 0): SECOND}, topic)
    k.step(question)
    (answer,) = question.reply_to.drain()
    assert (answer.ids, answer.error) == ({}, k.errors[0])
    assert f"topic {topic} was deleted and made anew: the committed offsets belong to the former topic" in str(k.errors)
    assert way in str(k.errors[0])


def test_a_topic_that_is_made_anew_after_a_task_has_begun_is_seen_at_the_first_look() -> None:
    k = Keeping()
    k.step(ask_ids({}))
    k.cluster.ids["in"] = 2
    assert ["made anew" in told for told in k.look()] == [True]


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def test_a_question_for_ids_that_has_no_answer_is_answered_by_its_error(code: int) -> None:
    k, question = Keeping(), ask_ids({})
    k.cluster.error = KafkaException(KafkaError(code))
    k.step(question)
    assert question.reply_to.drain()[0].error is k.cluster.error
    assert k.errors == []


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again() -> None:
    k, question = Keeping(), ask_ids({}, "new")
    k.step(question)
    (answer,) = question.reply_to.drain()
    assert "a broker doesn't know the topic new" in str(answer.error)
    assert k.errors == []


def test_questions_for_ids_that_come_together_share_a_request() -> None:
    k = Keeping()
    k.step(cleans=False)
    questions = [ask_ids({}) for _ in range(50)]
    looks = len(k.cluster.looked)
    k.step(questions)
    assert all(question.reply_to.drain() for question in questions)
    assert len(k.cluster.looked) == looks + 1


def test_topics_of_others_may_change() -> None:
    k = Keeping()
    k.look()
    k.cluster.counts = {"in": 2, CHANGELOG: 2, "new": 1}
    assert k.look() == []
    assert k.look() == []


def test_a_cluster_that_does_not_answer_is_looked_at_later() -> None:
    k = Keeping()
    k.look()
    k.cluster.error = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert k.look() == []
    k.cluster.error = None
    k.cluster.counts["in"] = 3
    assert len(k.look()) == 1


def test_topics_are_looked_at_every_few_seconds_only() -> None:
    k = Keeping()
    k.step()
    k.cluster.counts["in"] = 3
    k.step(ms=WATCH_INTERVAL_MS - 1)
    assert k.errors == []
    k.step(ms=1)
    assert len(k.errors) == 1


def test_the_state_directory_is_cleaned_ten_times_per_cleanup_delay_at_most_once_a_second() -> None:
    k = Keeping(state_cleanup_delay_ms=100_000)
    for _ in range(21):
        k.step(ms=1_000)
    assert len(k.cleaner.runs) == 3
    k = Keeping(state_cleanup_delay_ms=0)
    for _ in range(10):
        k.step(ms=500)
    assert len(k.cleaner.runs) == 5


def test_nothing_is_cleaned_away_while_tasks_may_be_about_to_be_opened_or_closed_for_the_end() -> None:
    k = Keeping(state_cleanup_delay_ms=0)
    k.runs = False
    k.step(ms=5_000)
    assert not k.cleaner.runs
    k.runs = True
    k.step()
    assert len(k.cleaner.runs) == 1


def test_a_housekeeper_that_dies_tells_the_client_and_refuses_further_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    k = Keeping()
    monkeypatch.setattr("milestones.instance.admin_thread.Cluster", lambda _: k.cluster)
    error = StateError("the disk is gone")
    monkeypatch.setattr(k.keeper, "run_once", Mock(side_effect=error))
    k.keeper.run()
    assert k.errors == [error]
    with pytest.raises(StateError, match="the disk is gone"):
        k.keeper.requests.put(ask(), timeout_ms=0)


def test_old_state_that_cannot_be_removed_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the removal raises: nothing depends on it."""
    k = Keeping(state_cleanup_delay_ms=10_000)
    k.cleaner.error = OSError("the disk is gone")
    k.step(cleans=False)
    assert k.keeper._cleaning._outcomes.wait(20_000)
    k.step(cleans=False)
    assert "old state can't be removed now" in caplog.text
    k.cleaner.error = None
    k.step(ms=10_000)
    k.keeper._end_cleaning()
    assert k.cleaner.runs == ["cleaned"]
    assert k.errors == []


def test_a_call_of_the_admin_client_is_begun_by_the_housekeeper_and_answered_into_its_future() -> None:
    k = Keeping()
    answers = k.admin.ask(lambda cluster: cluster.start_listing([IN], end=True))
    assert k.cluster.listed == [], "the thread that asks touches no client"
    k.step_requests()
    assert answers.result(0)[IN].result().offset == 8


def test_a_call_that_has_no_answer_holds_up_neither_other_calls_nor_questions_nor_purges() -> None:
    k, open_, question = Keeping(), Future[Any](), ask()
    stuck = k.admin.ask(lambda cluster: {"stuck": open_})
    well = k.admin.ask(lambda cluster: cluster.start_listing([IN], end=True))
    k.step_requests(question, Purge({IN: 7}))
    assert (stuck.done(), well.done()) == (False, True)
    assert question.reply_to.drain()[0].error is None
    assert k.cluster.purged_ == [{IN: 7}]


def test_a_look_at_all_topics_that_has_no_answer_holds_up_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    k, question = Keeping(topology=passing((re.compile("in.*"),))), ask()
    monkeypatch.setattr(k.cluster, "start_looking", lambda topics: {ALL: Future[Any]()})
    k.look()
    k.step(question)
    assert question.reply_to.drain()[0].error is None


def test_a_disk_that_is_slow_with_old_state_holds_up_no_question() -> None:
    k, question, mended = Keeping(state_cleanup_delay_ms=0), ask(), threading.Event()
    k.cleaner.wait_for = mended
    k.step(cleans=False)
    k.step(question, ms=5_000, cleans=False)
    assert question.reply_to.drain()[0].error is None
    mended.set()
    k.step()
    assert len(k.cleaner.runs) == 1, "one at a time"


def test_a_housekeeper_with_too_much_to_do_is_an_error_that_passes() -> None:
    k = Keeping()
    k.keeper.requests = Mailbox(1, "requests")
    k.admin.ask(lambda _: {})
    (error,) = (answers.exception(0) for answers in [k.admin.ask(lambda _: {})])
    assert error is not None
    assert is_passing(error)


def test_calls_that_have_no_answer_when_the_housekeeper_dies_get_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    k, error = Keeping(), StateError("the disk is gone")
    monkeypatch.setattr("milestones.instance.admin_thread.Cluster", lambda _: k.cluster)
    under_way = k.admin.ask(lambda cluster: {"stuck": Future[Any]()})
    k.step_requests()
    waiting = k.admin.ask(lambda cluster: {})

    def die() -> None:
        raise error

    monkeypatch.setattr(k.keeper, "_next_requests", die)
    k.keeper.run()
    assert under_way.exception(0) is waiting.exception(0) is error
    with pytest.raises(StateError):
        k.admin.ask(lambda cluster: {})


def test_state_that_is_being_removed_is_waited_for_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    k, mended = Keeping(), threading.Event()
    monkeypatch.setattr("milestones.instance.admin_thread.Cluster", lambda _: k.cluster)
    k.cleaner.wait_for = mended
    k.step(cleans=False)
    k.keeper.close()
    k.keeper.start()
    k.keeper.join(0.05)
    assert k.keeper.is_alive()
    mended.set()
    k.keeper.join(20)
    assert not k.keeper.is_alive()
    assert len(k.cleaner.runs) == 1


def test_a_housekeeper_ends_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    k = Keeping()
    monkeypatch.setattr("milestones.instance.admin_thread.Cluster", lambda _: k.cluster)
    k.keeper.close()
    k.keeper.run()
    assert k.errors == []
