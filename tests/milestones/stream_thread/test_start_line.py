"""The threads with which an instance starts join their group together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread
from unittest.mock import Mock

import pytest

from milestones.common.errors import KafkaUnreachableError
from milestones.instance.thread_registry import ThreadRegistry
from milestones.stream_thread import start_line
from milestones.stream_thread.start_line import StartLine
from milestones.stream_thread.thread import StreamThread
from milestones.stream_thread.workforce import StreamThreads
from tests.milestones.fakes import NO_CLIENTS, World

TIMEOUT_S = 30


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that waits for this long fails."""
    monkeypatch.setattr(start_line, "PATIENCE_S", 2 * TIMEOUT_S)


class Waiting:
    """A thread at the line. `joined`: it has crossed."""

    def __init__(self, line: StartLine) -> None:
        self.joined = False
        self._line = line
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._line.cross()
        self.joined = True

    def join(self) -> None:
        self._thread.join(TIMEOUT_S)


def test_no_thread_joins_before_all_have_come() -> None:
    line = StartLine(3)
    waiting = [Waiting(line), Waiting(line)]
    assert not any(one.joined for one in waiting)
    line.cross()
    for one in waiting:
        one.join()
    assert all(one.joined for one in waiting)


def test_a_thread_that_comes_later_does_not_wait() -> None:
    line = StartLine(1)
    line.cross()
    later = Waiting(line)
    later.join()
    assert later.joined


def test_a_thread_waits_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_line, "PATIENCE_S", 0.01)
    StartLine(2).cross()


def test_a_thread_that_is_to_end_does_not_wait_for_the_others() -> None:
    line = StartLine(2)
    waiting = Waiting(line)
    assert not waiting.joined
    StreamThread(World().context, World().parts, NO_CLIENTS, line).stop(leave_group=True)
    waiting.join()
    assert waiting.joined


def test_the_first_threads_of_an_instance_have_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [World(settings={"num_stream_threads": 2}) for _ in range(2)]
    config, parts = worlds[0].config, worlds[0].parts
    workforce = StreamThreads(config, "app", ThreadRegistry(), parts, NO_CLIENTS)
    first, second = (workforce.make(world.context) for world in worlds)
    crossed = Event()
    monkeypatch.setattr(worlds[0].member, "start", crossed.set)
    running = Thread(target=first.run, daemon=True)
    running.start()
    assert not crossed.is_set()
    second.stop(leave_group=True)
    assert crossed.wait(TIMEOUT_S)
    first.stop(leave_group=True)
    running.join(TIMEOUT_S)
    assert not running.is_alive()


def unreachable(world: World, line: StartLine) -> StreamThread:
    """A thread whose clients can't be made."""
    clients = Mock(side_effect=KafkaUnreachableError("no broker"))
    return StreamThread(world.context, replace(world.parts, clients=clients), NO_CLIENTS, line)


def told_to_end(world: World, line: StartLine) -> StreamThread:
    """A thread that ends right after it has joined."""
    thread = StreamThread(world.context, world.parts, NO_CLIENTS, line)
    thread.stop(leave_group=True)
    return thread


@pytest.mark.parametrize("other", [unreachable, told_to_end])
def test_the_others_do_not_wait_for_a_thread_that_dies_and_join_with_one_that_lives(
    other: Callable[[World, StartLine], StreamThread],
) -> None:
    line = StartLine(2)
    waiting = Waiting(line)
    assert not waiting.joined
    other(World(), line).run()
    waiting.join()
    assert waiting.joined
