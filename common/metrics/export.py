"""Metrics for Prometheus: a collector, and an HTTP endpoint.

A metric `process-total` of `stream-thread-metrics` is called `kafka_stream_thread_process_total`, its tags are labels.
Text (a state, a version) is the label `value` of a metric that is always 1.

*Guarantees*: a scrape reads what was published, see `registry`.
*Assumes*: `prometheus_client`.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from milestones.common.errors import ConfigError
from milestones.common.metrics.registry import Metrics
from milestones.common.metrics.scopes import SCOPES, Scope, metric_name
from milestones.common.metrics.sensors import Statistic


class PrometheusCollector(Collector):
    """Gives a client's metrics to a `prometheus_client` registry: `registry.register(PrometheusCollector(metrics))`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for scope in self._metrics.scopes():
            _add(families, scope)
        return iter(families.values())


def prometheus_name(group: str, name: str) -> str:
    """The name without the suffix that counters and texts get."""
    return f"kafka_{group.removesuffix('-metrics')}_{name}".replace("-", "_").removesuffix("_total")


_DOCS = {(kind.group, metric_name(row.name)): row.doc for kind in SCOPES for row in kind.rows.values()}


def _doc(group: str, name: str) -> str:
    rows = (name[:end] for end in range(len(name), 0, -1))
    return next((_DOCS[group, row] for row in rows if (group, row) in _DOCS), name)


_FAMILIES: dict[Statistic, tuple[type[CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily], str]] = {
    "counter": (CounterMetricFamily, "_total"),
    "gauge": (GaugeMetricFamily, ""),
    "text": (InfoMetricFamily, "_info"),
}
"""The family of each kind of metric, and what its name gets appended."""


def exported_name(group: str, name: str, kind: Statistic) -> str:
    """The name under which Prometheus finds it."""
    return prometheus_name(group, name) + _FAMILIES[kind][1]


def _add(families: dict[str, Metric], scope: Scope) -> None:
    values = scope.published.values
    names = [tag.replace("-", "_") for tag in scope.tags]
    labelled = dict(zip(names, scope.tags.values(), strict=True))
    for name, kind in scope.statistics():
        if name not in values:
            continue
        full, value = prometheus_name(scope.group, name), values[name]
        family_type, suffix = _FAMILIES[kind]
        family = families.get(full)
        if family is None:
            family = families[full] = family_type(full, _doc(scope.group, name), labels=names)
        if kind == "text":
            family.add_sample(full + suffix, {**labelled, "value": str(value)}, 1)
        else:
            family.add_sample(full + suffix, labelled, float(value))


class MetricsEndpoint:
    """An HTTP server that answers Prometheus' scrapes, on a thread of its own.

    *Owns*: the listening socket. *Receives*: HTTP requests. *Sends*: what was published.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Listens at once; port 0 takes a free one. `ConfigError` when the port can't be had."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(PrometheusCollector(metrics))
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except (OSError, OverflowError) as error:
            reason = f"can't listen on {host}: {error}; choose another, or 0 for a free one"
            raise ConfigError("metrics_port", port, reason) from error
        self.host, self.port = host, int(self._server.server_port)
        metrics.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def close(self) -> None:
        """Stop answering, free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
