"""User code that leaves by an error of any kind is heard of in seconds, on every stage: the client is in ERROR, with a
text that names the function, or goes on as documented, with a line in the log. Real broker; prints the table."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from milestones import (
    Processor,
    Record,
    Serde,
    Streams,
    StreamsBuilder,
    StreamsState,
    serdes,
)
from milestones.common.errors import UserExitError
from milestones.common.last_words import typed
from milestones.flags import STAGES
from milestones.testing import NotYet, until
from tests.milestones.app import App

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

HEARD_S = 60
"""Seconds within which all functions of a stage and an error must be heard of, on a machine that runs other tests."""


class Own(BaseException):
    """Of the program's own, and no `Exception`."""


class Mute(Exception):
    """An error that has no text: its methods raise."""

    def __str__(self) -> str:
        raise ZeroDivisionError("no text")

    __repr__ = __str__


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("planted"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "BaseException": lambda: Own("planted"),
    "no text": Mute,
}


@dataclass
class Planted:
    """A user function that leaves by an error, each time it is called in a thread of the client."""

    error: Callable[[], BaseException]

    def __call__(self, *_: Any, **__: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return Bad("nowhere", self)
        raise self.error()


class Bad(Processor[Any, Any, Any, Any]):
    """A processor one of whose methods leaves."""

    def __init__(self, where: str, leave: Planted) -> None:
        self._where, self._leave = where, leave

    def init(self, context: Any) -> None:
        self._context = context
        if self._where == "init":
            self._leave()
        if self._where == "punctuate":
            context.schedule(100, "wall-clock-time", self._leave)

    def process(self, record: Record[Any, Any]) -> None:
        if self._where == "process":
            self._leave()
        if self._where == "close":
            raise ValueError("its task ends, so that it is closed")

    def close(self) -> None:
        if self._where == "close":
            self._leave()


Made = tuple[StreamsBuilder, dict[str, Any]]
Function = Callable[["App", Planted], Made]


def stream(app: App, **options: Any) -> tuple[StreamsBuilder, Any]:
    builder = StreamsBuilder()
    return builder, builder.stream(app["in"], **{"key": serdes.STRING, "value": serdes.STRING, **options})


def sunk(builder: StreamsBuilder, lines: Any, app: App, **settings: Any) -> Made:
    lines.to(app["out"], key=serdes.STRING, value=serdes.STRING)
    return builder, settings


def operator(use: Callable[[Any, Planted], Any]) -> Function:
    def make(app: App, leave: Planted) -> Made:
        builder, lines = stream(app)
        return sunk(builder, use(lines, leave), app)

    return make


def processor(where: str) -> Function:
    return operator(lambda lines, leave: lines.process(lambda: Bad(where, leave)))


def fails(_: Any) -> Any:
    raise ValueError("a record that a handler is asked about")


def handled(key: str, use: Callable[[Any], Any] = lambda lines: lines, **options: Any) -> Function:
    def make(app: App, leave: Planted) -> Made:
        builder, lines = stream(app, **options)
        return sunk(builder, use(lines), app, **{key: leave})

    return make


def unreadable(_: Any) -> Any:
    raise ValueError("a value that can't be read")


def source_serde(app: App, leave: Planted) -> Made:
    builder, lines = stream(app, value=Serde(str.encode, leave))
    return sunk(builder, lines, app)


def sink_serde(app: App, leave: Planted) -> Made:
    builder, lines = stream(app)
    lines.to(app["out"], key=serdes.STRING, value=Serde(leave, bytes.decode))
    return builder, {}


def extractor(app: App, leave: Planted) -> Made:
    builder, lines = stream(app, timestamp_extractor=leave)
    return sunk(builder, lines, app)


def partitioner(app: App, leave: Planted) -> Made:
    builder, lines = stream(app)
    lines.to(app["out"], key=serdes.STRING, value=serdes.STRING, partitioner=leave)
    return builder, {}


def topic_extractor(app: App, leave: Planted) -> Made:
    builder, lines = stream(app)
    lines.to(leave, key=serdes.STRING, value=serdes.STRING)
    return builder, {}


def production(app: App, leave: Planted) -> Made:
    builder, lines = stream(app)
    return sunk(builder, lines.map_values(lambda _: "x" * 1_100_000), app, production_exception_handler=leave)


FUNCTIONS: dict[str, Function] = {
    "map_values": operator(lambda lines, leave: lines.map_values(leave)),
    "filter": operator(lambda lines, leave: lines.filter(leave)),
    "aggregate": operator(
        lambda lines, leave: lines.group_by_key().aggregate(str, leave, value=serdes.STRING).to_stream()
    ),
    "Processor.init": processor("init"),
    "Processor.process": processor("process"),
    "punctuation": processor("punctuate"),
    "processor supplier": operator(lambda lines, leave: lines.process(leave)),
    "deserializer": source_serde,
    "serializer": sink_serde,
    "timestamp_extractor": extractor,
    "partitioner": partitioner,
    "topic extractor": topic_extractor,
    "deserialization handler": handled("deserialization_exception_handler", value=Serde(str.encode, unreadable)),
    "processing handler": handled("processing_exception_handler", lambda lines: lines.map_values(fails)),
    "production handler": production,
    "task_assignor": handled("task_assignor"),
}


# -- functions whose errors change nothing, or come on top of another one


def restore_listener(app: App, leave: Planted) -> Made:
    builder, lines = stream(app)
    lines.group_by_key().count("counts").to_stream().to(app["out"], key=serdes.STRING, value=serdes.LONG)
    return builder, {"restore": leave}


def state_listener(app: App, leave: Planted) -> Made:
    return (*sunk(*stream(app), app)[:1], {"listener": leave})


def uncaught_handler(app: App, leave: Planted) -> Made:
    builder, lines = stream(app)
    return sunk(builder, lines.map_values(fails), app, uncaught=leave)


GO_ON: dict[str, Function] = {"state listener": state_listener, "restore listener": restore_listener}
ON_TOP: dict[str, Function] = {"Processor.close": processor("close"), "uncaught exception handler": uncaught_handler}


class Restores:
    """A restore listener that leaves."""

    def __init__(self, leave: Planted) -> None:
        self.on_restore_start = self.on_batch_restored = self.on_restore_end = self.on_restore_suspended = leave


class Table:
    """Each function in an application of its own, all at once."""

    def __init__(self, kafka: str, path: Path, stage: str, error: str) -> None:
        self.kafka, self.path, self.stage, self.error = kafka, path, stage, error
        self.rows: dict[str, str] = {}
        self.ended_s: dict[str, float] = {}

    def client(self, stack: ExitStack, name: str, function: Function) -> Streams:
        app = App(self.kafka, self.path / name.replace(" ", "-"), stack)
        app.create({"in": 1, "out": 1}).write("a")
        builder, settings = function(app, Planted(ERRORS[self.error]))
        given = {key: settings.pop(key, None) for key in ("listener", "restore", "uncaught")}
        limits = {"task_timeout_ms": 8_000, "close_timeout_ms": 20_000}
        streams = app.streams(builder, milestones=self.stage, **limits, **settings)
        began_s = time.monotonic()

        def note(new: StreamsState, _: StreamsState) -> None:
            if new is StreamsState.ERROR:
                self.ended_s[name] = time.monotonic() - began_s

        streams.set_state_listener(given["listener"] or note)
        if given["restore"]:
            streams.set_global_state_restore_listener(Restores(given["restore"]))  # type: ignore[arg-type]
        if given["uncaught"]:
            streams.set_uncaught_exception_handler(given["uncaught"])
        streams.start()
        return streams

    def ended(self, name: str, streams: Streams) -> bool:
        """Note the end of a client, once."""
        if streams.state is StreamsState.ERROR and name not in self.rows:
            error = streams.error
            assert error is not None
            self.rows[name] = f"ERROR after {self.ended_s.get(name, 0.0):4.1f} s, {typed(error)}"[:150]
        return name in self.rows

    def show(self, capsys: pytest.CaptureFixture[str]) -> None:
        with capsys.disabled():
            print(f"\n{self.stage}, {self.error}")
            for name, row in self.rows.items():
                print(f"  {name:28} {row}")


def names_the_function(error: BaseException | None) -> bool:
    return isinstance(error, UserExitError) and f"{__file__}:" in str(error)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What is logged as an error."""
    said: list[str] = []

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Said(logging.ERROR)
    logging.getLogger("milestones").addHandler(handler)
    yield said
    logging.getLogger("milestones").removeHandler(handler)


def row(stage: str, error: str) -> Any:
    by_day = stage == "m6" or (stage == "baseline" and error in ("ValueError", "SystemExit"))
    return pytest.param(stage, error, marks=[] if by_day else [pytest.mark.nightly])


ROWS = [row(stage.name, error) for stage in STAGES for error in ERRORS]


@pytest.mark.parametrize(("stage", "error"), ROWS)
def test_whatever_error_user_code_leaves_by_is_heard_of(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], heard: list[str], stage: str, error: str
) -> None:
    table, exits = Table(kafka, tmp_path, stage, error), not isinstance(ERRORS[error](), Exception)
    with ExitStack() as stack:
        ending = {name: table.client(stack, name, made) for name, made in (FUNCTIONS | ON_TOP).items()}
        lasting = {name: table.client(stack, name, made) for name, made in GO_ON.items()}
        try:
            until(
                lambda: {name for name, one in ending.items() if not table.ended(name, one)} == set()
                or NotYet(str(ending.keys() - table.rows.keys())),
                "each client ends", HEARD_S,
            )  # fmt: skip
            until(lambda: all(one.state is StreamsState.RUNNING for one in lasting.values()), "the others run", HEARD_S)
            table.rows |= dict.fromkeys(lasting, "goes on, with a line in the log")
        finally:
            table.show(capsys)
        if exits:
            asked = ending.keys() - ON_TOP - {"task_assignor"}
            unnamed = {name: ending[name].error for name in asked if not names_the_function(ending[name].error)}
            assert {name: repr(error)[:1_000] for name, error in unnamed.items()} == {}
        assert "task_assignor" in str(ending["task_assignor"].error)
        for line in ("the state listener raised", "a listener of restoration raised", "exception handler raised"):
            assert any(line in one for one in heard)
