"""Archives of topics, and a consumer that begins in one: without Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from milestones.common.errors import ConfigError
from milestones.common.records import TopicPartition
from milestones.pipeline.backfill.archive import GROUP_ROWS, Archive, ArchiveError, Stored
from milestones.pipeline.backfill.consumer import ArchiveConsumer
from milestones.pipeline.records import StoredRecord

AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 12)


@pytest.fixture(params=["file", "memory"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    return Archive(tmp_path.as_uri() if request.param == "file" else f"memory://{uuid4().hex}")


def rows(first: int, end: int) -> list[Stored]:
    return [(offset, 1_000 + offset, b"k%d" % offset, b"v%d" % offset, None) for offset in range(first, end)]


def offsets(archive: Archive, at: TopicPartition, position: int) -> list[int]:
    return [record.offset() for batch in archive.read(at, position) for record in batch]


def test_what_is_written_comes_back_from_any_offset(archive: Archive) -> None:
    assert archive.ranges(["orders"]) == {}
    assert archive.write(AT, 0, 10, [rows(0, 4), rows(5, 9)]) == 8
    assert archive.write(AT, 10, 12, [rows(10, 12)]) == 2
    assert archive.write(OTHER, 7, 9, [rows(7, 8)]) == 1
    assert archive.ranges(["orders", "nothing"]) == {AT: (0, 12), OTHER: (7, 9)}
    assert offsets(archive, AT, 0) == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11]
    assert offsets(archive, AT, 7) == [7, 8, 10, 11]
    assert offsets(archive, AT, 12) == []
    assert offsets(archive, TopicPartition("orders", 3), 0) == []


def test_an_archive_knows_by_id_from_which_topic_each_file_was_read(archive: Archive) -> None:
    archive.write(AT, 0, 5, [rows(0, 5)])
    assert archive.topic_ids(["orders"]) == {AT: frozenset()}
    archive.write(AT, 5, 8, [rows(5, 8)], "first")
    archive.write(AT, 8, 8, [], "second")
    archive.write(OTHER, 0, 1, [rows(0, 1)], "first")
    assert archive.topic_ids(["orders", "nothing"]) == {AT: {"first", "second"}, OTHER: {"first"}}


def test_a_record_comes_back_whole(archive: Archive) -> None:
    headers: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", None)]
    stored: list[Stored] = [(0, 5, None, b"", headers), (1, 6, b"k", None, None), (2, 7, b"", b"v", [])]
    archive.write(AT, 0, 3, [stored])
    (batch,) = archive.read(AT, 0)
    found = [(r.offset(), r.timestamp()[1], r.key(), r.value(), r.headers()) for r in batch]
    assert found == stored
    assert (batch[0].topic(), batch[0].partition(), len(batch[0]), len(batch[1])) == ("orders", 0, 0, 0)


def test_a_long_file_is_read_in_batches_from_the_middle(archive: Archive) -> None:
    archive.write(AT, 0, 3 * GROUP_ROWS, (rows(first, first + 10_000) for first in range(0, 3 * GROUP_ROWS, 10_000)))
    first = next(archive.read(AT, 2 * GROUP_ROWS + 1))
    assert (first[0].offset(), len(first) <= 1_000) == (2 * GROUP_ROWS + 1, True)


def test_a_range_without_records_is_a_range(archive: Archive) -> None:
    archive.write(AT, 0, 5, [])
    archive.write(AT, 5, 8, [rows(5, 7)])
    assert archive.ranges(["orders"]) == {AT: (0, 8)}
    assert offsets(archive, AT, 0) == [5, 6]


@pytest.mark.parametrize(("first", "end"), [(11, 12), (9, 12)])
def test_a_gap_or_an_overlap_is_an_error_that_names_both_files(archive: Archive, first: int, end: int) -> None:
    archive.write(AT, 0, 10, [rows(0, 10)])
    archive.write(AT, first, end, [rows(first, end)])
    with pytest.raises(ArchiveError, match=f"{10:020d}.*{first:020d}"):
        archive.ranges(["orders"])


class Remembering(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files here, listed as remote ones are: once, until told otherwise."""

    protocol = "remembering"

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True, **kwargs)
        found = self.dircache[path]
        return found if detail else [entry["name"] for entry in found]

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()


def test_what_another_process_has_added_is_seen_where_listings_are_remembered(tmp_path: Path) -> None:
    fsspec.register_implementation("remembering", Remembering, clobber=True)
    here, elsewhere = Archive(f"remembering://{tmp_path}"), Archive(tmp_path.as_uri())
    elsewhere.write(AT, 0, 10, [rows(0, 10)])
    assert here.ranges(["orders"]) == {AT: (0, 10)}
    elsewhere.write(AT, 10, 12, [rows(10, 12)])
    assert here.ranges(["orders"]) == {AT: (0, 12)}
    assert offsets(here, AT, 9) == [9, 10, 11]


def test_a_write_that_fails_leaves_no_range(archive: Archive) -> None:
    def broken() -> Iterator[list[Stored]]:
        yield rows(0, 5)
        raise OSError("disk full")

    with pytest.raises(ArchiveError, match="disk full"):
        archive.write(AT, 0, 10, broken())
    assert archive.ranges(["orders"]) == {}


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    archive = Archive(tmp_path.as_uri())
    archive.write(AT, 0, 10, [rows(0, 10)])
    (file,) = tmp_path.rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ArchiveError, match="can't read"):
        offsets(archive, AT, 0)


def test_an_unknown_kind_of_url_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="history"):
        Archive("nonsense://x")


def test_a_stored_record_looks_like_the_client_s() -> None:
    record = StoredRecord(AT, 3, b"k", b"value", 7, None)
    assert (record.error(), record.timestamp(), len(record)) == (None, (1, 7), 5)


# -- a consumer that begins in one


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[ArchiveConsumer]:
    archive = Archive(tmp_path.as_uri())
    archive.write(AT, 0, 10, [rows(0, 4), rows(5, 9)])
    archive.write(OTHER, 0, 3, [rows(0, 3)])
    made = ArchiveConsumer(CLIENT, {AT: 50, OTHER: 3, NEW: 5}, tmp_path.as_uri())
    yield made
    made.close()


CLIENT = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
NEW = TopicPartition("orders", 1)


def fetched(consumer: ArchiveConsumer) -> dict[TopicPartition, list[int]]:
    return {at: [m.offset() or 0 for m in messages] for at, messages in consumer.fetch(100, 0).records.items()}


def test_a_consumer_reads_its_archive_first_and_then_kafka(consumer: ArchiveConsumer) -> None:
    consumer.assign({AT: 2, OTHER: 0, NEW: 0})
    assert consumer.assigned == {AT, OTHER, NEW}
    assert fetched(consumer) == {AT: [2, 3, 5, 6, 7, 8], OTHER: [0, 1, 2]}
    assert fetched(consumer) == {}
    assert consumer.assigned == {AT, NEW}  # the other one ends with its archive
    assert not consumer.complete


def test_a_partition_whose_archive_is_all_there_is_ends_with_it(tmp_path: Path) -> None:
    Archive(tmp_path.as_uri()).write(OTHER, 0, 3, [rows(0, 3)])
    consumer = ArchiveConsumer(CLIENT, {OTHER: 3}, tmp_path.as_uri())
    consumer.assign({OTHER: 1})
    assert fetched(consumer) == {OTHER: [1, 2]}
    assert consumer.fetch(100, 0).ends == {OTHER: 3}
    assert consumer.complete
    consumer.close()


def test_a_consumer_pauses_resumes_and_gives_up_archived_partitions(consumer: ArchiveConsumer) -> None:
    consumer.assign({AT: 0, OTHER: 0})
    consumer.pause([AT])
    assert consumer.paused == {AT}
    assert fetched(consumer) == {OTHER: [0, 1, 2]}
    consumer.resume([AT])
    assert fetched(consumer) == {AT: [0, 1, 2, 3, 5, 6, 7, 8]}
    consumer.assign({AT: 8})
    consumer.unassign([AT])
    assert (fetched(consumer), consumer.assigned) == ({}, frozenset())


def test_what_is_archived_while_a_consumer_reads_comes_from_kafka(consumer: ArchiveConsumer, tmp_path: Path) -> None:
    Archive(tmp_path.as_uri()).write(AT, 10, 20, [rows(10, 20)])
    consumer.assign({AT: 8})
    assert fetched(consumer) == {AT: [8]}
    assert fetched(consumer) == {}  # Kafka's turn, from offset 10 on
    assert consumer.assigned == {AT}


def test_a_position_behind_the_archive_is_kafka_s(consumer: ArchiveConsumer) -> None:
    consumer.assign({AT: 10})
    assert fetched(consumer) == {}
    assert consumer.assigned == {AT}
