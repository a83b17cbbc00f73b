"""The moment of a checkpoint beside commits, which may begin and end between any two steps of looking for it."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milestones.common.records import TaskId
from milestones.common.state.engines.sst import entries as entries_of
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.storage import CommitMade
from milestones.m6_state_manager import subtopology_engine
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.ranges import prefix_of
from milestones.m6_state_manager.snapshots import moments
from milestones.m6_state_manager.snapshots.changed_keys import ChangedKeys, Changes
from milestones.m6_state_manager.snapshots.checkpoint import Checkpoint
from milestones.m6_state_manager.snapshots.moments import Moments
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine
from tests.common.state.interleaving import at_every_place
from tests.common.state.test_snapshot import MANIFEST
from tests.milestones.m6_state_manager.states import TASK
from tests.milestones.m6_state_manager.test_snapshots import Instance

STORE = "counts"
PLACE = (TASK, STORE)


class Life:
    """A store that is written, and its next delta."""

    def __init__(self) -> None:
        self.changed = ChangedKeys()
        self.of = self.changed.range(*TASK)
        self.content: set[bytes] = set()
        self.at_the_moment: set[bytes] = set()
        self.taken: dict[tuple[TaskId, str], Any] = {}
        found = self.changed.take(self.of, [STORE])
        assert found is not None
        self.changed.published(self.of, STORE, found[1][STORE], replace(MANIFEST, id="base"))
        self.commit(b"before")

    def begin(self, key: bytes) -> None:
        self.changed.begin(self.of)
        self.changed.note(self.of, STORE, [key])

    def end(self, key: bytes) -> None:
        self.content.add(key)
        self.changed.end(self.of, leads=True)

    def commit(self, key: bytes) -> None:
        self.begin(key)
        self.end(key)

    def begin_and_write(self, key: bytes) -> None:
        self.begin(key)
        self.content.add(key)

    def look(self) -> Life:
        """Make a checkpoint of it, beside which something happens to the key "beside"; what has begun ends then."""
        database: Any = SimpleNamespace(gate=SimpleNamespace(reason=""), linked=0, epoch=0, folder="f", path="p")
        wanted: Any = [SimpleNamespace(task=TASK, store=STORE, place=PLACE)]
        self.taken, jobs = Moments(self.changed).checkpoint(database, Path("of/nothing"), lambda: wanted)
        assert [job.place for job in jobs] == list(self.taken)
        if not self.changed.whole(self.of):
            self.end(b"beside")
        return self

    def next(self) -> Changes:
        found = self.changed.take(self.of, [STORE])
        assert found is not None
        return found[1][STORE]


@pytest.mark.parametrize("meanwhile", [Life.begin, Life.begin_and_write, Life.commit])
def test_a_write_beside_a_checkpoint_is_in_the_delta_that_has_it_or_in_the_next_one(
    meanwhile: Callable[[Life, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "TRIES", 2)
    monkeypatch.setattr(moments, "PAUSE_S", 0)

    def prepare() -> tuple[Callable[[], Life], Callable[[], None]]:
        life = Life()

        class Cut:
            def __init__(self, *_: object) -> None: ...
            def begin(self) -> None: ...
            def finish(self) -> None: ...
            def cut(self) -> None:
                life.at_the_moment = set(life.content)

        monkeypatch.setattr(moments, "Checkpoint", Cut)
        return life.look, lambda: meanwhile(life, b"beside")

    made = 0
    for life in at_every_place(moments, prepare):
        following = life.next()
        if PLACE not in life.taken:
            assert following.keys == {b"before", b"beside"}
            continue
        made += 1
        taken = life.taken[PLACE][1].keys
        assert b"before" in taken
        assert (b"beside" in taken) == (b"beside" in life.at_the_moment), "a delta that lacks a write, or its value"
        assert (b"beside" in taken) or following.keys == {b"beside"}
    assert made > 5


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns at each step, as under a profiler."""
    interval, former = sys.getswitchinterval(), threading.getprofile()
    sys.setswitchinterval(1e-5)
    threading.setprofile(lambda *_: None)
    yield
    sys.setswitchinterval(interval)
    threading.setprofile(former)


class Committing(threading.Thread):
    """Commits a few keys of a task after each other. `journal`: what each commit wrote, with the offset behind it."""

    def __init__(self, storage: Any, committed: threading.Condition) -> None:
        super().__init__(name="committing", daemon=True)
        self.journal: list[tuple[int, dict[bytes, bytes]]] = []
        self._storage, self._committed, self._over = storage, committed, threading.Event()

    def run(self) -> None:
        offset, batch = 0, {b"%04d" % number: b"0" for number in range(2_000)}
        while not self._over.wait(0.002):
            offset += len(batch)
            self._storage.note(CommitMade(offset, {}, {}))
            self._storage.apply({STORE: batch}, {STORE: offset})
            with self._committed:
                self.journal.append((offset, batch))
                self._committed.notify_all()
            batch = {b"%04d" % (offset * 7 % 2_000 + number): b"%d" % offset for number in range(3)}

    def had(self, offset: int) -> dict[bytes, bytes]:
        return {key: value for at, batch in list(self.journal) if at <= offset for key, value in batch.items()}

    def end(self) -> None:
        self._over.set()
        self.join()


@pytest.mark.usefixtures("impatient")
def test_each_snapshot_beside_tasks_that_commit_is_what_the_store_had_at_its_offset(
    tmp_path: Path, manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, committed = Instance(tmp_path, manager), threading.Condition()
    instance.ends = 10**9
    tasks = {task: Committing(storage, committed) for task, storage in instance.storages.items()}
    cut, cuts = Checkpoint.cut, itertools.count()

    def cuts_behind_a_commit(checkpoint: Checkpoint) -> None:
        if next(cuts) % 3 == 0:  # as when the thread that looks loses the processor
            wait_for_commits(tasks, committed)
        cut(checkpoint)

    monkeypatch.setattr(Checkpoint, "cut", cuts_behind_a_commit)
    for task in tasks.values():
        task.start()
    wait_for_commits(tasks, committed)
    repository, seen = SnapshotRepository(instance.url, "words"), dict[str, int]()
    try:
        while len(seen) < 8:
            instance.after_interval()
            for id, task in tasks.items():
                manifest = instance.newest(id)
                if manifest is not None and manifest.id not in seen:
                    seen[manifest.id] = manifest.deltas
                    fetched = repository.fetch(manifest, tmp_path / "fetched")
                    assert dict(entries_of(fetched.files, prefix_of(id.partition))) == task.had(manifest.offset)
                    fetched.remove()
    finally:
        for task in tasks.values():
            task.end()
        instance.maker.close()
        for storage in instance.storages.values():
            storage.close()
    assert any(seen.values())


def wait_for_commits(tasks: Mapping[TaskId, Committing], committed: threading.Condition) -> None:
    """Until each of the tasks has made one more commit."""
    with committed:
        here = {id: len(task.journal) for id, task in tasks.items()}
        assert committed.wait_for(lambda: all(len(tasks[id].journal) > count for id, count in here.items()), 60)


def test_each_step_that_links_something_in_counts_whatever_threads_make_it() -> None:
    made: list[tuple[Any, threading.Thread]] = []

    def prepare() -> tuple[Callable[[], None], Callable[[], None]]:
        database: Any = SimpleNamespace(linked=0, _linking=threading.Lock())
        other = threading.Thread(target=SubtopologyEngine._note_link, args=(database,))
        made.append((database, other))

        def meanwhile() -> None:
            other.start()
            other.join(0.05)  # it may have to wait

        return lambda: SubtopologyEngine._note_link(database), meanwhile

    at_every_place(subtopology_engine, prepare)
    for database, other in made[:-1]:
        other.join()
        assert database.linked == 2
