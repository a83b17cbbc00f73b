"""The one port of a command: metrics, probes and pages of all workers."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
import time
from collections.abc import Iterator, Mapping

import pytest

from milestones.common.errors import ConfigError
from milestones.workers import endpoint as module
from milestones.workers.endpoint import Addresses, WorkersEndpoint

Answer = tuple[int, str] | None
WELL: Mapping[str, Answer] = {
    "/livez": (200, "ok\n"), "/readyz": (200, "ok\n"), "/metrics": (200, "# TYPE a gauge\na 1.0\n"),
    "/status": (200, '{"state": "RUNNING"}'),
}  # fmt: skip


class Command:
    """A port with fake workers behind it. A worker whose answer is None hangs."""

    def __init__(self) -> None:
        self.addresses = Addresses()
        self.endpoint = WorkersEndpoint("127.0.0.1", 0, self.addresses)
        self._servers: list[http.server.ThreadingHTTPServer] = []
        self._over = threading.Event()

    def worker(self, number: int, **answers: Answer) -> None:
        known, over = {**WELL, **{f"/{path}": answer for path, answer in answers.items()}}, self._over

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = known[self.path]
                if answer is None:
                    over.wait()
                    return
                self.send_response(answer[0])
                self.send_header("Content-Type", "text/x-of-the-worker")
                self.end_headers()
                self.wfile.write(answer[1].encode())

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever).start()
        self._servers.append(server)
        self.addresses.expect(number)
        self.addresses.serves(number, server.server_port)

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.endpoint.address, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        found = response.status, response.read().decode()
        connection.close()
        return found

    def end(self, at: int) -> None:
        """The process of the worker that was made as number `at` is gone."""
        server = self._servers.pop(at)
        server.shutdown()
        server.server_close()

    def close(self) -> None:
        self._over.set()
        while self._servers:
            self.end(0)
        self.endpoint.close()


@pytest.fixture
def command() -> Iterator[Command]:
    made = Command()
    yield made
    made.close()


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_a_probe_succeeds_only_if_every_worker_is_well(command: Command, path: str) -> None:
    command.worker(1)
    command.worker(2)
    assert command.get(path) == (200, "ok\n")
    command.worker(3, **{path.removeprefix("/"): (503, "REBALANCING\n")})
    assert command.get(path) == (503, "worker 3: REBALANCING\n")


def test_a_worker_that_doesnt_answer_within_the_bound_isnt_live(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BOUNDS_S", {**module.BOUNDS_S, "/livez": 0.2})
    command.worker(1)
    command.worker(2, livez=None)
    began = time.monotonic()
    assert command.get("/livez") == (503, "worker 2: no answer within 0.2 s\n")
    assert time.monotonic() - began < 10


def test_a_worker_that_starts_is_neither_live_nor_ready(command: Command) -> None:
    command.worker(1)
    command.addresses.expect(2)
    assert command.get("/livez") == (503, "worker 2: it starts\n")
    assert command.get("/readyz")[0] == 503


def test_a_worker_whose_process_is_gone_isnt_live_but_one_that_ended_well_is_forgotten(command: Command) -> None:
    command.worker(1)
    command.worker(2)
    command.end(1)
    status, text = command.get("/livez")
    assert (status, text.partition(":")[0]) == (503, "worker 2")
    command.addresses.ended(2)
    assert command.get("/livez") == (200, "ok\n")
    command.addresses.ended(1)
    assert command.get("/livez") == (503, "all workers have ended\n")


def test_metrics_are_those_of_all_workers_with_a_label(command: Command) -> None:
    command.worker(1)
    command.worker(2)
    status, text = command.get("/metrics")
    assert status == 200
    assert 'a{worker="1"} 1.0\na{worker="2"} 1.0\n' in text


def test_metrics_are_there_although_a_worker_hangs(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOUNDS_S", {**module.BOUNDS_S, "/metrics": 0.2})
    command.worker(1)
    command.worker(2, metrics=None)
    status, text = command.get("/metrics")
    assert (status, 'a{worker="1"} 1.0' in text) == (200, True)
    assert 'milestones_worker_up{worker="2"} 0\n' in text


def test_the_status_has_a_page_for_each_worker(command: Command) -> None:
    command.worker(1)
    command.addresses.expect(2)
    assert json.loads(command.get("/status")[1]) == {"workers": {"1": {"state": "RUNNING"}, "2": None}}


def test_one_worker_can_be_asked_alone(command: Command) -> None:
    command.worker(1)
    command.worker(2, readyz=(503, "no\n"))
    assert command.get("/workers/1/readyz") == (200, "ok\n")
    assert command.get("/workers/2/readyz") == (503, "no\n")
    assert command.get("/workers/2/metrics") == WELL["/metrics"]
    assert command.get("/workers/3/metrics") == (404, "there is no worker 3\n")


@pytest.mark.parametrize("path", ["/", "/workers/1/other", "/workers/x/metrics", "/metrics/2"])
def test_other_paths_arent_there(command: Command, path: str) -> None:
    assert command.get(path)[0] == 404


def test_a_port_that_is_taken_is_an_error_that_names_the_setting(command: Command) -> None:
    with pytest.raises(ConfigError, match=f"metrics_port={command.endpoint.port}: can't listen on 127.0.0.1"):
        WorkersEndpoint("127.0.0.1", command.endpoint.port, Addresses())
