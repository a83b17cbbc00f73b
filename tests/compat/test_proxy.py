"""The proxy in front of a broker, here a small one of our own that answers every request."""

from __future__ import annotations

import gc
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from compat_tests.network.faults import Side
from compat_tests.network.frames import Api, Request, parse_answer, parse_request
from compat_tests.network.proxy import KafkaProxy, OpenConnection
from milestones.testing import until

PATIENCE_S = 10.0


def request(api: int, correlation: int, client: str = "one", body: bytes = b"") -> bytes:
    name = client.encode()
    payload = struct.pack(f">hhih{len(name)}s", api, 1, correlation, len(name), name) + body
    return struct.pack(">i", len(payload)) + payload


def receive(connection: socket.socket) -> bytes | None:
    """One frame, without its length; None at the end of the connection."""
    try:
        head = exactly(connection, 4)
        return None if head is None else exactly(connection, struct.unpack(">i", head)[0])
    except ConnectionError:
        return None


def exactly(connection: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


class Broker(socketserver.ThreadingTCPServer):
    """Answers each request with its correlation id and body, and remembers the correlation ids."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self.received: list[int] = []
        self.arrived = threading.Condition()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        with suppress(ConnectionError):
            while (frame := receive(request)) is not None:
                header = parse_request(struct.pack(">i", len(frame)) + frame)
                assert header is not None
                with self.arrived:
                    self.received.append(header.correlation)
                    self.arrived.notify_all()
                answer = frame[4:8] + frame[10 + len(header.client_id) :]
                request.sendall(struct.pack(">i", len(answer)) + answer)

    def has(self, *correlations: int) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: set(correlations) <= set(self.received), PATIENCE_S)

    def close(self) -> None:
        """Returns when the threads of all its connections have ended."""
        self.shutdown()
        self.server_close()


class Client:
    def __init__(self, proxy: KafkaProxy, name: str = "one") -> None:
        self.name = name
        self.socket = socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)

    def ask(self, api: int, correlation: int, body: bytes = b"") -> None:
        self.socket.sendall(request(api, correlation, self.name, body))

    def answer(self) -> int | None:
        """The correlation id of the next answer; None: the connection has ended."""
        frame = receive(self.socket)
        return None if frame is None else struct.unpack_from(">i", frame)[0]

    def round_trip(self, api: int, correlation: int) -> int | None:
        """Ask; the correlation id of the next answer."""
        self.ask(api, correlation)
        return self.answer()

    def has_answer(self, within_s: float = 0.05) -> bool:
        self.socket.settimeout(within_s)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(PATIENCE_S)


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


@pytest.fixture
def proxy(broker: Broker) -> Iterator[KafkaProxy]:
    with KafkaProxy(broker.address) as proxy:
        yield proxy


@contextmanager
def connected(proxy: KafkaProxy, name: str = "one") -> Iterator[Client]:
    client = Client(proxy, name)
    try:
        yield client
    finally:
        client.socket.close()


def is_broken(proxy: KafkaProxy) -> bool:
    """Whether a new connection ends at once; so early, perhaps, that connecting already fails."""
    try:
        with connected(proxy) as client:
            return client.answer() is None
    except ConnectionError:
        return True


def test_the_header_of_a_request_is_read() -> None:
    assert parse_request(request(Api.END_TXN, 7, "päul", b"body")) == Request(26, 1, 7, "päul")
    assert parse_request(b"\x00\x00\x00\x01\x00") is None
    nameless = struct.pack(">ihhih", 10, 3, 9, 5, -1)
    assert parse_request(nameless) == Request(3, 9, 5, "")
    assert parse_answer(struct.pack(">ii", 4, 9)) == 9
    assert parse_answer(b"\x00\x00\x00\x00") is None


def test_frames_pass_unchanged_and_in_order(proxy: KafkaProxy) -> None:
    body = bytes(range(256)) * 4_000
    with connected(proxy) as client:
        for number in range(3):
            client.ask(Api.PRODUCE, number, body)
        for number in range(3):
            assert receive(client.socket) == struct.pack(">i", number) + body


def test_packets_that_vanish_leave_an_open_connection_on_which_nothing_arrives_ever_after(
    proxy: KafkaProxy, broker: Broker
) -> None:
    with connected(proxy) as client, connected(proxy) as other:
        assert client.round_trip(Api.HEARTBEAT, 1) == 1
        fault = proxy.vanish(Api.JOIN_GROUP, client="one", times=1)
        client.ask(Api.JOIN_GROUP, 2)
        fault.wait()
        fault.end()
        client.ask(Api.HEARTBEAT, 3)
        assert not client.has_answer(0.2)
        assert other.round_trip(Api.JOIN_GROUP, 4) == 4
        assert broker.received == [1, 4]


def test_a_delayed_answer_comes_late_and_the_ones_behind_it_with_it(proxy: KafkaProxy) -> None:
    fault, behind = proxy.delay(0.5, Api.END_TXN), range(1, 101)
    with connected(proxy) as client:
        began = time.monotonic()
        for number, api in enumerate((Api.FETCH, *(Api.END_TXN for _ in behind), Api.FETCH)):
            client.ask(api, number)
        assert client.answer() == 0
        assert [client.answer() for _ in behind] == [*behind]
        assert client.answer() == 101
        assert 0.5 <= time.monotonic() - began < 0.5 * len(behind), "all are delayed at once, not one after the other"
    assert fault.hits == len(behind)


def test_what_comes_before_a_delayed_answer_is_not_delayed(proxy: KafkaProxy) -> None:
    proxy.delay(10 * PATIENCE_S, Api.END_TXN)
    with connected(proxy) as client:
        client.ask(Api.FETCH, 1)
        client.ask(Api.END_TXN, 2)
        assert client.answer() == 1
        assert not client.has_answer()


def test_a_held_answer_waits_for_the_end_of_the_fault(proxy: KafkaProxy, broker: Broker) -> None:
    held = proxy.hold(Api.END_TXN)
    with connected(proxy) as client, connected(proxy) as other:
        client.ask(Api.END_TXN, 1)
        held.wait()
        assert broker.received == [1]
        assert other.round_trip(Api.FETCH, 2) == 2
        assert not client.has_answer()
        held.end()
        assert client.answer() == 1
        assert client.round_trip(Api.END_TXN, 3) == 3
    held.end()


def test_a_lost_answer_breaks_the_connection_after_the_broker_has_done_the_request(
    proxy: KafkaProxy, broker: Broker
) -> None:
    lost = proxy.lose(Api.END_TXN, times=1)
    with connected(proxy) as client:
        assert client.round_trip(Api.FETCH, 1) == 1
        client.ask(Api.END_TXN, 2)
        assert client.answer() is None
    assert broker.received == [1, 2]
    with connected(proxy) as client:
        assert client.round_trip(Api.END_TXN, 3) == 3
    assert lost.hits == 1


def test_a_lost_request_never_arrives_nor_does_what_was_sent_behind_it(proxy: KafkaProxy, broker: Broker) -> None:
    proxy.lose(Api.END_TXN, Side.REQUEST, times=1)
    with connected(proxy) as client:
        client.socket.sendall(b"".join(request(api, api) for api in (Api.FETCH, Api.END_TXN, Api.METADATA)))
        while client.answer() is not None:
            pass
    with connected(proxy) as client:
        assert client.round_trip(Api.END_TXN, 99) == 99
    assert sorted(broker.received) in ([Api.FETCH, 99], [99])  # two connections, two threads


def test_a_held_request_arrives_late_even_when_its_client_has_gone(proxy: KafkaProxy, broker: Broker) -> None:
    held = proxy.hold(Api.END_TXN, Side.REQUEST, times=1)
    with connected(proxy) as client:
        client.ask(Api.END_TXN, 1)
        held.wait()
        assert proxy.disconnect() == 1
        assert client.answer() is None
    with connected(proxy) as client:
        assert client.round_trip(Api.END_TXN, 2) == 2
    assert broker.received == [2]
    held.end()
    assert broker.has(1)


def test_the_clients_of_open_connections_are_told_for_each_connection(proxy: KafkaProxy) -> None:
    names = ["one-admin", "two-admin", "two-admin"]
    with ExitStack() as closing:
        for name in names:
            closing.enter_context(connected(proxy, name)).round_trip(Api.FETCH, 1)
        assert sorted(one.client_id for one in proxy.connections()) == names
    until(lambda: proxy.connections() == [], "none is open")


def test_a_fault_can_be_for_one_client_only(proxy: KafkaProxy) -> None:
    with connected(proxy, "one-producer") as one, connected(proxy, "two-producer") as two:
        for client in (one, two):
            assert client.round_trip(Api.FETCH, 1) == 1
        proxy.lose(side=Side.REQUEST, client="one-*")
        one.ask(Api.FETCH, 2)
        assert one.answer() is None
        assert two.round_trip(Api.FETCH, 2) == 2


def test_open_connections_are_known_by_their_client_and_what_they_have_carried(proxy: KafkaProxy) -> None:
    assert proxy.connections() == []
    with connected(proxy, "one") as one, connected(proxy, "two") as two:
        one.round_trip(Api.METADATA, 1)
        one.round_trip(Api.HEARTBEAT, 2)
        two.round_trip(Api.FETCH, 1)
        apis = {"one": {Api.METADATA, Api.HEARTBEAT}, "two": {Api.FETCH}}
        assert sorted(proxy.connections()) == [OpenConnection(name, frozenset(of)) for name, of in apis.items()]
    until(lambda: not proxy.connections(), "both have ended", PATIENCE_S)


def test_healing_ends_every_fault(proxy: KafkaProxy) -> None:
    faults = [proxy.hold(Api.FETCH), proxy.hold(side=Side.REQUEST), proxy.delay(60)]
    with connected(proxy) as client:
        client.ask(Api.FETCH, 1)
        faults[1].wait()
        proxy.heal()
        assert client.answer() == 1


def test_waiting_for_a_fault_that_is_not_met_has_an_end(proxy: KafkaProxy) -> None:
    with pytest.raises(TimeoutError, match="only 0 of 1 frames"):
        proxy.hold(Api.END_TXN).wait(timeout_s=0.01)


def test_a_broker_that_is_down_or_goes_down_is_a_broken_connection() -> None:
    broker = Broker()
    with KafkaProxy() as proxy:
        assert is_broken(proxy)
        proxy.connect_to(broker.address)
        with connected(proxy) as client:
            assert client.round_trip(Api.FETCH, 1) == 1
        broker.close()
        assert is_broken(proxy)


def test_a_closed_proxy_leaves_no_connection_no_thread_and_no_listener(broker: Broker) -> None:
    before = set(threading.enumerate())
    proxy = KafkaProxy(broker.address)
    held = proxy.hold()
    with connected(proxy) as client:
        client.ask(Api.FETCH, 1)
        held.wait()
        proxy.close()
        proxy.close()
        held.end()
        assert client.answer() is None
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("proxy")]
    with pytest.raises(ConnectionRefusedError):
        Client(proxy)
    with pytest.raises(RuntimeError, match="is closed"):
        proxy.heal()


def test_a_connection_that_is_made_as_the_proxy_closes_is_closed_too() -> None:
    """Python warns of a socket that nothing has closed, and a warning fails the test that runs then."""
    for _ in range(20):
        proxy = KafkaProxy()
        connections = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(5)]
        proxy.close()
        for connection in connections:
            connection.close()
    gc.collect()


def test_records_for_a_topic_are_refused_until_the_fault_ends_and_others_pass(proxy: KafkaProxy) -> None:
    """The broker of these tests says of a topic what the request says."""

    def frame(topic: bytes, code: int) -> bytes:
        return b"head" + bytes([len(topic) + 1]) + topic + b"\x02" + struct.pack(">ih", 0, code) + b"tail"

    unknown, few = 3, 19
    with connected(proxy) as client:
        refused = proxy.refuse("app-out")
        for sent, expected in (
            (frame(b"app-out", unknown), frame(b"app-out", few)),
            (frame(b"app-counts", unknown), frame(b"app-counts", unknown)),
        ):
            client.ask(Api.PRODUCE, 1, sent)
            assert receive(client.socket) == struct.pack(">i", 1) + expected
        client.ask(Api.FETCH, 2, frame(b"app-out", unknown))
        assert receive(client.socket) == struct.pack(">i", 2) + frame(b"app-out", unknown)
        refused.end()
        client.ask(Api.PRODUCE, 3, frame(b"app-out", unknown))
        assert receive(client.socket) == struct.pack(">i", 3) + frame(b"app-out", unknown)
