"""Stores of the DSL with headers and without, in one directory: what a start finds after a restart, a roll-back, on an
empty disk, a snapshot, and another `dsl_store_format`."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from milestones.common import serdes
from milestones.common.errors import StateFormatError
from milestones.common.records import Headers, Output, TaskId, TopicPartition, output_of
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engine import Engines
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.stores.kinds import with_headers
from milestones.common.state.stores.stores_with_headers import AggregationWithHeaders, ValueTimestampHeaders
from milestones.common.task.task import Task, TaskSettings
from milestones.common.testing import StepClock
from milestones.common.topology import Processor, Topology
from milestones.common.windowed import Windowed

IN, ID = TopicPartition("in", 0), TaskId(0, 0)
ROWS, WINDOWS, SESSIONS = NAMES = ("rows", "windows", "sessions")
SESSION = Windowed("k", 3, 7)
HEADERS: Headers = [("from", b"north"), ("é", None)]


def specs(logged: bool) -> list[StoreSpec]:
    said: Any = {"key_serde": serdes.STRING, "value_serde": serdes.STRING, "logged": logged, "of_dsl": True}
    bounded: Any = {**said, "retention_ms": 100_000}
    return [
        StoreSpec(ROWS, "timestamped-key-value", **said),
        StoreSpec(WINDOWS, "timestamped-window", window_ms=10, **bounded),
        StoreSpec(SESSIONS, "session", **bounded),
    ]


class App:
    """A task of an application, over its starts with one format or the other, and its changelogs."""

    def __init__(self, engines: Engines, home: Path, *, logged: bool = True) -> None:
        self.state = LocalStateManager(StateDirectory(home, "app", StepClock()), engines, "test")
        self.logged = logged
        self.changelogs: dict[str, list[Output]] = {name: [] for name in NAMES}

    def start(self, kept: str, snapshot: Mapping[str, list[Path]] | None = None) -> None:
        """Open the stores, restore what is behind, begin. `kept`: the format. `snapshot`: the files of each store's."""
        topology = Topology()
        topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
        topology.add_processor("worker", Processor, "source")
        for spec in specs(self.logged):
            topology.add_state_store(with_headers(spec) if kept == "headers" else spec, "worker")
        (self.sub,) = topology.resolve("app")
        settings = TaskSettings(application_id="app", clock=StepClock(), partitions_of=lambda _: 1)
        self.task = Task(ID, self.sub, [IN], settings, lambda: self.state.open(ID, self.sub.stores))
        self.task.open()
        for name, files in (snapshot or {}).items():
            list(self.task._stores.ingest(name, files))
            self.task.restore(name, [], len(self.changelogs[name]))
        self.restored = {name: self._restored(name) for name in self.sub.changelogs}
        self.task.start({IN: 0}, {})

    def _restored(self, name: str) -> int:
        """Restores a store; how many records that takes."""
        at, end = self.task.changelog_offsets()[name] or 0, len(self.changelogs[name])
        self.task.restore(name, [*map(message, self.changelogs[name][at:])], end)
        return end - at

    def call(self, function: Callable[[Any, Any, Any], object]) -> Any:
        """User code or an operator, with the three stores."""
        return self.task.call(lambda: function(*map(self.task.store, NAMES)))

    def commit(self) -> None:
        commit = self.task.freeze()
        for output in map(output_of, commit.outputs):
            self.changelogs[output.node].append(output)
        ends = {name: len(outputs) for name, outputs in self.changelogs.items()}
        self.task.applied(commit, ends if self.logged else {})

    def stop(self, *, wiped: bool = False) -> None:
        self.task.close()
        if wiped:
            shutil.rmtree(self.state.directory.task_path(ID))

    def found(self) -> tuple[Any, Any, Any]:
        """The row of each store, as user code sees it."""
        return self.call(  # type: ignore[no-any-return]
            lambda rows, windows, sessions: (rows.get("k"), windows.fetch("k", 20), sessions.fetch_session(*SESSION))
        )


def message(output: Output) -> Message:
    return Message(
        topic=output.topic, partition=0, offset=0, key=output.key, value=output.value, headers=output.headers,
        timestamp=(1, output.timestamp),
    )  # fmt: skip


def operated(rows: Any, windows: Any, sessions: Any) -> None:
    """What operators put."""
    rows.put_raw("k", "v", 5)
    windows.put_window("k", "v", 5, 20)
    sessions.put_raw(SESSION, "v")


def said(rows: Any, windows: Any, sessions: Any) -> None:
    """What a processor puts into stores with headers."""
    rows.put("k", ValueTimestampHeaders("v", 5, HEADERS))
    windows.put("k", ValueTimestampHeaders("v", 5, HEADERS), 20)
    sessions.put(SESSION, AggregationWithHeaders("v", HEADERS))


WITHOUT = (("v", 5), ("v", 5), "v")
NONE_GIVEN = (("v", 5, []), ("v", 5, []), ("v", []))
GIVEN = (("v", 5, HEADERS), ("v", 5, HEADERS), ("v", HEADERS))


@pytest.fixture(autouse=True)
def warnings_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "milestones")


@pytest.fixture
def app(disk_engines: Engines, tmp_path: Path) -> Iterator[App]:
    made = App(disk_engines, tmp_path)
    yield made
    made.stop()


def test_a_restart_finds_the_headers_on_the_disk_and_one_without_a_disk_in_the_changelog(app: App) -> None:
    app.start("headers")
    app.call(said)
    app.commit()
    for wiped, restored in ((False, 0), (True, 1)):
        app.stop(wiped=wiped)
        app.start("headers")
        assert set(app.restored.values()) == {restored}
        assert app.found() == GIVEN


def test_a_roll_back_takes_rows_and_headers_back(app: App) -> None:
    app.start("headers")
    app.call(said)
    app.commit()
    app.call(operated)
    assert app.found() == NONE_GIVEN
    app.task.roll_back()
    app.task.start({IN: 0}, {})
    assert app.found() == GIVEN


def test_what_operators_put_has_no_headers_and_the_bytes_of_stores_without_them(app: App) -> None:
    app.start("headers")
    app.call(operated)
    app.commit()
    assert app.found() == NONE_GIVEN
    local = {name: [*app.task._stores.storage.namespace(name).scan(None, None)] for name in NAMES}
    app.stop(wiped=True)
    app.start("default")
    for name in (ROWS, WINDOWS):
        assert [*app.task._stores.storage.namespace(name).scan(None, None)] == local[name]


def test_stores_get_headers_where_they_had_none_and_sessions_are_restored_for_it(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.start("default")
    app.call(operated)
    app.commit()
    app.stop()
    app.start("headers")
    assert app.restored == {ROWS: 0, WINDOWS: 0, SESSIONS: 1}
    assert app.found() == NONE_GIVEN
    (told,) = caplog.messages
    assert "'sessions'" in told
    assert "as session, now" in told
    assert "restored from its changelog" in told


def test_stores_lose_headers_on_the_way_back_and_all_are_restored_for_it(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.start("headers")
    app.call(said)
    app.commit()
    app.stop()
    app.start("default")
    assert app.restored == dict.fromkeys(NAMES, 1)
    assert app.found() == WITHOUT
    assert len(caplog.messages) == 3
    app.stop()
    app.start("default")
    assert app.restored == dict.fromkeys(NAMES, 0)


@pytest.mark.parametrize(("first", "then", "refused"), [("default", "headers", SESSIONS), ("headers", "default", ROWS)])
def test_a_store_without_a_changelog_that_would_have_to_be_restored_is_refused(
    tmp_path: Path, first: str, then: str, refused: str
) -> None:
    app = App(open_engines("rocksdict"), tmp_path, logged=False)
    app.start(first)
    app.call(operated)
    app.commit()
    app.stop()
    with pytest.raises(StateFormatError, match=rf"'{refused}'.* no changelog .*former dsl_store_format"):
        app.start(then)
    app.start(first)
    assert app.found() == (WITHOUT if first == "default" else NONE_GIVEN)
    app.stop()


def test_a_snapshot_brings_the_headers(app: App, tmp_path: Path) -> None:
    app.start("headers")
    app.call(said)
    app.commit()
    files = {}
    for name in NAMES:
        (tmp_path / "snapshot" / name).mkdir(parents=True)
        writer = SstWriter(tmp_path / "snapshot" / name)
        writer.write(app.task._stores.storage.namespace(name).scan(None, None))
        files[name] = list(writer.files)
    app.stop(wiped=True)
    app.start("headers", files)
    assert set(app.restored.values()) == {0}
    assert app.found() == GIVEN
