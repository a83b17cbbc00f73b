"""A TCP proxy on loopback in front of a broker, which delays, holds, loses, cuts: all, or one kind of request.

A Kafka client goes where a listener is advertised: the broker needs one that is advertised at the proxy's port.

    with KafkaProxy() as proxy:
        with EmbeddedKafka(listeners={"PROXIED": "PLAINTEXT"}, advertised={"PROXIED": proxy.port}) as kafka:
            proxy.connect_to(kafka.address("PROXIED"))
            lost = proxy.lose(Api.END_TXN, Side.ANSWER, times=1)      # clients use proxy.bootstrap_servers
            ...
            lost.wait()

*Guarantees*: as TCP: frames keep their order, nothing that passes is changed (but by `forget` and `refuse`) or doubled,
what is behind a held frame waits, and a lost frame is a broken connection, or one on which nothing arrives any more.
Requests that are held when their client has gone still arrive, late.
*Assumes*: plain text; frames fit into memory.

The thread owns the loop, the connections and the list of faults; it receives calls from the test's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeVar

from compat_tests.network.faults import Fault, Frames, Side
from compat_tests.network.frames import Api, Request, parse_answer, parse_request, read_frame
from milestones.common.kafka.embedded.ports import free_port
from milestones.common.kafka.embedded.properties import HOST

_CALL_S = 10.0
_ROUNDS = 3
"""Of the loop, until a connection that was accepted just now has come to `_accept`: asyncio's server loses its socket
if it is closed before."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_T = TypeVar("_T")


UNKNOWN_TOPIC, NOT_ENOUGH_REPLICAS = b"\x00\x03", b"\x00\x13"
"""Codes of errors."""


def flexible(name: str) -> bytes:
    """A name as flexible versions of requests have it: its length plus one, then itself."""
    return bytes([len(name) + 1]) + name.encode()


class OpenConnection(NamedTuple):
    """An open connection: its client id, "" before its first request, and the kinds of requests that it has carried."""

    client_id: str
    apis: frozenset[int]


class KafkaProxy:
    """Listens from the beginning; passes connections on once it is told where to."""

    def __init__(self, upstream: str | None = None) -> None:
        self.port = free_port()
        self._upstream = upstream
        self._faults: list[Fault] = []
        self._connections: set[_Connection] = set()
        self._clients: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        try:
            self._server = self._run(asyncio.start_server(self._accept, HOST, self.port))
        except BaseException:
            self._end_thread()
            raise

    def __enter__(self) -> KafkaProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the proxy."""
        return f"{HOST}:{self.port}"

    def connect_to(self, upstream: str) -> None:
        """Pass new connections on to `upstream` (`host:port`)."""
        self._call(lambda: setattr(self, "_upstream", upstream))

    def delay(
        self, seconds: float, api: int | None = None, side: Side = Side.ANSWER, client: str = "*",
        times: int | None = None,
    ) -> Fault:  # fmt: skip
        """Frames arrive so much later; what is behind them isn't delayed on top."""
        return self._add(Frames(side, api, client), times, delay_s=seconds)

    def hold(
        self, api: int | None = None, side: Side = Side.ANSWER, client: str = "*", times: int | None = None
    ) -> Fault:
        """Frames, and what is behind them on their connections, wait until the fault is ended."""
        return self._add(Frames(side, api, client), times, gate=asyncio.Event())

    def lose(
        self, api: int | None = None, side: Side = Side.ANSWER, client: str = "*", times: int | None = None
    ) -> Fault:
        """The connection breaks instead of carrying such a frame. Of a lost answer the broker has done the request."""
        return self._add(Frames(side, api, client), times, loses=True)

    def vanish(
        self, api: int | None = None, side: Side = Side.REQUEST, client: str = "*", times: int | None = None
    ) -> Fault:
        """From such a frame on nothing arrives on its connection, on neither side, and neither hears of it: a peer
        without power, a network that drops packets. The connection stays so when the fault has ended."""
        return self._add(Frames(side, api, client), times, vanishes=True)

    def forget(self, topic: str, client: str = "*", times: int | None = None) -> Fault:
        """Answers about topics say that there is no such one, as those of a broker that has just started may."""
        swaps = {Side.ANSWER: (b"\x00\x00" + flexible(topic), b"\x00\x03" + flexible(topic))}
        return self._add(Frames(Side.ANSWER, Api.METADATA, client), times, swaps=swaps)

    def refuse(self, topic: str, client: str = "*") -> Fault:
        """Too few replicas of a topic of one partition are in sync: the broker takes no records for it, and says so. It
        is asked about a topic that it doesn't know, and that error arrives as the other one."""
        other = topic[:-1] + "_"
        one, answer = b"\x02\x00\x00\x00\x00", flexible(other)  # partitions, plus one, and the number of the first
        swaps = {
            Side.REQUEST: (flexible(topic), flexible(other)),
            Side.ANSWER: (answer + one + UNKNOWN_TOPIC, flexible(topic) + one + NOT_ENOUGH_REPLICAS),
        }
        return self._add(Frames(None, Api.PRODUCE, client), None, swaps=swaps)

    def connections(self) -> list[OpenConnection]:
        """The connections that are open now."""
        return self._call(lambda: [OpenConnection(one.client_id, frozenset(one.apis)) for one in self._connections])

    def disconnect(self, client: str = "*") -> int:
        """Break the connections of these clients once; how many there were. Requests on their way still arrive."""

        def abort() -> int:
            chosen = [one for one in self._connections if fnmatchcase(one.client_id, client)]
            for one in chosen:
                one.abort()
            return len(chosen)

        return self._call(abort)

    def heal(self) -> None:
        """End all faults: what is held goes on its way."""
        self._call(lambda: self._drop(*self._faults))

    def close(self) -> None:
        """Break all connections and stop listening. May be called twice."""
        if self._thread.is_alive():
            self._run(self._shut_down())
            self._end_thread()

    # ---- the test's thread

    def _add(self, frames: Frames, times: int | None, **what: Any) -> Fault:
        fault = Fault(frames, times, self._end, **what)
        self._call(lambda: self._faults.append(fault))
        return fault

    def _end(self, fault: Fault) -> None:
        if self._thread.is_alive():
            self._call(lambda: self._drop(fault))

    def _call(self, function: Callable[[], _T]) -> _T:
        async def call() -> _T:
            return function()

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError(f"the proxy on {self.bootstrap_servers} is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)
        self._loop.close()

    # ---- the proxy's thread

    def _drop(self, *faults: Fault) -> None:
        for fault in faults:
            if fault in self._faults:
                self._faults.remove(fault)
            if fault.gate is not None:
                fault.gate.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients[writer] = self._loop.create_task(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A broker that is down: the client learns it by its connection's end.
            with contextlib.suppress(OSError):
                await self._pass_on(reader, writer)
        finally:
            _reset(writer)
            self._clients.pop(writer, None)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._upstream is None:
            return
        host, port = self._upstream.rsplit(":", 1)
        connection = _Connection(self._faults, (reader, writer), await asyncio.open_connection(host, int(port)))
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _shut_down(self) -> None:
        for listener in self._server.sockets:
            self._loop.remove_reader(listener)
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        self._server.close()
        for writer in self._clients:
            _reset(writer)  # a task cancelled before its first step wouldn't
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # transports close their sockets in the next round


class _Connection:
    """One client's connection and ours to the broker. Owned by the proxy's thread."""

    def __init__(
        self,
        faults: list[Fault],
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.client_id, self.apis = "", set[int]()
        self._faults, self._client, self._broker = faults, client, broker
        self._asked: dict[int, Request] = {}
        self._silent = False

    async def run(self) -> None:
        """Pass frames both ways until both sides have ended."""
        requests = asyncio.create_task(self._pump(Side.REQUEST, self._client[0], self._broker[1]))
        answers = asyncio.create_task(self._pump(Side.ANSWER, self._broker[0], self._client[1]))
        try:
            await asyncio.gather(requests, answers)
        finally:
            _reset(self._broker[1])
            requests.cancel()
            answers.cancel()

    def abort(self) -> None:
        """Break the client's side."""
        _reset(self._client[1])

    async def _pump(self, side: Side, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """One direction. Frames wait in a queue, so that a held one doesn't keep us from seeing what follows."""
        queue: asyncio.Queue[tuple[bytes, float, list[asyncio.Event]] | None] = asyncio.Queue()
        forward = asyncio.create_task(_forward(queue, sink))
        try:
            while (frame := await read_frame(source)) is not None:
                request = self._request(side, frame)
                met = [fault for fault in list(self._faults) if request is not None and fault.meets(side, request)]
                if any(fault.loses for fault in met):
                    self.abort()
                    break
                for fault in met:
                    frame = fault.swapped(side, frame)
                self._silent |= any(fault.vanishes for fault in met)
                if self._silent:
                    continue
                due = asyncio.get_running_loop().time() + sum(fault.delay_s for fault in met)
                queue.put_nowait((frame, due, [fault.gate for fault in met if fault.gate is not None]))
            if self._silent:
                await asyncio.Event().wait()  # that a side closes it doesn't arrive either
            queue.put_nowait(None)
            await forward
            if side is Side.ANSWER:
                sink.close()
        finally:
            forward.cancel()

    def _request(self, side: Side, frame: bytes) -> Request | None:
        """The request that this frame is, or answers."""
        if side is Side.ANSWER:
            correlation = parse_answer(frame)
            return None if correlation is None else self._asked.pop(correlation, None)
        request = parse_request(frame)
        if request is not None:
            self.client_id = request.client_id
            self.apis.add(request.api)
            self._asked[request.correlation] = request
        return request


async def _forward(
    queue: asyncio.Queue[tuple[bytes, float, list[asyncio.Event]] | None], sink: asyncio.StreamWriter
) -> None:
    """Write frames when they are due, in order; then say that no more come. What can't be delivered is dropped."""
    loop = asyncio.get_running_loop()
    while (item := await queue.get()) is not None:
        frame, due, gates = item
        for gate in gates:
            await gate.wait()
        if (wait := due - loop.time()) > 0:
            await asyncio.sleep(wait)
        with contextlib.suppress(ConnectionError):
            if not sink.is_closing():
                sink.write(frame)
                await sink.drain()
    with contextlib.suppress(OSError):
        sink.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection as a cut cable does: no orderly end."""
    end: socket.socket | None = writer.get_extra_info("socket")
    if end is not None and not writer.is_closing():
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
