"""Instances of every stage that restore from what a real Spark has made of a changelog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from compat_tests.network.serving import Quiet, serving
from milestones import StateRestoreListener, Streams, StreamsState
from milestones.common.records import TopicPartition
from milestones.common.state.engines import sst
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.flags import STAGES
from milestones.m6_state_manager import task_storage
from milestones.m6_state_manager.reading import on_disk
from tests.pipeline.snapshots.apps import TIMEOUT_S, App, Entries
from tests.topics import named

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NAMES = [stage.name for stage in STAGES]


class Told(StateRestoreListener):
    def __init__(self) -> None:
        self.restored: dict[int, int] = {}
        self.done = threading.Event()

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        self.restored[partition.partition] = total_restored
        if len(self.restored) == 2:
            self.done.set()


def restored(app: App, stage: str, url: str | None) -> tuple[dict[int, int], dict[int, Entries]]:
    """Records read by an instance with an empty disk, and what its stores have."""
    told, state_dir = Told(), app.directory / named("state")
    config = app.config.replace(milestones=stage, state_dir=str(state_dir), snapshot_url=url)
    streams = Streams(app.topology, config)
    streams.set_global_state_restore_listener(told)
    streams.start()
    try:
        assert told.done.wait(TIMEOUT_S), streams.status()
    finally:
        assert streams.close(TIMEOUT_S)
    assert streams.state is StreamsState.NOT_RUNNING
    on_its_disk = on_disk(state_dir / app.name, RocksDictEngines())
    found = {store.task.partition: dict(store.entries) for _, store in on_its_disk}
    return told.restored, found


@pytest.fixture
def served(app: App) -> Iterator[str]:
    """The snapshots, over HTTP on loopback."""
    (app.directory / "snapshots").mkdir()
    with serving(partial(Quiet, directory=str(app.directory / "snapshots"))) as url:
        yield url


def filled(app: App, *stages: str) -> None:
    """A changelog, its snapshot, and what came after that. `stages`: for each of them one, below the URL."""
    for partition in (0, 1):
        app.write(*((f"key-{number % 700}", str(number)) for number in range(1_000)), partition=partition)
        app.write(*((f"key-{number}", None) for number in range(0, 700, 7)), partition=partition)
    for place, settings in [(f"/{stage}", {"milestones": stage}) for stage in stages] or [("", {})]:
        app.compact(f"{app.url}{place}", **settings)
    for partition in (0, 1):
        app.write(("key-1", None), ("key-0", "back"), ("new", "1"), partition=partition)
        app.write(("key-2", "aborted"), partition=partition, end="abort")


@pytest.mark.parametrize("stage", NAMES)
def test_an_empty_instance_reads_only_what_came_after_the_snapshot_and_has_the_same_content(
    app: App, stage: str, served: str
) -> None:
    """Whichever stage the snapshot was made for."""
    filled(app, "m5", "m6")
    replayed, expected = restored(app, stage, None)
    assert replayed == {0: 1_103, 1: 1_103}
    assert [len(expected[partition]) for partition in (0, 1)] == [601, 601]
    for url in (f"{app.url}/m5", f"{served}/m6/"):
        assert restored(app, stage, url) == ({0: 3, 1: 3}, expected)


@pytest.mark.parametrize(("stage", "others"), [("m5", "m6"), ("m6", "m5")])
def test_an_instance_links_what_was_made_for_its_stage_and_writes_what_was_made_for_another(
    app: App, stage: str, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(app, stage, others)
    written: list[str] = []
    write = sst.write_entries
    for module in (sst, task_storage):
        monkeypatch.setattr(module, "write_entries", lambda *args: (written.append(args[1]), write(*args))[1])
    contents = []
    for made_for, by_writing in ((stage, []), (others, ["counts", "counts"])):
        written.clear()
        contents.append(restored(app, stage, f"{app.url}/{made_for}"))
        assert (written, contents[-1][0]) == (by_writing, {0: 3, 1: 3})
    assert contents[0] == contents[1]


@pytest.mark.parametrize("stage", NAMES)
@pytest.mark.parametrize("trouble", ["unreachable", "damaged"])
def test_without_a_usable_snapshot_an_instance_warns_and_has_the_same_content(
    app: App, stage: str, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(app)
    for file in (app.directory / "snapshots").rglob("*.sst"):
        file.write_bytes(file.read_bytes()[:-100])
    url = "http://127.0.0.1:1/snapshots" if trouble == "unreachable" else app.url
    with caplog.at_level(logging.WARNING):
        counts, content = restored(app, stage, url)
    assert "is restored from its changelog" in caplog.text
    assert counts == {0: 1_103, 1: 1_103}
    assert content == restored(app, stage, None)[1]
