"""Whatever a thread of ours dies of, its owner hears of it: the client is in ERROR within seconds, or goes on. For
every class that is a thread and every function that one is made for; one that isn't in the tables fails a test."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from milestones import Streams, StreamsBuilder, StreamsState, serdes
from milestones.client.supervisor import Supervisor
from milestones.common.kafka.blocking_call import CallThread
from milestones.common.kafka.membership.machine import MemberMachine
from milestones.common.mailbox import Mailbox
from milestones.common.metrics import Metrics, MetricsEndpoint
from milestones.common.testing import StepClock
from milestones.ended_tasks.handler_thread import HandlerThread
from milestones.global_stores.thread import GlobalStreamThread
from milestones.instance.admin_thread import Housekeeper
from milestones.instance.snapshot_fetcher import FetchQueue, SnapshotFetcher
from milestones.instance.thread_registry import ThreadRegistry
from milestones.m1_state_updater.engine_metrics import EngineMetricsThread
from milestones.m1_state_updater.opening import StoreOpener
from milestones.m1_state_updater.updater import StateUpdater
from milestones.m2_processing_threads.worker import Worker
from milestones.m6_state_manager.mending.mender import Mending, MendingThread
from milestones.m6_state_manager.state_thread import CompactionThread, StateKeeper
from milestones.stream_thread.loop import StreamLoop
from tests.milestones.app import App
from tests.sources import files

Failing = Callable[..., Any]
ERRORS = pytest.mark.parametrize("error", [RuntimeError("planted"), SystemExit("planted")], ids=["Runtime", "Exit"])
ON_A_BROKER = pytest.mark.parametrize(
    "error",
    [RuntimeError("planted"), pytest.param(SystemExit("planted"), marks=pytest.mark.nightly)],
    ids=["Runtime", "Exit"],
)
WAIT_S = 30

ENDS: dict[str, tuple[str, type, str]] = {
    "StreamThread": ("baseline", StreamLoop, "run_once"),
    "PollingThread": ("m4", StreamLoop, "run_once"),
    "ProcessingThread": ("m3", Worker, "run_once"),
    "UpdaterThread": ("m3", StateUpdater, "run_once"),
    "OpenerThread": ("m3", StoreOpener, "run_once"),
    "StateThread": ("m6", StateKeeper, "run_once"),
    "Housekeeper": ("m6", Housekeeper, "run_once"),
    "GlobalStreamThread": ("m6", GlobalStreamThread, "run_once"),
    "GroupMember": ("m6", MemberMachine, "run_once"),
    "Supervisor": ("m6", Supervisor, "_next_event"),
}
"""The client ends: by thread the stage, and the step that raises from some time on."""

AT_THE_START = {"OpenerThread", "UpdaterThread"}
"""Threads that have something to do only while tasks come; another one takes their place where it isn't needed."""

GOES_ON = {
    "EngineMetricsThread", "SnapshotFetcher", "CompactionThread", "MendingThread", "MetricsEndpoint", "CallThread",
    "called_aside", "HandlerThread",
}  # fmt: skip
"""Each has a test of its own below: the client goes on, or the thread's owner raises the error."""

APART = {
    "Driver": "a run on Spark: tests/pipeline/test_driver_ends.py",
    "SparkThread": "a run on Spark: its driver's mailbox is closed by the error",
    "Observer": "the base of EngineMetricsThread",
    "Feeder": "the demo's, which keeps the error",
    "DemoInstance": "the demo's",
    "_report": "the demo's",
    "self._ask": "a conversion's: each job is answered by its error, and its thread asks for the next one",
    "_end_with_parent": "ends a helper process with its parent",
    "take": "ends a helper process with its parent",
    "starting": "a start by run(), which raises the error",
    "_read": "the demo's",
    "LinePump": "a command with workers, which ends with an error: tests/milestones/workers/test_parent.py",
    "guarded": "a command with workers, as LinePump",
    "_watch": "a worker, which ends with it",
    "self._server.serve_forever": "a command with workers: its probes get no answer any more",
    "_ask": "a command with workers: the answer says that a worker doesn't answer",
}


def made() -> set[str]:
    """The classes that are threads, and the classes and functions that make one, in what is shipped."""
    found: set[str] = set()
    bases = {"Thread"}
    trees = [ast.parse(path.read_text()) for path in files("common", "milestones", "pipeline")]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for _ in range(3):
        bases |= {one.name for one in classes if {ast.unparse(base).split(".")[-1] for base in one.bases} & bases}
    found |= bases - {"Thread"}
    for call in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "threading.Thread":
            found |= {ast.unparse(word.value) for word in call.keywords if word.arg == "target"}
    return found


TARGETS = {
    "self._serve": "MetricsEndpoint", "self._run": "GroupMember, CallThread, Supervisor", "self.run": "SnapshotFetcher",
    "call": "called_aside", "self._read": "_read", "take": "take", "_end_with_parent": "_end_with_parent",
    "_report": "_report", "starting": "starting", "self._watch": "_watch",
}  # fmt: skip


def test_each_thread_is_in_a_table_of_this_page() -> None:
    known = ENDS.keys() | GOES_ON | APART.keys()
    names = {name for one in made() for name in TARGETS.get(one, one).split(", ")}
    assert names - known == set(), "say what becomes of the client when such a thread dies"
    assert (ENDS.keys() | GOES_ON) - names == set()


def client(app: App, stage: str) -> Streams:
    app.create({"in": 1, "out": 1}).create({"table": 1}, **{"cleanup.policy": "compact"})
    (app.path / "snapshots").mkdir()
    builder = StreamsBuilder()
    builder.global_table(app["table"], key=serdes.STRING, value=serdes.STRING)
    lines = builder.stream(app["in"], key=serdes.STRING, value=serdes.STRING)
    lines.group_by_key().count("counts").to_stream().to(app["out"], key=serdes.STRING, value=serdes.LONG)
    return app.start(
        builder, milestones=stage, snapshot_url=(app.path / "snapshots").as_uri(), state_sync_interval_ms=200,
        close_timeout_ms=20_000,
    )  # fmt: skip


def failing(error: BaseException) -> Failing:
    def step(*_: Any, **__: Any) -> Any:
        raise error

    return step


@pytest.mark.kafka
@ON_A_BROKER
@pytest.mark.parametrize("thread", ENDS)
def test_the_client_is_in_error_within_seconds_when_a_thread_dies(
    app: App, monkeypatch: pytest.MonkeyPatch, thread: str, error: BaseException
) -> None:
    stage, owner, step = ENDS[thread]
    if thread in AT_THE_START:
        monkeypatch.setattr(owner, step, failing(error))
    streams = client(app, stage)
    if thread not in AT_THE_START:
        app.write("a")
        assert len(app.take("out", 1)) == 1
        monkeypatch.setattr(owner, step, failing(error))
    assert streams.wait(WAIT_S), str(streams.status())
    assert streams.state is StreamsState.ERROR
    assert streams.error is not None
    assert "planted" in f"{streams.error} {streams.error.__cause__}"


@pytest.mark.kafka
@pytest.mark.parametrize("thread", sorted(AT_THE_START))
def test_a_running_client_whose_restoring_thread_dies_is_in_error_and_another_one_has_its_tasks(
    app: App, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    """These work while a client runs when another one comes: a task is closed, or goes on as a standby."""
    stage, owner, name = ENDS[thread]
    step = getattr(owner, name)
    app.create({"in": 2, "out": 1})
    settings: dict[str, Any] = {"milestones": stage, "num_standby_replicas": int(thread == "UpdaterThread")}
    first = app.start(app.counting(), "first", client_id="first", **settings)
    app.runs(first, 2)

    def step_or_die(*given: Any, **named: Any) -> Any:
        if threading.current_thread().name.startswith("first"):
            raise RuntimeError("planted")
        return step(*given, **named)

    monkeypatch.setattr(owner, name, step_or_die)
    second = app.start(app.counting(), "second", client_id="second", **settings)
    assert first.wait(WAIT_S), str(first.status())
    assert first.state is StreamsState.ERROR
    assert "planted" in f"{first.error} {getattr(first.error, '__cause__', None)}"
    app.runs(second, 2)
    for partition in range(2):
        app.write("a", partition=partition, key=str(partition))
    assert {record.key for record in app.take("out", 2)} == {b"0", b"1"}


@pytest.mark.kafka
@ON_A_BROKER
@pytest.mark.parametrize(
    ("stage", "owner"), [("m3", EngineMetricsThread), ("m6", SnapshotFetcher)], ids=["metrics", "snapshots"]
)
def test_the_client_goes_on_when_a_thread_dies_that_it_can_do_without(
    app: App, monkeypatch: pytest.MonkeyPatch, stage: str, owner: type, error: BaseException
) -> None:
    monkeypatch.setattr(owner, "run_once", failing(error))
    streams = client(app, stage)
    app.write("a")
    assert len(app.take("out", 1)) == 1
    assert streams.state is StreamsState.RUNNING


@ERRORS
def test_a_compaction_and_a_mending_that_die_leave_their_work_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    database: Any = SimpleNamespace(wiped=SimpleNamespace(take=lambda: "span"), compact=failing(error), number=0)
    CompactionThread("app-State-compaction", [database]).run()
    monkeypatch.setattr(Mending, "__init__", lambda *_: None)
    monkeypatch.setattr(Mending, "run", failing(error))
    MendingThread("app-State-mending-0", database, Any, threading.Event()).run()  # type: ignore[arg-type]
    assert [record.getMessage() for record in caplog.records] == [
        "app-State-compaction ends, and another one follows", "sub-topology 0 can't be mended now, and its writes wait",
    ]  # fmt: skip


@ERRORS
def test_an_error_of_a_handler_thread_is_raised_where_its_answers_are_taken(error: BaseException) -> None:
    answers: Mailbox[int] = Mailbox(10)
    thread = HandlerThread("app-Handler", ThreadRegistry().helping(1), [lambda: 1, failing(error)], answers)
    thread.start()
    thread.join(WAIT_S)
    assert answers.get(0) == 1
    with pytest.raises(Exception, match="planted"):
        answers.get(0)


@ERRORS
def test_an_error_of_a_call_thread_is_raised_in_its_owners_thread(error: BaseException) -> None:
    thread = CallThread("calls", lambda: None)
    with pytest.raises(type(error), match="planted"):
        thread.call(failing(error), WAIT_S * 1_000)
    thread.call(lambda: None, WAIT_S * 1_000)
    thread.close()


@ERRORS
def test_the_metrics_server_serves_again_after_an_error(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("milestones.common.metrics.export.AGAIN_S", 0.0)
    tries: list[int] = []
    again = threading.Event()
    from milestones.common.metrics.export import WSGIServer

    serve = WSGIServer.serve_forever

    def serve_forever(self: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise error
        again.set()
        serve(self)

    monkeypatch.setattr(WSGIServer, "serve_forever", serve_forever)
    endpoint = MetricsEndpoint(Metrics(StepClock(0)), "127.0.0.1", 0)
    assert again.wait(WAIT_S)
    endpoint.close()
    assert "metrics-127.0.0.1 has failed, and serves again" in caplog.text


def test_a_fetch_queue_that_was_closed_by_an_error_takes_no_more() -> None:
    queue = FetchQueue()
    queue.close(RuntimeError("planted"))
    raised = []
    for _ in range(2):
        with pytest.raises(RuntimeError, match="planted") as one:
            queue.put(Any, (0,))  # type: ignore[arg-type]
        raised.append(one.value)
    assert raised[0] is not raised[1], "two threads may raise at once"
