"""A start that fails at any of its statements, or is closed there, leaves nothing behind: the next one on the same
directory starts, with the same port. Real broker; each statement in turn."""

from __future__ import annotations

import ast
import inspect
import socket
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import CodeType, FrameType
from typing import Any

import pytest

from milestones import Streams, StreamsBuilder, StreamsState, serdes
from milestones.client.supervisor import Supervisor
from milestones.common.errors import MilestonesError
from milestones.common.state.state_manager import LocalStateManager
from milestones.instance.instance import Instance
from milestones.m6_state_manager.manager import RangeStateManager
from tests.milestones.app import App

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

WAIT_S = 30
FUNCTIONS = (
    Streams.start, Supervisor.begin, Supervisor._begin, Instance.__init__, Instance._take, Instance.prepare,
    RangeStateManager.__init__, RangeStateManager._begin, RangeStateManager._begin_with, LocalStateManager.__init__,
)  # fmt: skip


class PlantedError(Exception):
    """What a statement raises here."""


def statements(function: Any) -> tuple[CodeType, frozenset[int]]:
    """The code of a function, and the lines at which its statements begin."""
    lines, first = inspect.getsourcelines(function)
    (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    assert isinstance(tree, ast.FunctionDef)
    found = {node.lineno + first - 1 for node in ast.walk(tree) if isinstance(node, ast.stmt) and node is not tree}
    return function.__code__, frozenset(found)


LINES = dict(map(statements, FUNCTIONS))


@contextmanager
def traced(at: Callable[[str], None]) -> Iterator[None]:
    """Call `at` with the name of each statement of a start, before it is executed, the first time."""
    seen: set[tuple[CodeType, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if code not in LINES:
            return None
        place = code, frame.f_lineno
        if event == "line" and frame.f_lineno in LINES[code] and place not in seen:
            seen.add(place)
            at(f"{code.co_qualname}:{frame.f_lineno}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


class Starts:
    """Clients of one application on one directory and one port, one after the other."""

    def __init__(self, app: App, stage: str) -> None:
        self.app, self.stage = app, stage
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.threads = set(threading.enumerate())

    def client(self) -> Streams:
        builder = StreamsBuilder()
        builder.global_table(self.app["table"], key=serdes.STRING, value=serdes.STRING)
        lines = builder.stream(self.app["in"], key=serdes.STRING, value=serdes.STRING)
        lines.group_by_key().count("counts").to_stream().to(self.app["out"], key=serdes.STRING, value=serdes.LONG)
        snapshots = (self.app.path / "snapshots").as_uri()
        return self.app.streams(
            builder, milestones=self.stage, metrics_port=self.port, metrics_host="127.0.0.1", snapshot_url=snapshots
        )

    def runs(self) -> list[str]:
        """The statements of a start that succeeds, whose client then runs and is closed."""
        found: list[str] = []
        client = self.client()
        with traced(found.append):
            client.start()
        self.app.until(lambda: client.state is StreamsState.RUNNING, "the client runs")
        assert client.close(WAIT_S)
        self.nothing_is_left(client)
        return found

    def nothing_is_left(self, client: Streams) -> None:
        left = [thread.name for thread in set(threading.enumerate()) - self.threads if self.app.id in thread.name]
        assert not left
        with socket.socket() as port:
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port.bind(("127.0.0.1", self.port))


@pytest.fixture
def starts(app: App, request: pytest.FixtureRequest) -> Starts:
    (app.path / "snapshots").mkdir()
    app.create({"in": 1, "out": 1}).create({"table": 1}, **{"cleanup.policy": "compact"})
    return Starts(app, request.param)


STAGES = pytest.mark.parametrize("starts", ["baseline", "m6"], indirect=True)


@STAGES
def test_a_start_that_fails_at_any_statement_leaves_nothing_and_may_be_made_again(
    starts: Starts, capsys: pytest.CaptureFixture[str]
) -> None:
    places = starts.runs()
    for place in places:
        client = starts.client()

        def fail(at: str, place: str = place) -> None:
            if at == place:
                raise PlantedError(at)

        with pytest.raises(PlantedError, match=place.rpartition(".")[2]), traced(fail):
            client.start()
        starts.nothing_is_left(client)
        if client.state is StreamsState.CREATED:
            assert "stream-metrics" not in client.metrics()
        else:
            assert (client.state, type(client.error)) == (StreamsState.ERROR, PlantedError)
        assert client.close(WAIT_S)
    starts.runs()
    with capsys.disabled():
        print(f"\n{starts.stage}: {len(places)} statements of a start have raised, each once")


@STAGES
def test_a_start_that_is_closed_at_any_statement_leaves_nothing(
    starts: Starts, capsys: pytest.CaptureFixture[str]
) -> None:
    places = starts.runs()
    for place in places:
        client, closed = starts.client(), list[bool]()
        closer = threading.Thread(target=lambda client=client, closed=closed: closed.append(client.close(WAIT_S)))  # type: ignore[misc]
        asked = threading.Event()
        client._supervisor.ask_to_close = _then(client._supervisor.ask_to_close, asked.set)  # type: ignore[method-assign]

        def close(
            at: str, place: str = place, closer: threading.Thread = closer, asked: threading.Event = asked
        ) -> None:
            if at == place:
                closer.start()
                assert asked.wait(WAIT_S)

        began = any("._begin:" in earlier for earlier in places[: places.index(place) + 2])
        with nullcontext() if began else pytest.raises(MilestonesError, match="is closed already"), traced(close):
            client.start()
        closer.join(WAIT_S)
        assert closed == [True], place
        assert client.state is StreamsState.NOT_RUNNING
        starts.nothing_is_left(client)
    starts.runs()
    with capsys.disabled():
        print(f"\n{starts.stage}: a start was closed at {len(places)} statements, each once")


def _then(call: Callable[[bool], None], after: Callable[[], None]) -> Callable[[bool], None]:
    def both(leave_group: bool) -> None:
        call(leave_group)
        after()

    return both
