"""A store of each kind begins with the instance's snapshots, a base and deltas on it, as with its changelog alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from milestones import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.snapshots import snapshot
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.snapshots.snapshot import SnapshotManifest
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores import kinds
from milestones.common.testing import StepClock
from milestones.common.topology.handlers import LogAndContinue
from milestones.common.windowed import Windowed
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending.database_folder import DATABASE
from milestones.m6_state_manager.snapshots.jobs import CheckpointJob, PartitionJob, SnapshotResult
from milestones.m6_state_manager.snapshots.maker import _with
from milestones.m6_state_manager.snapshots.moments import Moments
from milestones.m6_state_manager.snapshots.process import Maker
from milestones.restoration.snapshot_ingestion import ingest
from tests.common.task.harness import Harness, a_store, message, processing

TASK, KEYS, WINDOW_MS, RETENTION_MS = TaskId(0, 0), [f"key-{number}" for number in range(30)], 10_000, 120_000
BOUNDED = {"window_ms": WINDOW_MS, "retention_ms": RETENTION_MS}
ROUNDS, STEPS = 2, 8

Call = Callable[[Any, random.Random, int], object]
"""What user code does to a store at a time."""


def key(rng: random.Random) -> str:
    return rng.choice(KEYS)


def value(rng: random.Random) -> str | None:
    return None if rng.random() < 0.3 else f"value-{rng.randrange(1_000)}"


def put(store: Any, rng: random.Random, _: int) -> None:
    store.get(key(rng))
    store.put(key(rng), value(rng))


def put_timed(store: Any, rng: random.Random, time: int, *more: int) -> None:
    new = value(rng)
    store.put(key(rng), new and ValueAndTimestamp(new, time), *more)


def put_with_headers(store: Any, rng: random.Random, time: int, *more: int) -> None:
    new = value(rng)
    store.put(key(rng), new and ValueTimestampHeaders(new, time, [("header", b"%d" % rng.randrange(9))]), *more)


def put_version(store: Any, rng: random.Random, time: int) -> None:
    store.put(key(rng), value(rng), time)


def put_window(store: Any, rng: random.Random, time: int) -> None:
    store.put(key(rng), value(rng), time // WINDOW_MS * WINDOW_MS)


def put_duplicate(store: Any, rng: random.Random, time: int) -> None:
    store.put(key(rng), value(rng) or "another", time // WINDOW_MS * WINDOW_MS)


def put_timed_window(store: Any, rng: random.Random, time: int) -> None:
    put_timed(store, rng, time, time // WINDOW_MS * WINDOW_MS)


def put_window_with_headers(store: Any, rng: random.Random, time: int) -> None:
    put_with_headers(store, rng, time, time // WINDOW_MS * WINDOW_MS)


def session(rng: random.Random, time: int) -> Windowed[str]:
    return Windowed(key(rng), max(0, time - rng.randrange(3_000)), time)


def put_session(store: Any, rng: random.Random, time: int) -> None:
    store.put(session(rng, time), value(rng))


def put_session_with_headers(store: Any, rng: random.Random, time: int) -> None:
    new = value(rng)
    store.put(session(rng, time), new and AggregationWithHeaders(new, [("header", b"1")]))


STORES: Mapping[str, tuple[StoreSpec, Call]] = {
    "key-value": (a_store(), put),
    "timestamped-key-value": (a_store(kind="timestamped-key-value"), put_timed),
    "timestamped-key-value-with-headers": (a_store(kind="timestamped-key-value-with-headers"), put_with_headers),
    "lru": (a_store(kind="lru", max_entries=12), put),
    "expiring-key-value": (a_store(kind="expiring-key-value", ttl_ms=60_000), put),
    "versioned": (a_store(kind="versioned", retention_ms=RETENTION_MS), put_version),
    "versioned, many segments": (
        a_store(kind="versioned", retention_ms=RETENTION_MS, segment_interval_ms=7_000), put_version,
    ),
    "window": (a_store(kind="window", **BOUNDED), put_window),
    "window, with duplicates": (a_store(kind="window", duplicates=True, **BOUNDED), put_duplicate),
    "timestamped-window": (a_store(kind="timestamped-window", **BOUNDED), put_timed_window),
    "timestamped-window, closing": (a_store(kind="timestamped-window", closing=True, **BOUNDED), put_timed_window),
    "timestamped-window-with-headers": (
        a_store(kind="timestamped-window-with-headers", **BOUNDED), put_window_with_headers,
    ),
    "session": (a_store(kind="session", retention_ms=RETENTION_MS), put_session),
    "session, closing": (a_store(kind="session", retention_ms=RETENTION_MS, closing=True), put_session),
    "session-with-headers": (a_store(kind="session-with-headers", retention_ms=RETENTION_MS), put_session_with_headers),
}  # fmt: skip


class Life:
    """A task with the store, and what lies at the URL of its snapshots."""

    def __init__(self, directory: Path, spec: StoreSpec, call: Call) -> None:
        self._directory, self._spec, self._call = directory, spec, call
        self._rng, self._clock, self._time, self._number = random.Random(spec.kind), StepClock(10**12), 10**6, 0
        self._managers = [self._manager("here")]
        self._h = self._task(self._managers[0]).start()
        topic = self._h.task.subtopology.changelogs["store"]
        self._changelog, self._url = TopicPartition(topic, TASK.partition), f"file://{directory}/remote"
        self._metadata: dict[TopicPartition, str] = {}
        self.repository = SnapshotRepository(self._url, "app")

    def _manager(self, name: str) -> RangeStateManager:
        return RangeStateManager(StateDirectory(self._directory / name, "app"), open_engines("rocksdict"), "m6")

    def _task(self, manager: RangeStateManager) -> Harness:
        def work(context: Any, record: Any) -> None:
            rng = random.Random(record.key)
            for _ in range(rng.randint(1, 6)):
                late_ms = rng.randrange(2 * RETENTION_MS) if rng.random() < 0.15 else 0
                self._call(context.get_state_store("store"), rng, max(0, record.timestamp - late_ms))
            if record.value == "fail":
                raise RuntimeError

        topology = processing(work, [self._spec])
        h = Harness(topology, processing_handler=LogAndContinue(), transactional_id="app-1")
        h.state = manager.open(TASK, [self._spec])  # type: ignore[assignment]
        return h

    def commit(self) -> None:
        """Some records, one of which may fail."""
        for _ in range(self._rng.randint(1, 8)):
            self._time += RETENTION_MS if self._rng.random() < 0.05 else self._rng.randrange(3_000)
            self._number += 1
            self._h.pipe((str(self._number), "fail" if self._rng.random() < 0.1 else "a value", self._time))
        self._metadata = dict(self._h.commit().metadata)

    def snapshot(self) -> SnapshotManifest:
        """Of what has changed, if anything has, as the state thread has it made."""
        (manager, *_), wall_ms = self._managers, self._clock.wall_ms()
        job = PartitionJob.of(
            TASK, self._spec, self._changelog, changelog_id="an id", usable_until_ms=None, leads=True
        )
        place = self._directory / f"job-{wall_ms}"
        (database,) = manager.databases()
        taken, _ = Moments(manager.changed).checkpoint(database, place / DATABASE, lambda: [job])
        of, changes = taken[job.place]
        told: list[SnapshotResult] = []
        made = CheckpointJob(place, 0, "app", 1, wall_ms, (_with(job, changes),), self._url)
        Maker(made, self.repository, self._clock).run(told.append)
        (result,) = told
        self._clock.advance(1_000)
        if result.manifest is not None:
            manager.changed.published(of, "store", changes, result.manifest)
            return result.manifest
        assert result.there is not None, result.why
        manager.changed.put_back(of, "store", changes)
        return result.there

    def begun(self, name: str, manifest: SnapshotManifest | None) -> list[Any]:
        """What a store has on another disk that begins with the snapshot, and reads what came since."""
        self._managers.append(self._manager(name))
        task = self._task(self._managers[-1]).task
        task.open()
        outputs = [output for output in self._h.sent if output.topic == self._changelog.topic]
        records = [
            message(offset, o.key, o.value, o.timestamp, o.topic, list(o.headers or ()))
            for offset, o in enumerate(outputs)
        ]
        if manifest is not None:
            fetched = self.repository.fetch(manifest, self._directory / "fetched")
            for _ in ingest(task, "store", fetched, "an id", 0, len(records)):
                pass
            assert task.changelog_offsets()["store"] == manifest.offset
        task.restore("store", records[task.changelog_offsets()["store"] or 0 :], len(records))
        task.start(dict.fromkeys(task.partitions, self._h.ends["in"]), self._metadata)
        content = self._content(task.store("store"))
        task.close()
        return content

    def _content(self, store: Any) -> list[Any]:
        if self._spec.kind == "versioned":
            return [(one, list(store.versions(one, 0, 2 * self._time))) for one in KEYS]
        return list(store.fetch_range(None, None) if self._spec.kind.startswith("session") else store.all())

    def end(self) -> None:
        self._h.task.close()
        for manager in self._managers:
            manager.release()


@pytest.mark.parametrize("name", STORES)
def test_a_store_begins_with_a_base_and_deltas_as_with_its_changelog(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "FOLDED_AT", 1_000)  # a delta of a few rows is as large as their base
    life, deltas = Life(tmp_path, *STORES[name]), 0
    for number in range(ROUNDS):
        for _ in range(STEPS):
            life.commit()
            manifest = life.snapshot()
        life.commit()
        deltas += manifest.deltas
        assert life.begun(f"snapshot-{number}", manifest) == life.begun(f"changelog-{number}", None)
    assert deltas > ROUNDS
    life.end()


def test_no_kind_of_store_is_left_out() -> None:
    operators_own = {"suppress", "join-buffer"}
    assert {spec.kind for spec, _ in STORES.values()} == kinds.KINDS.keys() - operators_own
