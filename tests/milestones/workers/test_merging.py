"""One page of metrics, made of those of all workers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CollectorRegistry as Registry
from prometheus_client.parser import text_string_to_metric_families

from milestones.common.clock import SystemClock
from milestones.common.metrics import Metrics, TaskMetrics
from milestones.common.metrics.export import PrometheusCollector
from milestones.workers.merging import merged

ODD = 'a "quoted"\\ value {with} # all\u2028 of\nit'


def page(value: int) -> str:
    registry = CollectorRegistry()
    Counter("records", "how many", ["task"], registry=registry).labels("0_1").inc(value)
    Gauge("plain", "without labels", registry=registry).set(value)
    Info("state", "a text", registry=registry).info({"value": ODD})
    Histogram("seconds", "of a call", buckets=(1, 2), registry=registry).observe(value)
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def test_a_parser_of_prometheus_reads_each_sample_with_its_worker() -> None:
    found = samples(merged({1: page(1), 2: page(2)}))
    for worker in (1, 2):
        for (name, labels), value in samples(page(worker)).items():
            if not name.startswith("process_") and not name.endswith("_created"):
                assert found[name, tuple(sorted([*labels, ("worker", str(worker))]))] == value
    assert found["state_info", (("value", ODD), ("worker", "2"))] == 1


def test_each_metric_has_its_help_and_type_once_and_all_its_samples_together() -> None:
    text = merged({1: page(1), 2: page(2), 3: page(3)})
    headers = [line for line in text.split("\n") if line.startswith("#")]
    assert len(headers) == len(set(headers))
    families = [family.name for family in text_string_to_metric_families(text)]
    assert len(families) == len(set(families))
    assert {len(f.samples) for f in text_string_to_metric_families(text) if f.name in ("plain", "records")} == {3}


def test_a_worker_that_doesnt_answer_has_no_samples_and_isnt_up() -> None:
    found = samples(merged({1: page(1), 2: None}))
    assert found["milestones_worker_up", (("worker", "1"),)] == 1
    assert found["milestones_worker_up", (("worker", "2"),)] == 0
    assert {dict(labels)["worker"] for name, labels in found if name != "milestones_worker_up"} == {"1"}


def test_metrics_that_only_one_worker_has_are_there() -> None:
    found = samples(merged({1: "# HELP a b\n# TYPE a gauge\na 1.0\n", 2: "# HELP c d\n# TYPE c gauge\nc{} 2.0\n"}))
    assert found["a", (("worker", "1"),)] == 1
    assert found["c", (("worker", "2"),)] == 2


def test_our_own_metrics_can_be_merged() -> None:
    metrics = Metrics(SystemClock())
    scope = metrics.add(TaskMetrics, thread_id="t", task_id="0_1")
    scope.publish(0)
    registry = Registry()
    registry.register(PrometheusCollector(metrics))
    text = generate_latest(registry).decode()
    assert len(samples(merged({1: text, 2: text}))) == 2 * len(samples(text)) + 2
