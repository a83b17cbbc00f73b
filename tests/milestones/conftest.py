"""Fixtures of the tests of the runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.milestones.app import App
from tests.milestones.client.fake_threads import Client, FakeInstance, FakeThread
from tests.milestones.golden_trace import Trace, digest


@pytest.fixture
def fake_threads() -> Iterator[None]:
    """The fakes of what a supervisor drives are as if none had been made before; the clients are closed at the end."""
    FakeThread.all, FakeThread.start_error, Client.all = [], None, []
    FakeInstance.prepare_error = FakeInstance.close_error = FakeInstance.left_error = None
    FakeInstance.closed, FakeInstance.left = 0, []
    yield
    for client in Client.all:
        client.end()


@pytest.fixture(autouse=True)
def golden_trace(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where `GOLDEN_TRACE` names a file, it gets a digest of what the test has had done about transactions."""
    path = os.environ.get("GOLDEN_TRACE")
    if path is None:
        yield
        return
    with Trace().watching() as trace:
        yield
    if trace.lines:
        with Path(path).open("a") as file:
            file.write(f"{request.node.nodeid} {len(trace.lines)} {digest(trace.lines)}\n")


@pytest.fixture
def app(kafka: str, tmp_path: Path) -> Iterator[App]:
    """An application on the broker, with no topics yet."""
    with ExitStack() as stack:
        yield App(kafka, tmp_path, stack)
