"""The programs in `examples/`, without a broker."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import ProcessingError
from milestones.common.testing import TopologyTestDriver
from milestones.common.topology.handlers import HEADER_EXCEPTION, HEADER_TOPIC
from tests.sources import ROOT


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def test_the_word_count_counts_words() -> None:
    with TopologyTestDriver(example("word_count")["builder"].build()) as driver:
        driver.create_input_topic("lines", value=serdes.STRING).pipe_values(["to be or", "not to be"])
        counts = driver.create_output_topic("word-counts", key=serdes.STRING, value=serdes.LONG)
        assert counts.read_key_values_to_map() == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_a_device_raises_one_alarm_when_it_has_been_silent() -> None:
    with TopologyTestDriver(example("silent_devices")["topology"]) as driver:
        heartbeats = driver.create_input_topic("heartbeats", key=serdes.STRING, value=serdes.STRING)
        alarms = driver.create_output_topic("alarms", key=serdes.STRING, value=serdes.STRING)
        for _ in range(4):
            heartbeats.pipe("pump", "ok", timestamp=driver.clock.wall_ms())
            driver.advance_wall_clock(20_000)
        assert alarms.is_empty()
        heartbeats.pipe("pump", "ok", timestamp=driver.clock.wall_ms())
        driver.advance_wall_clock(20_000)
        assert alarms.is_empty()
        driver.advance_wall_clock(10_000)
        assert alarms.read_key_values() == [("pump", "silent for 30 s")]
        driver.advance_wall_clock(60_000)
        assert alarms.is_empty()


def test_orders_that_cannot_be_used_become_dead_letters_and_the_others_count() -> None:
    program = example("dead_letters")
    with TopologyTestDriver(program["streams"]) as driver:
        orders = driver.create_input_topic("orders", key=serdes.STRING, value=serdes.BYTES)
        spent = driver.create_output_topic("spent", key=serdes.STRING, value=serdes.LONG)
        letters = driver.create_output_topic("orders-dead-letters", key=serdes.STRING, value=serdes.BYTES)
        orders.pipe("ann", b'{"quantity": 2, "cents": 350}')
        orders.pipe("ann", b'{"quantity": 0, "cents": 350}')
        orders.pipe("ann", b"hello")
        orders.pipe("ann", b'{"quantity": 1, "cents": 100}')
        assert spent.read_key_values() == [("ann", 700), ("ann", 800)]
        nothing, unreadable = letters.read_records()
        assert nothing.value == b'{"quantity": 0, "cents": 350}'
        assert (dict(nothing.headers)[HEADER_EXCEPTION] or b"").endswith(b"NothingOrderedError")
        assert (unreadable.value, dict(unreadable.headers)[HEADER_TOPIC]) == (b"hello", b"orders")


class Rates(BaseHTTPRequestHandler):
    """A service that knows the dollar; `keys`: what it was given to tell calls by."""

    protocol_version = "HTTP/1.1"
    keys: list[str]

    def do_GET(self) -> None:
        self.keys.append(self.headers["Idempotency-Key"])
        body = {"/usd": b"0.92\n"}.get(self.path, b"")
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Silence."""


@pytest.fixture
def rates() -> Iterator[HTTPServer]:
    Rates.keys = []
    with HTTPServer(("127.0.0.1", 0), Rates) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_payments_are_in_euros_at_the_rate_that_the_service_knows(rates: HTTPServer) -> None:
    program = example("exchange_rates")
    program["InEuros"].ask.__globals__["SERVICE"] = f"127.0.0.1:{rates.server_port}"
    with TopologyTestDriver(program["builder"].build()) as driver:
        payments = driver.create_input_topic("payments", key=serdes.STRING, value=serdes.STRING)
        euros = driver.create_output_topic("in-euros", key=serdes.STRING, value=serdes.STRING)
        payments.pipe("ann", "100 usd")
        payments.pipe("bob", "1 usd")
        assert euros.read_key_values() == [("ann", "92.00"), ("bob", "0.92")]
        assert Rates.keys == ["payments-0@0", "payments-0@1"]
        with pytest.raises(ProcessingError, match=r"payments-0@2.*/xyz answers 404"):
            payments.pipe("ann", "100 xyz")


def test_a_payment_fails_when_the_service_is_away() -> None:
    program = example("exchange_rates")
    with HTTPServer(("127.0.0.1", 0), Rates) as closed:
        program["InEuros"].ask.__globals__["SERVICE"] = f"127.0.0.1:{closed.server_port}"
    with TopologyTestDriver(program["builder"].build()) as driver:
        payments = driver.create_input_topic("payments", key=serdes.STRING, value=serdes.STRING)
        with pytest.raises(ProcessingError, match=r"payments-0@0.*ConnectionRefusedError"):
            payments.pipe("ann", "100 usd")
