"""Metrics: statistics, publication to other threads, Prometheus."""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics import exposition
from prometheus_client.registry import CollectorRegistry

from milestones.common.errors import ConfigError
from milestones.common.metrics import (
    ClientMetrics,
    GroupMetrics,
    Metrics,
    MetricsEndpoint,
    NodeMetrics,
    PrometheusCollector,
    TaskMetrics,
    ThreadMetrics,
    summed,
)
from milestones.common.metrics.document import markdown
from milestones.common.metrics.scopes import SCOPES
from milestones.testing import StepClock


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def metrics(clock: StepClock) -> Metrics:
    return Metrics(clock, window_ms=10_000)


@pytest.fixture
def thread(metrics: Metrics) -> ThreadMetrics:
    return metrics.add(ThreadMetrics, thread_id="words-StreamThread-1")


def test_a_count_is_published_as_rate_over_the_window_and_total(thread: ThreadMetrics, clock: StepClock) -> None:
    for _ in range(30):
        thread.task_created.total += 2
        clock.sleep_ms(1000)
        thread.publish(clock.monotonic_ms())
    assert thread.published.values["task-created-total"] == 60
    assert thread.published.values["task-created-rate"] == pytest.approx(2.0)
    clock.sleep_ms(20_000)
    thread.publish(clock.monotonic_ms())
    assert thread.published.values["task-created-total"] == 60
    assert thread.published.values["task-created-rate"] == 0


def test_a_timing_has_average_and_longest_per_call_and_its_share_of_the_time(
    thread: ThreadMetrics, clock: StepClock
) -> None:
    thread.process.add(300_000_000, calls=100)
    thread.process.add(20_000_000, calls=1)
    thread.process.add(5, calls=0)
    clock.sleep_ms(1000)
    thread.publish(clock.monotonic_ms())
    values = thread.published.values
    assert values["process-total"] == 101
    assert values["process-rate"] == pytest.approx(101)
    assert values["process-latency-avg"] == pytest.approx(320 / 101)
    assert values["process-latency-max"] == pytest.approx(20)
    assert values["process-ratio"] == pytest.approx(0.32)
    clock.sleep_ms(10_000)
    thread.publish(clock.monotonic_ms())
    assert thread.published.values["process-latency-max"] == 0
    assert thread.published.values["process-latency-avg"] == 0


def test_extremes_are_forgotten_when_they_leave_the_window(thread: ThreadMetrics, clock: StepClock) -> None:
    thread.poll_records.add(500)
    thread.publish(clock.monotonic_ms())
    clock.sleep_ms(6_000)
    thread.poll_records.add(7)
    thread.poll_records.add(9)
    thread.publish(clock.monotonic_ms())
    assert thread.published.values["poll-records-max"] == 500
    clock.sleep_ms(5_000)
    thread.publish(clock.monotonic_ms())
    assert thread.published.values["poll-records-max"] == 9


def test_gauges_are_set_or_read_at_publication(thread: ThreadMetrics, clock: StepClock) -> None:
    thread.active_tasks.read = lambda: 3
    thread.thread_state.value = "RUNNING"
    assert thread.published.values == {}
    thread.publish(clock.monotonic_ms())
    assert (thread.published.values["active-tasks"], thread.published.values["thread-state"]) == (3, "RUNNING")


def test_a_snapshot_is_plain_data_by_group_with_its_age(
    metrics: Metrics, thread: ThreadMetrics, clock: StepClock
) -> None:
    thread.publish(clock.monotonic_ms())
    clock.sleep_ms(700)
    snapshot = json.loads(json.dumps(metrics.snapshot()))
    (entry,) = snapshot["stream-thread-metrics"]
    assert entry["tags"] == {"thread-id": "words-StreamThread-1"}
    assert entry["age_ms"] == 700
    assert entry["metrics"]["commit-total"] == 0


def test_a_metric_can_be_added_up_over_all_that_have_it(metrics: Metrics, clock: StepClock) -> None:
    for number, dropped in enumerate((3, 4)):
        task = metrics.add(TaskMetrics, thread_id="t", task_id=f"0_{number}")
        task.dropped_records.total = dropped
        task.publish(clock.monotonic_ms())
    assert summed(metrics.snapshot(), "stream-task-metrics", "dropped-records-total") == 7
    assert summed(metrics.snapshot(), "no-such-group", "x") == 0


def test_what_is_removed_is_no_longer_shown(metrics: Metrics, thread: ThreadMetrics) -> None:
    metrics.remove(thread)
    metrics.remove(thread)
    assert metrics.snapshot() == {}


def test_debug_metrics_are_published_only_when_wanted(clock: StepClock) -> None:
    for level, shown in (("INFO", False), ("DEBUG", True)):
        metrics = Metrics(clock, level=level)
        node = metrics.add(NodeMetrics, thread_id="t", task_id="0_0", processor_node_id="SINK")
        node.process.total += 5
        node.publish(clock.monotonic_ms())
        assert ("process-total" in node.published.values) is shown
        assert metrics.debug is shown


def test_rebalances_are_counted_per_hour_as_in_kafka(metrics: Metrics, clock: StepClock) -> None:
    group = metrics.add(GroupMetrics, client_id="c")
    group.failed_rebalance.total += 1
    group.rebalance.add(1_000_000)
    clock.sleep_ms(10_000)
    group.publish(clock.monotonic_ms())
    values = group.published.values
    assert values["failed-rebalance-rate-per-hour"] == values["rebalance-rate-per-hour"] == pytest.approx(360)


def test_wrong_tags_are_a_bug_that_shows_at_once(metrics: Metrics) -> None:
    with pytest.raises(TypeError, match="thread-id, task-id"):
        metrics.add(TaskMetrics, thread_id="t")


def test_a_reader_in_another_thread_never_sees_half_a_publication(
    metrics: Metrics, thread: ThreadMetrics, clock: StepClock
) -> None:
    torn: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for entry in metrics.snapshot()["stream-thread-metrics"]:
                values = entry["metrics"]
                if values and values["task-created-total"] != values["task-closed-total"]:
                    torn.append(values)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        thread.task_created.total += 1
        thread.task_closed.total += 1
        thread.publish(clock.monotonic_ms())
    stop.set()
    reader.join()
    assert not torn


def test_prometheus_gets_counters_gauges_and_texts(metrics: Metrics, thread: ThreadMetrics, clock: StepClock) -> None:
    client = metrics.add(ClientMetrics, client_id="words-1")
    client.state.value = 'RUN"NING'
    task = metrics.add(TaskMetrics, thread_id="t", task_id="0_1")
    thread.commit.add(2_000_000)
    for scope in (client, thread, task):
        scope.publish(clock.monotonic_ms())
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(metrics))
    text = exposition.generate_latest(registry).decode()
    assert 'kafka_stream_thread_commit_total{thread_id="words-StreamThread-1"} 1.0' in text
    assert "kafka_stream_thread_commit_latency_max{" in text
    assert 'kafka_stream_state_info{client_id="words-1",value="RUN\\"NING"} 1.0' in text
    assert 'kafka_stream_task_restore_remaining_records{task_id="0_1",thread_id="t"} 0.0' in text.replace(
        '{thread_id="t",task_id="0_1"}', '{task_id="0_1",thread_id="t"}'
    )


def test_the_endpoint_answers_scrapes_and_frees_its_port(
    metrics: Metrics, thread: ThreadMetrics, clock: StepClock
) -> None:
    thread.publish(clock.monotonic_ms())
    endpoint = MetricsEndpoint(metrics, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as answer:
            text = answer.read()
        assert b"kafka_stream_thread_process_total" in text
        if sys.platform == "linux":
            assert b"process_cpu_seconds_total" in text
            assert b"process_resident_memory_bytes" in text
        assert metrics.address == f"127.0.0.1:{endpoint.port}"
        with pytest.raises(ConfigError, match="can't listen"):
            MetricsEndpoint(metrics, "127.0.0.1", endpoint.port)
    finally:
        endpoint.close()
    MetricsEndpoint(metrics, "127.0.0.1", endpoint.port).close()


def test_every_metric_for_prometheus_names_the_application_and_says_what_it_is(
    metrics: Metrics, thread: ThreadMetrics, clock: StepClock
) -> None:
    thread.publish(clock.monotonic_ms())
    metrics.labels = {"application_id": "words"}
    families = {family.name: family for family in PrometheusCollector(metrics).collect()}
    assert all(sample.labels["application_id"] == "words" for one in families.values() for sample in one.samples)
    said = {name: family.documentation for name, family in families.items() if "_commit" in name}
    assert len(set(said.values())) == len(said)
    assert said["kafka_stream_thread_commit_latency_avg"] == "commits that succeeded: the mean time of one, in ms"


class Unwell:
    """A client that isn't ready for a reason of its own."""

    def not_alive(self) -> str | None:
        return None

    def not_ready(self) -> str | None:
        return "REBALANCING"


def asked(endpoint: MetricsEndpoint, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_have_paths_of_their_own_and_any_other_path_is_unknown(metrics: Metrics) -> None:
    endpoint = MetricsEndpoint(metrics, "127.0.0.1", 0, Unwell())
    try:
        assert asked(endpoint, "/livez") == (200, "ok\n")
        assert asked(endpoint, "/readyz") == (503, "REBALANCING\n")
        assert [asked(endpoint, path)[0] for path in ("/health", "/", "/metricsx", "/ready")] == [404] * 4
    finally:
        endpoint.close()


def test_no_two_metrics_share_a_name() -> None:
    metrics = Metrics()
    for kind in SCOPES:
        scope = metrics.add(kind, **{tag.replace("-", "_"): "x" for tag in kind.tag_names})
        names = [name for name, _ in scope.statistics()]
        assert len(names) == len(set(names))


def test_the_documentation_is_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text() == markdown(), "run python -m milestones.common.metrics.document > docs/metrics.md"
