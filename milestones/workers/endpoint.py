"""`WorkersEndpoint`: the one port at which a command answers for all its workers.

| path | answer |
|---|---|
| `/metrics` | the metrics of all workers, with the label `worker` |
| `/livez`, `/readyz` | 200 if each worker answers 200, else 503 with a line for each worker that doesn't |
| `/status` | JSON: `{"workers": {"1": the page of worker 1, ...}}`; null for a worker that doesn't answer |
| `/workers/2/metrics` | what worker 2 answers at `/metrics`; the same for the other paths |

*Guarantees*: a request is answered within the bound for its path. A worker that doesn't answer by then isn't live.
*Assumes*: the workers listen on the loopback interface.
"""

from __future__ import annotations

import http.client
import logging
import queue
import re
import socket
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, TypeGuard

import orjson

from milestones.common.errors import ConfigError
from milestones.workers.merging import merged
from milestones.workers.settings import LOOPBACK

log: Final = logging.getLogger(__name__)

PROBE_S: Final = 0.9
"""How long a worker may take to answer a probe. A kubelet waits one second by default."""
PAGE_S: Final = 5.0
"""How long a worker may take to make a page. Prometheus waits ten seconds by default."""
BOUNDS_S: Final[Mapping[str, float]] = {"/livez": PROBE_S, "/readyz": PROBE_S, "/metrics": PAGE_S, "/status": PAGE_S}
"""The paths, each with its bound."""

OK, UNAVAILABLE, NOT_FOUND = 200, 503, 404
PLAIN, JSON, METRICS = "text/plain; charset=utf-8", "application/json", "text/plain; version=0.0.4; charset=utf-8"
_OF_A_WORKER = re.compile(r"/workers/(\d+)(/\w+)")
_THERE = f"there are {', '.join(BOUNDS_S)}, and /workers/1/metrics and so on\n"


class Page(NamedTuple):
    """An answer to a request."""

    status: int
    kind: str
    body: bytes


class Addresses:
    """The ports of the workers. *Owns*: the ports by number, replaced as a whole; None for a worker that hasn't
    reported its port. The parent's main thread writes, any thread may read."""

    def __init__(self) -> None:
        self.ports: Mapping[int, int | None] = {}

    def expect(self, worker: int) -> None:
        self.ports = {**self.ports, worker: None}

    def serves(self, worker: int, port: int) -> None:
        if worker in self.ports:
            self.ports = {**self.ports, worker: port}

    def ended(self, worker: int) -> None:
        """Forget a worker that has ended well. The port of one that has failed stays, so that it doesn't answer."""
        self.ports = {number: port for number, port in self.ports.items() if number != worker}


class WorkersEndpoint:
    """*Owns*: the listening socket, a thread that accepts, and a thread per request. *Receives*: HTTP requests.
    *Sends*: requests to the workers, and answers."""

    host: str
    port: int

    def __init__(self, host: str, port: int, addresses: Addresses) -> None:
        """Start listening. With port 0, the system chooses a free port. Raises `ConfigError` if the port can't be used.
        """
        self._addresses = addresses
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = endpoint.answer(self.path.partition("?")[0])
                self.send_response(page.status)
                self.send_header("Content-Type", page.kind)
                self.send_header("Content-Length", str(len(page.body)))
                self.end_headers()
                self.wfile.write(page.body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                log.debug(format, *args)

        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            server = type("Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
            self._server: ThreadingHTTPServer = server((host, port), Handler)
        except (OSError, OverflowError) as error:
            reason = f"can't listen on {host}: {error}; choose another, or 0 for a free one"
            raise ConfigError("metrics_port", port, reason) from error
        self.host, self.port = host, int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"metrics-{host}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def answer(self, path: str) -> Page:
        """Return the answer to a request. Any thread may call it."""
        ports = self._addresses.ports
        if path in BOUNDS_S:
            answers = ask(ports, path, BOUNDS_S[path])
            return _MAKE[path](answers)
        of_a_worker = _OF_A_WORKER.fullmatch(path)
        if of_a_worker is None or of_a_worker[2] not in BOUNDS_S:
            return Page(NOT_FOUND, PLAIN, _THERE.encode())
        number, page = int(of_a_worker[1]), of_a_worker[2]
        if number not in ports:
            return Page(NOT_FOUND, PLAIN, f"there is no worker {number}\n".encode())
        found = ask({number: ports[number]}, page, BOUNDS_S[page])[number]
        return Page(UNAVAILABLE, PLAIN, f"{found}\n".encode()) if isinstance(found, str) else found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


Answers = Mapping[int, Page | str]
"""The answers of the workers by number. A text is the reason why there is none."""


def ask(ports: Mapping[int, int | None], path: str, bound_s: float) -> Answers:
    """Ask all workers at the same time. Returns after `bound_s` at the latest."""
    found: dict[int, Page | str] = {
        number: "it starts" if port is None else f"no answer within {bound_s:g} s" for number, port in ports.items()
    }
    answers: queue.SimpleQueue[tuple[int, Page | str]] = queue.SimpleQueue()
    asked = [(number, port) for number, port in ports.items() if port is not None]
    for number, port in asked:
        arguments = number, port, path, bound_s, answers
        threading.Thread(target=_ask, args=arguments, name=f"ask-worker-{number}", daemon=True).start()
    deadline_s = time.monotonic() + bound_s
    for _ in asked:
        try:
            number, answer = answers.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            break
        found[number] = answer
    return found


def _ask(
    number: int, port: int, path: str, bound_s: float, answers: queue.SimpleQueue[tuple[int, Page | str]]
) -> None:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=bound_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        page = Page(response.status, response.getheader("Content-Type") or PLAIN, response.read())
        answers.put((number, page))
    except (OSError, http.client.HTTPException) as error:
        answers.put((number, f"no answer: {error}"))
    finally:
        connection.close()


def _metrics(answers: Answers) -> Page:
    pages = {number: page.body.decode() if _is_ok(page) else None for number, page in answers.items()}
    return Page(OK, METRICS, merged(pages).encode())


def _health(answers: Answers) -> Page:
    bad = [f"worker {number}: {_reason(page)}\n" for number, page in sorted(answers.items()) if not _is_ok(page)]
    if not answers:
        bad = ["all workers have ended\n"]
    return Page(UNAVAILABLE if bad else OK, PLAIN, ("".join(bad) or "ok\n").encode())


def _status(answers: Answers) -> Page:
    pages = {str(n): orjson.loads(page.body) if _is_ok(page) else None for n, page in sorted(answers.items())}
    return Page(OK, JSON, orjson.dumps({"workers": pages}, option=orjson.OPT_INDENT_2))


def _is_ok(page: Page | str) -> TypeGuard[Page]:
    return not isinstance(page, str) and page.status == OK


def _reason(page: Page | str) -> str:
    return page if isinstance(page, str) else page.body.decode(errors="replace").strip()


_MAKE: Final = {"/metrics": _metrics, "/livez": _health, "/readyz": _health, "/status": _status}

