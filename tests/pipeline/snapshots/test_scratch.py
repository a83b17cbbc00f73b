"""What a changelog is folded to, beside what a restoration gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from milestones.common.config import StreamsConfig
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition
from milestones.common.state.engines import sst
from milestones.common.state.engines.sst import Entry, SstWriter
from milestones.common.state.snapshots.local_snapshot import LocalSnapshot, described
from milestones.common.state.spec import StoreSpec
from milestones.common.windowed import START_AND_SEQUENCE
from milestones.m6_state_manager.ranges import prefix_of
from milestones.pipeline import scratch
from milestones.pipeline.reading import RecordsDeletedError
from tests.common.state.test_snapshot import MANIFEST
from tests.common.task.harness import message
from tests.topics import new_topic


def test_rows_of_windows_that_are_gone_are_in_no_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        message(offset, b"k" + START_AND_SEQUENCE.pack(start, 0), b"v", start)
        for offset, start in enumerate([5, 1_000_000, 1_000_005])
    ]
    monkeypatch.setattr(scratch, "read", lambda *_: iter([records[:1], records[1:]]))
    spec = StoreSpec("s", "timestamped-window", retention_ms=120_000, window_ms=10, closing=True)
    with scratch.ScratchStore(tmp_path / "store", spec) as store:
        assert store.fold({}, TopicPartition("log", 0), 0, 3) == 3
        assert [key[8:9] for key, _ in store.entries()] == [b"k", b"k", b"\0", b"\0"], "two rows, and both by time"


def test_a_fold_keeps_rows_that_are_gone_by_what_no_commit_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once, the changelog is ahead of the commit, by which the task that begins with the snapshot goes on."""
    records = [
        message(offset, b"k" + START_AND_SEQUENCE.pack(start, 0), b"v", start)
        for offset, start in enumerate([5, 300_000, 1_000_000])
    ]
    monkeypatch.setattr(scratch, "read", lambda *_: iter([records]))
    spec = StoreSpec("s", "timestamped-window", retention_ms=120_000, window_ms=10)
    for committed, rows in ((-1, 3), (300_000, 2), (1_000_000, 1)):
        with scratch.ScratchStore(tmp_path / f"{committed}", spec, committed) as store:
            store.fold({}, TopicPartition("log", 0), 0, 3)
            assert len(list(store.entries())) == rows


def test_a_fold_begins_anew_where_a_changelog_begins_once_its_first_records_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some were read before; a live instance restores in the same way."""
    records = [message(offset, b"k%d" % offset, b"v", 5) for offset in range(4)]

    def read(_consumer: Any, _changelog: Any, first: int, end: int) -> Iterator[list[Any]]:
        if first < 2:
            yield records[:1]
            raise RecordsDeletedError("they were deleted")
        yield records[first:end]

    monkeypatch.setattr(scratch, "read", read)
    monkeypatch.setattr(scratch, "beginning", lambda *_: 2)
    with scratch.ScratchStore(tmp_path / "store", StoreSpec("s")) as store:
        assert store.fold({}, TopicPartition("log", 0), 0, 4) == 2
        assert [key for key, _ in store.entries()] == [b"k2", b"k3"]


def test_records_that_are_missing_behind_the_beginning_of_a_changelog_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any) -> Iterator[list[Any]]:
        yield []
        raise RecordsDeletedError("they were deleted")

    monkeypatch.setattr(scratch, "read", read)
    monkeypatch.setattr(scratch, "beginning", lambda *_: 0)
    with (
        scratch.ScratchStore(tmp_path / "store", StoreSpec("s")) as store,
        pytest.raises(RecordsDeletedError, match="they were deleted"),
    ):
        store.fold({}, TopicPartition("log", 0), 0, 4)


def snapshot(directory: Path, key_prefix: bytes, *files: list[Entry], **fields: Any) -> LocalSnapshot:
    """Of a base, and of deltas on it, whose keys have a prefix in front."""
    directory.mkdir()
    manifest = replace(MANIFEST, files=(), key_prefix=key_prefix, **fields)
    for number, entries in enumerate(files):
        folder = directory / str(number)
        folder.mkdir()
        writer = SstWriter(folder)
        writer.write((key_prefix + key, value) for key, value in entries)
        for path, count in writer.files.items():
            line = replace(described(path, count, writer.deletions[path]), folder=f"files/{number}")
            manifest = replace(manifest, files=(*manifest.files, line))
            path.rename(LocalSnapshot(manifest, directory).files[-1])
    return LocalSnapshot(manifest, directory)


@pytest.mark.parametrize(("key_prefix", "written"), [(prefix_of(3), 0), (b"", 0), (prefix_of(4), 1)])
def test_a_fold_goes_on_from_a_snapshot_whose_files_are_linked_however_its_keys_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key_prefix: bytes, written: int
) -> None:
    written_one_by_one, write = [], sst.write_entries
    monkeypatch.setattr(sst, "write_entries", lambda *args: (written_one_by_one.append(args), write(*args))[1])
    records = [message(9, b"b", b"5", 0), message(10, b"e", b"6", 0), message(11, b"c", None, 0)]
    monkeypatch.setattr(scratch, "read", lambda *_: iter([records]))
    base: list[Entry] = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"gone", b"4"), (b"h", b"4")]
    delta: list[Entry] = [(b"a", None), (b"b", b"4"), (b"d", b"1")]
    begun = snapshot(tmp_path / "files", key_prefix, base, delta, gone=((b"g", b"h"),))
    with scratch.ScratchStore(tmp_path / "store", StoreSpec("s")) as store:
        store.ingest(begun)
        assert dict(store.entries()) == {b"b": b"4", b"c": b"3", b"d": b"1", b"h": b"4"}
        assert store.fold({}, TopicPartition("log", 3), 9, 12) == 3
        assert list(store.entries()) == [(b"b", b"5"), (b"d", b"1"), (b"e", b"6"), (b"h", b"4")]
        store.empty()
        assert (store.fold({}, TopicPartition("log", 3), 9, 12), dict(store.entries())) == (3, {b"b": b"5", b"e": b"6"})
    assert len(written_one_by_one) == written


def test_rows_of_windows_go_from_a_snapshot_with_the_partition_in_front_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = StoreSpec("s", "timestamped-window", retention_ms=120_000, window_ms=10)
    first, last = (message(offset, b"k" + START_AND_SEQUENCE.pack(start, 0), b"v", start)
                   for offset, start in enumerate([5, 1_000_000]))  # fmt: skip
    monkeypatch.setattr(scratch, "read", lambda *_: iter([[first]]))
    with scratch.ScratchStore(tmp_path / "before", spec) as store:
        store.fold({}, TopicPartition("log", 3), 0, 1)
        begun = snapshot(tmp_path / "files", prefix_of(3), list(store.entries()))
    monkeypatch.setattr(scratch, "read", lambda *_: iter([[last]]))
    with scratch.ScratchStore(tmp_path / "store", spec) as store:
        store.ingest(begun)
        store.fold({}, TopicPartition("log", 3), 1, 2)
        assert [key[8:9] for key, _ in store.entries()] == [b"k"], "the newer one"


@pytest.mark.kafka
def test_a_changelog_that_was_trimmed_after_the_plan_is_folded_from_its_beginning(tmp_path: Path, kafka: str) -> None:
    topic, producer = new_topic(kafka), Producer({"bootstrap.servers": kafka})
    for number in range(6):
        producer.produce(topic, b"v", b"k%d" % number, timestamp=5)
    producer.flush(20)
    Cluster({"bootstrap.servers": kafka}).purge({TopicPartition(topic, 0): 4})
    consumer = StreamsConfig(application_id=topic, bootstrap_servers=kafka).restore_consumer_settings("folds")
    with scratch.ScratchStore(tmp_path / "store", StoreSpec("s")) as store:
        assert store.fold(consumer, TopicPartition(topic, 0), 0, 6) == 2
        assert [key for key, _ in store.entries()] == [b"k4", b"k5"]
