"""Exports metrics for Prometheus: a collector, and an HTTP endpoint. The endpoint also answers the liveness and
readiness probes.

A metric `process-total` of `stream-thread-metrics` is exported as `kafka_stream_thread_process_total`. The tags of a
metric become labels. Text (a state, a version) becomes the label `value` of a metric that is always 1.

*Guarantees*: a scrape reads only what was published (see `registry.py`).
*Assumes*: `prometheus_client` is installed.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from socketserver import ThreadingMixIn
from typing import Any, Final, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import orjson
from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from milestones.common.errors import ConfigError
from milestones.common.last_words import report
from milestones.common.metrics.registry import Metrics
from milestones.common.metrics.scopes import SCOPES, Scope, metric_name
from milestones.common.metrics.sensors import Statistic

log: Final = logging.getLogger(__name__)

AGAIN_S = 1.0
"""The pause (s) before a server that has failed starts once more."""


class PrometheusCollector(Collector):
    """Adds a client's metrics to a `prometheus_client` registry: `registry.register(PrometheusCollector(metrics))`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for scope in self._metrics.scopes():
            _add(families, scope, self._metrics.labels)
        return iter(families.values())


def prometheus_name(group: str, name: str) -> str:
    """Return Prometheus' name of a metric, without the suffix that counters and texts get."""
    return f"kafka_{group.removesuffix('-metrics')}_{name}".replace("-", "_").removesuffix("_total")


_DOCS = {(kind.group, metric_name(row.name)): row.doc for kind in SCOPES for row in kind.rows.values()}


def meaning(group: str, name: str) -> str:
    """Return the meaning of a metric: the meaning of its row in the table, and the kind of statistic."""
    rows = (name[:end] for end in range(len(name), 0, -1))
    row = next((row for row in rows if (group, row) in _DOCS), None)
    if row is None:
        return name
    doc, _, unit = _DOCS[group, row].partition("; latencies in ")
    what = _STATISTICS.get(name.removeprefix(row), "")
    return doc + what.format(unit=unit)


_STATISTICS = {
    "-rate": ", per second",
    "-rate-per-hour": ", per hour",
    "-total": ", since the start",
    "-ratio": ": the part of the time that they took, 0 to 1",
    "-latency-avg": ": the mean time of one, in {unit}",
    "-latency-max": ": the longest time of one, in {unit}",
    "-avg": ": the mean",
    "-max": ": the most",
}
"""The HELP text of a statistic, by its suffix."""


_FAMILIES: dict[Statistic, tuple[type[CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily], str]] = {
    "counter": (CounterMetricFamily, "_total"),
    "gauge": (GaugeMetricFamily, ""),
    "text": (InfoMetricFamily, "_info"),
}
"""The family of each kind of metric, and the suffix that its name gets."""


def exported_name(group: str, name: str, kind: Statistic) -> str:
    """Return the whole name of a metric in Prometheus."""
    return prometheus_name(group, name) + _FAMILIES[kind][1]


def _add(families: dict[str, Metric], scope: Scope, labels: Mapping[str, str]) -> None:
    values = scope.published.values
    labelled = {**labels, **{tag.replace("-", "_"): value for tag, value in scope.tags.items()}}
    names = list(labelled)
    for name, kind in scope.statistics():
        if name not in values:
            continue
        full, value = prometheus_name(scope.group, name), values[name]
        family_type, suffix = _FAMILIES[kind]
        family = families.get(full)
        if family is None:
            family = families[full] = family_type(full, meaning(scope.group, name), labels=names)
        if kind == "text":
            family.add_sample(full + suffix, {**labelled, "value": str(value)}, 1)
        else:
            family.add_sample(full + suffix, labelled, float(value))


_TEXT = ("Content-Type", "text/plain; charset=utf-8")


def _said(problem: str | None, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK" if problem is None else "503 Service Unavailable", [_TEXT])
    return [f"{problem or 'ok'}\n".encode()]


class Health(Protocol):
    """Says why the client isn't well, in words. Both methods return None while it is well. Any thread may call them."""

    def not_alive(self) -> str | None: ...
    def not_ready(self) -> str | None: ...


class _Handler(WSGIRequestHandler):
    """Logs requests at level DEBUG only, as probes and scrapes come every few seconds."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        log.debug(format, *args)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class MetricsEndpoint:
    """An HTTP server with a thread of its own. `/metrics` answers Prometheus' scrapes. `/livez` and `/readyz` answer
    probes with 200, or with 503 and the reason. `/status` answers with JSON. Any other path is 404.

    *Owns*: the listening socket. *Receives*: HTTP requests. *Sends*: published metrics, and the results of `health` and
    `page`.
    """

    host: str
    port: int

    def __init__(
        self,
        metrics: Metrics,
        host: str,
        port: int,
        health: Health | None = None,
        page: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Start listening. With port 0, the system chooses a free port. Raises `ConfigError` if the port can't be used.
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(PrometheusCollector(metrics))
        ProcessCollector(registry=registry)
        self._metrics_app, self._health, self._page = make_wsgi_app(registry), health, page
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            server = type("_Server", (_Server,), {"address_family": family})
            self._server: WSGIServer = make_server(host, port, self._answer, server, _Handler)
        except (OSError, OverflowError) as error:
            reason = f"can't listen on {host}: {error}; choose another, or 0 for a free one"
            raise ConfigError("metrics_port", port, reason) from error
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"metrics-{host}", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._server.server_close()
            raise
        self.host, self.port = host, int(self._server.server_port)
        metrics.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def _answer(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        path, health = environ.get("PATH_INFO", ""), self._health
        if path == "/metrics":
            return self._metrics_app(environ, start_response)  # type: ignore[no-any-return]
        if path == "/livez" and health is not None:
            return _said(health.not_alive(), start_response)
        if path == "/readyz" and health is not None:
            return _said(health.not_ready(), start_response)
        if path == "/status" and self._page is not None:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [orjson.dumps(self._page(), option=orjson.OPT_INDENT_2)]
        start_response("404 Not Found", [_TEXT])
        return [b"there are /metrics, /livez, /readyz and /status\n"]

    def _serve(self) -> None:
        """Serve until `close`. An error of the server is logged, and the server starts once more: if its probes get no
        answers, a process is killed from outside."""
        while not self._closed.is_set():
            try:
                self._server.serve_forever()
            except BaseException as error:
                report(log, "%s has failed, and serves again", self._thread.name, error=error)
                self._closed.wait(AGAIN_S)

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
