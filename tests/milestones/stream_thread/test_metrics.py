"""What a stream thread measures of itself: totals that are right, things that take their metrics along."""

from __future__ import annotations

from typing import Any

from milestones.common import serdes
from milestones.common.kafka.membership import JoinNeeded, Lost
from milestones.common.memory import Account
from milestones.common.records import TaskId, TopicPartition
from milestones.common.topology import Processor, StreamsBuilder
from milestones.common.topology.timestamps import log_and_skip_on_invalid_timestamp
from milestones.stream_thread.metrics import Growth
from tests.milestones.fakes import CHANGELOG, IN, Running, World, counting, kafka_error, passing, put


def of(r: Running, group: str, **tags: str) -> dict[str, Any]:
    """The metrics of one thing, published now."""
    r.step(2, ms=1_000)
    wanted = {name.replace("_", "-"): value for name, value in tags.items()}
    entries = r.world.context.metrics.snapshot().get(group, [])
    (metrics,) = [entry["metrics"] for entry in entries if wanted.items() <= entry["tags"].items()]
    return metrics


def things(r: Running, group: str, tag: str) -> set[str]:
    r.step(2, ms=1_000)
    return {entry["tags"][tag] for entry in r.world.context.metrics.snapshot().get(group, [])}


def test_a_thread_counts_records_polls_and_commits() -> None:
    world = World().fed("a", "b", "c")
    put(world, 1, "d")
    r = Running(world).run(0, 1)
    r.step(10)
    thread = of(r, "stream-thread-metrics")
    assert thread["process-total"] == 4
    assert 1 <= thread["process-records-max"] <= 4
    assert thread["poll-total"] > 0
    assert thread["commit-total"] == 1
    assert thread["commit-latency-max"] > 0
    assert (thread["task-created-total"], thread["task-closed-total"]) == (2, 0)
    assert (thread["active-tasks"], thread["restoring-tasks"]) == (2, 0)
    assert thread["thread-state"] == "RUNNING"


def test_each_task_counts_its_own_records_and_those_it_skipped() -> None:
    world = World(counting(timestamp_extractor=log_and_skip_on_invalid_timestamp)).fed("a", "b")
    world.logs[TopicPartition("in", 1)].add("c").add("d", timestamp=-1)
    r = Running(world).run(0, 1)
    r.step(10)
    counts = []
    for id in ("0_0", "0_1"):
        task = of(r, "stream-task-metrics", task_id=id)
        counts.append((task["process-total"], task["dropped-records-total"], task["active-buffer-count"]))
    assert counts == [(2, 0, 0), (2, 1, 0)]


def test_restored_records_and_those_to_go_are_counted() -> None:
    world = World()
    world.logs[TopicPartition(CHANGELOG, 0)].add("1", "2", "3")
    r = Running(world).run(0)
    task = of(r, "stream-task-metrics", task_id="0_0")
    assert (task["restore-total"], task["restore-remaining-records-total"]) == (3, 0)


def test_uncommitted_bytes_are_there_until_the_commit() -> None:
    r = Running(commit_interval_ms=60_000, transaction_timeout_ms=60_000).run(0)
    put(r.world, 0, "a")
    assert of(r, "stream-task-metrics", task_id="0_0")["uncommitted-bytes"] > 0
    r.step(2, ms=60_000)
    assert of(r, "stream-task-metrics", task_id="0_0")["uncommitted-bytes"] == 0


def test_what_is_gone_takes_its_metrics_along() -> None:
    r = Running().run(0, 1)
    assert things(r, "stream-task-metrics", "task-id") == {"0_0", "0_1"}
    assert things(r, "consumer-fetch-manager-metrics", "partition") == {"0", "1"}
    r.rebalance(1)
    assert things(r, "stream-task-metrics", "task-id") == {"0_1"}
    assert things(r, "consumer-fetch-manager-metrics", "partition") == {"1"}
    assert of(r, "stream-thread-metrics")["task-closed-total"] == 1
    r.loop.shut_down(leave_group=True)
    assert r.world.context.metrics.snapshot() == {}


def test_a_thread_that_fails_leaves_no_metrics() -> None:
    r = Running().run(0)
    r.loop.fail(shut_application_down=None)
    assert r.world.context.metrics.snapshot() == {}


def test_a_task_that_comes_back_begins_at_zero() -> None:
    r = Running(World().fed("a", "b")).run(0)
    r.step(5)
    assert of(r, "stream-task-metrics", task_id="0_0")["process-total"] == 2
    r.rebalance()
    r.world.commit(IN, 2)
    r.run(0)
    assert of(r, "stream-task-metrics", task_id="0_0")["process-total"] == 0
    assert of(r, "stream-thread-metrics")["process-total"] == 2


def test_rebalances_are_counted_and_timed_those_that_fail_apart() -> None:
    r = Running()
    r.step(2, ms=1_000)
    assert of(r, "consumer-coordinator-metrics")["last-rebalance-seconds-ago"] == -1
    r.run(0, 1)
    group = of(r, "consumer-coordinator-metrics")
    assert (group["rebalance-total"], group["failed-rebalance-total"], group["assigned-partitions"]) == (1, 0, 2)
    assert group["rebalance-latency-max"] > 0
    assert 0 <= group["last-rebalance-seconds-ago"] < 10
    r.hear(JoinNeeded("a test"), Lost("a test"))
    group = of(r, "consumer-coordinator-metrics")
    assert (group["rebalance-total"], group["failed-rebalance-total"], group["assigned-partitions"]) == (1, 1, 0)


def test_lag_is_what_is_not_processed_yet() -> None:
    r = Running(World(passing())).run(0)
    put(r.world, 0, "a", "b")
    assert of(r, "consumer-fetch-manager-metrics", partition="0")["records-lag"] == 0


def test_a_roll_back_is_counted() -> None:
    r = Running().run(0)
    put(r.world, 0, "a")
    r.world.producer.fail("send_offsets", kafka_error(22, abort=True))
    r.step(5, ms=1_000)
    assert of(r, "stream-thread-metrics")["rolled-back-total"] == 1


def test_each_task_counts_its_own_roll_backs() -> None:
    r = Running().run(0, 1)
    put(r.world, 0, "a")
    r.step(5)
    r.loop._tasks.roll_back({TaskId(0, 1)})
    r.step(5, ms=1_000)
    counts = [of(r, "stream-task-metrics", task_id=f"0_{n}")["rolled-back-total"] for n in (0, 1)]
    assert counts == [0, 1]


def test_time_that_a_client_waited_is_added_up_also_over_a_new_client() -> None:
    r = Running().run(0)
    r.world.producer.blocked_ns = 70
    assert of(r, "stream-thread-metrics")["blocked-time-ns-total"] == 70
    r.world.producer.blocked_ns = 30
    assert of(r, "stream-thread-metrics")["blocked-time-ns-total"] == 100


def test_growth_counts_from_zero_when_an_int_starts_anew() -> None:
    grown = Growth()
    assert [grown.to(now) for now in (5, 5, 9, 2)] == [5, 0, 4, 2]


class Punctuating(Processor):
    def init(self, context: Any) -> None:
        context.schedule(1_000, "wall-clock-time", lambda _: None)
        context.schedule(1, "stream-time", lambda _: None)

    def process(self, record: Any) -> None:
        pass


def test_punctuations_of_both_clocks_are_counted() -> None:
    r = Running(World(counting(processor=Punctuating))).run(0)
    r.feed("a", steps=2)
    r.step(ms=1_000)
    task = r.tasks.processing[TaskId(0, 0)]
    assert of(r, "stream-task-metrics", task_id="0_0")["punctuate-total"] == task.counters.punctuated >= 2
    assert of(r, "stream-thread-metrics")["punctuate-latency-avg"] > 0


def test_a_thread_says_what_its_tasks_hold_once_a_second_and_not_in_between() -> None:
    world = World(settings={"commit_interval_ms": 9_000})
    for partition in (0, 1):
        put(world, partition, "a", "b")
    r = Running(world).run(0, 1)
    said: dict[Account, int] = {}
    world.context.memory.say = said.__setitem__  # type: ignore[method-assign]
    r.step(10)
    assert said == {}
    r.step(ms=1_000)
    uncommitted = sum(task.uncommitted_bytes() for task in r.loop._tasks.processing.values())
    nothing = {Account.INPUT: 0, Account.KEPT_BACK: 0, Account.OUTPUTS: 0}
    assert said == {**nothing, Account.UNCOMMITTED: uncommitted}
    assert uncommitted > 0


def test_what_waits_to_be_processed_and_to_be_sent_is_said_too() -> None:
    r = Running(processing_guarantee="at_least_once").run(0)
    r.feed("a")
    r.world.producer.room = 0
    r.feed("b", "c", steps=3, ms=1_000)
    r.feed("d", steps=3, ms=1_000)
    held = r.world.budget.held()
    assert held[Account.OUTPUTS] > 0
    assert held[Account.INPUT] == r.loop._inputs.buffered_bytes > 0


def test_a_suppressing_node_tells_what_it_keeps_back_and_what_it_has_sent() -> None:
    builder = StreamsBuilder()
    table = builder.stream("in", key=serdes.STRING, value=serdes.STRING).to_table()
    table.suppress(after=5, name="held").to_stream().to("out", key=serdes.STRING, value=serdes.STRING)
    world = World(builder.build())
    world.context.metrics._level = "DEBUG"
    r = Running(world).run(0)
    log = world.logs[TopicPartition("in", 0)]
    for key, timestamp in (("a", 1), ("b", 4), ("c", 7)):
        log.add("x", key=key, timestamp=timestamp)
    r.step(10)
    buffer = of(r, "stream-state-metrics", in_memory_suppression_id="held-store")
    nodes = [node["metrics"] for node in r.world.context.metrics.snapshot()["stream-processor-node-metrics"]]
    assert [node["suppression-emit-total"] for node in nodes if "suppression-emit-total" in node] == [1]
    assert buffer["suppression-buffer-count-max"] == 2
    assert buffer["suppression-buffer-size-max"] > 60
