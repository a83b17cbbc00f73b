"""Stores that begin with a snapshot: on every stage's restoration, whatever becomes of the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from milestones.baseline.restoration import InlineRestoration
from milestones.common.records import TopicPartition
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.snapshots.repository import LocalSnapshot, described
from milestones.common.state.snapshots.snapshot import INSTANCE, SnapshotManifest
from milestones.common.state.steps import STEP_ENTRIES
from milestones.common.task.changelog_task import ChangelogTask
from milestones.m1_state_updater.reader_hooks import UpdaterHooks
from milestones.restoration.changelog_reader import ChangelogReader
from tests.milestones.baseline.test_restoration import Restoring as InlineRestoring
from tests.milestones.fakes import CHANGELOG, LOG, A, World, counting


@dataclass
class Asked:
    """A request that the test answers. `answer` None: not yet."""

    answer: Mapping[str, LocalSnapshot] | None = None
    closed: bool = False

    def take(self, now_ms: int) -> Mapping[str, LocalSnapshot] | None:
        return self.answer

    def close(self) -> None:
        self.closed = True


@dataclass
class Source:
    """`SnapshotSource`: answers with `snapshots`, unless it `holds`."""

    snapshots: dict[str, LocalSnapshot] = field(default_factory=dict)
    holds: bool = False
    asked: list[Asked] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)

    def ask(self, task: ChangelogTask) -> Asked | None:
        empty = [store for store, offset in task.changelog_offsets().items() if offset is None]
        if not empty:
            return None
        self.stores += empty
        self.asked.append(Asked(None if self.holds else self.snapshots))
        return self.asked[-1]

    def start(self) -> None: ...

    def close(self) -> None: ...


class Restoring(InlineRestoring):
    """A restoration of task 0_0, with snapshots to be had."""

    def __init__(self, make: Callable[[Any, Any], ChangelogReader], directory: Path) -> None:
        super().__init__(World(), make)
        self.source, self.directory = Source(), directory
        self.world.context = replace(self.world.context, snapshots=self.source)
        self.restoration = make(self.world.context, self.world.clients)

    def snapshot(
        self, content: Mapping[bytes, bytes | None], offset: int, *, topic_id: str | None = None,
        on: LocalSnapshot | None = None, **fields: Any,
    ) -> LocalSnapshot:  # fmt: skip
        """To be had for the store: a base, or a delta `on` another one. `fields`: of its manifest."""
        folder, id = self.directory / uuid4().hex, "base" if on is None else "delta"
        folder.mkdir()
        writer = SstWriter(folder)
        writer.write(iter(sorted(content.items())))
        files = tuple(described(path, count, writer.deletions[path]) for path, count in writer.files.items())
        manifest = SnapshotManifest(
            id, "app", "counts", "key-value", 1, CHANGELOG, topic_id, 0, offset, 0, None, files, made_by=INSTANCE,
        )  # fmt: skip
        manifest = replace(manifest, **fields)
        snapshot = LocalSnapshot(manifest if on is None else on.manifest.with_delta(manifest), folder)
        if on is not None:
            for before, path in zip(on.files, snapshot.files, strict=False):
                before.rename(path)
        self.source.snapshots["counts"] = snapshot
        return snapshot

    @property
    def rows(self) -> dict[bytes, bytes]:
        return self.world.state.content(A)


def updating(context: Any, clients: Any) -> ChangelogReader:
    """As a state updater restores."""
    return ChangelogReader(context, clients, UpdaterHooks(context.config.restore_active_weight))


@pytest.fixture(params=[InlineRestoration, updating])
def r(request: pytest.FixtureRequest, tmp_path: Path) -> Restoring:
    return Restoring(request.param, tmp_path)


def test_an_empty_store_begins_with_its_snapshot_and_reads_only_the_rest(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a").add("2", key="b").add("3", key="a")
    snapshot = r.snapshot({b"a": b"1", b"z": b"from the snapshot"}, 2)
    task = r.add()
    assert r.step(5) == [task]
    assert r.rows == {b"a": b"3", b"z": b"from the snapshot"}
    assert r.world.state.offset(A) == 3
    assert r.world.restorer.moves == [{LOG: 2}]
    assert not snapshot.directory.exists()


def test_a_snapshot_of_the_whole_changelog_completes_a_store_without_a_fetch(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a").control(2)
    r.snapshot({b"a": b"1"}, 3)
    task = r.add()
    assert r.step(4) == [task]
    assert (r.rows, r.world.state.offset(A), r.world.restorer.moves) == ({b"a": b"1"}, 3, [])


def test_a_store_begins_with_a_delta_as_with_what_it_comes_to(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a").add("2", key="b").add("3", key="c")
    base = r.snapshot({b"a": b"1", b"b": b"1", b"z": b"1"}, 1)
    delta = r.snapshot({b"a": None, b"b": b"2", b"d": b"4"}, 2, on=base)
    task = r.add()
    assert r.step(5) == [task]
    assert (r.rows, r.world.state.offset(A)) == ({b"b": b"2", b"c": b"3", b"d": b"4", b"z": b"1"}, 3)
    assert not delta.directory.exists()


def test_keys_are_taken_in_without_what_a_snapshot_has_in_front_and_without_what_is_gone(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a").add("2", key="b")
    content = {b"\0\0\0\0" + key: b"1" for key in (b"a", b"z", b"gone")}
    r.snapshot(content, 1, key_prefix=b"\0\0\0\0", gone=((b"g", b"h"),))
    task = r.add()
    assert r.step(5) == [task]
    assert (r.rows, r.world.state.offset(A)) == ({b"a": b"1", b"b": b"2", b"z": b"1"}, 2)


def test_a_standby_begins_with_a_snapshot_too(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a").add("2", key="b")
    r.snapshot({b"a": b"1"}, 1)
    standby = r.world.state.create_standby(A)
    r.restoration.add_standby(standby)
    r.step(5)
    assert (r.rows, r.world.state.offset(A)) == ({b"a": b"1", b"b": b"2"}, 2)


def test_where_the_changelog_ends_is_asked_only_once_the_snapshot_is_there(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a").add("2", key="b")
    snapshot = r.snapshot({b"a": b"1"}, 1)
    r.source.holds = r.world.requests.holds = True
    task = r.add()
    assert r.step(5) == []
    assert r.world.requests.questions == []
    r.source.asked[0].answer = {"counts": snapshot}
    r.step()
    assert len(r.world.requests.questions) == 1
    r.world.requests.answer()
    assert r.step(4) == [task]


def test_a_store_that_has_content_asks_for_none(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a").add("2", key="b")
    task = r.world.task()
    task.restore("counts", [r.world.logs[LOG].entries[0]], 1)  # type: ignore[list-item]
    r.restoration.add(task, {})
    assert r.step(4) == [task]
    assert (r.source.stores, r.world.restorer.moves) == ([], [{LOG: 1}])


def test_nothing_there_means_the_whole_changelog(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a")
    task = r.add()
    assert r.step(4) == [task]
    assert (r.rows, r.source.stores) == ({b"a": b"1"}, ["counts"])


@pytest.mark.parametrize("why", ["another topic", "beyond the end", "before the beginning", "damaged"])
def test_a_snapshot_that_is_no_use_is_a_warning_and_nothing_is_lost(
    r: Restoring, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    r.world.logs[LOG].add("1", key="a").add("2", key="b").add("3", key="c")
    r.world.requests.topic_ids = {CHANGELOG: "now"}
    if why == "before the beginning":
        r.world.logs[LOG].cut_to(2)
    offset = 9 if why == "beyond the end" else 1
    snapshot = r.snapshot({b"wrong": b"1"}, offset, topic_id="then" if why == "another topic" else "now")
    if why == "damaged":
        snapshot.files[0].write_bytes(b"no table")
    task = r.add()
    assert r.step(5) == [task]
    expected = {b"c": b"3"} if why == "before the beginning" else {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert (r.rows, r.world.state.offset(A)) == (expected, 3)
    assert "is no use" in caplog.text
    assert not snapshot.directory.exists()


def test_a_table_that_is_restored_from_its_source_takes_no_snapshot_beyond_what_is_committed(tmp_path: Path) -> None:
    source = TopicPartition("in", 0)
    for committed in (1, 2):
        r = Restoring(InlineRestoration, tmp_path)
        r.world = World(counting(source_topic="in"))
        r.world.context = replace(r.world.context, snapshots=r.source)
        r.restoration = InlineRestoration(r.world.context, r.world.clients)  # type: ignore[arg-type]
        r.world.logs[source].add("1", key="a").add("2", key="b").add("3", key="c")
        r.snapshot({b"snap": b"shot"}, 2)
        task = r.world.task()
        r.restoration.add(task, {source: committed})
        assert r.step(5) == [task]
        assert r.rows == ({b"snap": b"shot"} if committed == 2 else {b"a": b"1"})
        assert r.world.restorer.moves == ([] if committed == 2 else [{source: 0}])


# -- leaving before the end


def test_a_task_that_leaves_while_its_snapshot_is_on_its_way_wants_it_no_more(r: Restoring) -> None:
    r.source.holds = True
    task = r.add()
    r.step()
    r.restoration.remove(A)
    assert (r.restoration.take_removed(), r.source.asked[0].closed) == ([task], True)


def test_a_task_that_leaves_before_its_snapshot_was_taken_in_leaves_no_files(r: Restoring) -> None:
    snapshot = r.snapshot({b"a": b"1"}, 1)
    r.world.logs[LOG].add("1")
    r.world.requests.holds = True
    r.add()
    r.step(2)
    r.restoration.remove(A)
    assert not snapshot.directory.exists()


def test_no_other_task_is_made_of_a_store_with_half_a_snapshot_before_it_is_opened_anew(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a").add("2", key="b")
    snapshot = r.snapshot({b"%06d" % number: b"x" for number in range(3 * STEP_ENTRIES)}, 1)
    task = r.add()
    r.step()
    assert 0 < len(r.rows) < 3 * STEP_ENTRIES
    r.restoration.remove(A, recycled=True)
    assert r.restoration.take_removed() == [task]
    assert (task.reusable, task.changelog_offsets()) == (False, {"counts": None})
    assert not snapshot.directory.exists()


def test_a_task_that_changes_its_role_with_a_whole_snapshot_may_give_its_stores_away(r: Restoring) -> None:
    r.world.logs[LOG].add("1", key="a").add("2", key="b")
    r.snapshot({b"a": b"1"}, 1)
    task = r.add()
    r.step(4)
    assert (r.rows, task.reusable) == ({b"a": b"1", b"b": b"2"}, True)
