"""Archives topics as Parquet files, for longer than Kafka keeps their records.

    <url>/<topic>/partition=<p>/<first>-<end>.parquet      20 digits each: offsets of the partition, `end` exclusive

| column | type |
|---|---|
| `offset` | int64, rising |
| `timestamp` | int64, ms since the epoch |
| `key`, `value` | binary |
| `headers` | list of (name, value) |

A file's metadata has Kafka's id of the topic that it was read from (`milestones.topic_id`), if Kafka has ids. A topic
that is deleted and made anew has a new id, and other records at the same offsets.

A file has no rows for control records, aborted records, and records that compaction has removed. Its name still covers
their offsets, which says that no other records were there.

*Guarantees*: a file is complete as soon as it is visible. The ranges that `ranges` returns have no gaps.
*Assumes*: one writer at a time for each partition.
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from milestones.common.errors import ConfigError, SourceTopicError, StateError
from milestones.common.records import TopicPartition
from milestones.common.secrets import without_credentials
from milestones.pipeline.records import StoredRecord

IN_KAFKA = "kafka:"
"""This value in place of an archive's URL means that all history is in Kafka."""

TOPIC_ID = b"milestones.topic_id"

ROWS = 1_000
"""The number of rows that are read at a time, about as many as a fetch returns."""

GROUP_ROWS = 50_000
SCHEMA = pa.schema([
    ("offset", pa.int64()), ("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
])  # fmt: skip

_FILE = re.compile(r"(\d{20})-(\d{20})\.parquet")
_PARTITION = re.compile(r"partition=(\d+)")

Stored = tuple[int, int, "bytes | None", "bytes | None", "list[tuple[str, bytes | None]] | None"]
"""A stored record: its offset, timestamp, key, value and headers."""


def shared(url: str) -> str:
    """Return the URL. Raises a `ConfigError` if the URL means another place for Spark's tasks, which are other
    processes.
    """
    if url.startswith("memory:"):
        raise ConfigError("history", url, "each process has a memory of its own; use file:// or a remote URL")
    return url


class ArchiveError(StateError):
    """Raised when an archive can't be read or written, or has a gap. The message names the archive and the reason,
    without credentials.
    """

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))


class OtherTopicError(ArchiveError, SourceTopicError):
    """Raised when the archive's topic has been deleted and made anew, so that Kafka now has another topic of the same
    name.
    """

    exit_code = SourceTopicError.exit_code


class Archive:
    """All topics below a URL."""

    def __init__(self, url: str) -> None:
        """Raises a `ConfigError` if URLs of this kind aren't supported. No file is read yet."""
        self.url = url
        try:
            self._files, root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigError("history", url, f"can't be used: {error}") from None
        self._root = str(root).rstrip("/")

    def ranges(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end of each archived partition. Raises an `ArchiveError` if there is a gap.
        """
        found: dict[TopicPartition, tuple[int, int]] = {}
        for topic in topics:
            for at, files in self._listed(topic).items():
                for (_, end, one), (first, _, other) in pairwise(files):
                    if first != end:
                        raise ArchiveError(
                            f"the archive of {at} has a gap or an overlap between {one} and {other}: bring back what "
                            f"is missing, or remove what is twice, in {self.url}"
                        )
                found[at] = files[0][0], files[-1][1]
        return found

    def topic_ids(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """Return, for each partition, Kafka's ids of the topics that its files were read from. Files of older releases
        have no id.
        """
        return {
            at: frozenset(id for _, _, path in files if (id := self._topic_id(path)) is not None)
            for topic in topics
            for at, files in self._listed(topic).items()
        }

    def _topic_id(self, path: str) -> str | None:
        try:
            with self._files.open(path, "rb") as file:
                id = (pq.read_metadata(file).metadata or {}).get(TOPIC_ID)
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"can't read {path} at {self.url}: {error}") from None
        return None if id is None else id.decode()

    def read(self, at: TopicPartition, position: int, before: int | None = None) -> Iterator[list[StoredRecord]]:
        """The partition's records from `position` on, in batches. `before`: an end that `ranges` has returned. Records
        that were added later aren't read. `ArchiveError`.
        """
        for _, end, path in self._listed(at.topic).get(at, []):
            if end > position and (before is None or end <= before):
                yield from self._read(at, path, position)

    def _read(self, at: TopicPartition, path: str, position: int) -> Iterator[list[StoredRecord]]:
        try:
            with self._files.open(path, "rb") as file:
                parquet = pq.ParquetFile(file)
                for number in range(parquet.num_row_groups):
                    if _last(parquet, number) >= position:
                        for batch in parquet.iter_batches(ROWS, row_groups=[number]):
                            records = _records(at, batch, position)
                            if records:
                                yield records
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"can't read {path} at {self.url}: {error}") from None

    def write(
        self, at: TopicPartition, first: int, end: int, rows: Iterable[Sequence[Stored]], topic_id: str | None = None
    ) -> int:
        """Add the records with first <= offset < end, which come in batches. Returns their number. `topic_id`: Kafka's
        id of the topic that the records were read from. `ArchiveError`.
        """
        place = self._place(at)
        part = f"{place}/.{uuid.uuid4().hex}.part"
        try:
            self._files.makedirs(place, exist_ok=True)
            records = self._write(part, rows, topic_id)
            self._files.mv(part, f"{place}/{first:020d}-{end:020d}.parquet")
        except BaseException as error:
            self._remove(part)
            if isinstance(error, OSError | pa.ArrowException):
                raise ArchiveError(f"can't write {place} at {self.url}: {error}") from None
            raise
        return records

    def _write(self, path: str, rows: Iterable[Sequence[Stored]], topic_id: str | None) -> int:
        records = 0
        with self._files.open(path, "wb") as file, pq.ParquetWriter(file, SCHEMA) as writer:
            if topic_id is not None:
                writer.add_key_value_metadata({TOPIC_ID: topic_id.encode()})
            for table in _tables(rows):
                writer.write_table(table)
                records += table.num_rows
        return records

    def _remove(self, path: str) -> None:
        with suppress(OSError):
            self._files.rm_file(path)

    def _place(self, at: TopicPartition) -> str:
        return f"{self._root}/{at.topic}/partition={at.partition}"

    def _listed(self, topic: str) -> dict[TopicPartition, list[tuple[int, int, str]]]:
        """Return, for each partition, the first offset, the end and the path of each file, in order."""
        try:
            # The file system caches listings for the whole process, but others may have written since.
            self._files.invalidate_cache()
            paths = [str(path) for path in self._files.glob(f"{self._root}/{topic}/*/*.parquet")]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ArchiveError(f"can't list {topic} at {self.url}: {error}") from None
        found: defaultdict[TopicPartition, list[tuple[int, int, str]]] = defaultdict(list)
        for path in paths:
            folder, name = path.split("/")[-2:]
            place, file = _PARTITION.fullmatch(folder), _FILE.fullmatch(name)
            if place is not None and file is not None:
                found[TopicPartition(topic, int(place[1]))].append((int(file[1]), int(file[2]), path))
        return {at: sorted(files) for at, files in found.items()}


def _last(parquet: Any, group: int) -> int:
    """Return the last offset of a row group, or an offset beyond all others if the file has no statistics."""
    statistics = parquet.metadata.row_group(group).column(0).statistics
    return 1 << 62 if statistics is None else int(statistics.max)


def _records(at: TopicPartition, batch: pa.RecordBatch, position: int) -> list[StoredRecord]:
    columns = [column.to_pylist() for column in batch.columns]
    return [
        StoredRecord(at, offset, key, value, time, _headers(headers))
        for offset, time, key, value, headers in zip(*columns, strict=True)
        if offset >= position
    ]


def _headers(stored: Sequence[Mapping[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return None if stored is None else [(each["name"], each["value"]) for each in stored]


def _tables(rows: Iterable[Sequence[Stored]]) -> Iterator[pa.Table]:
    waiting: list[Stored] = []
    for batch in rows:
        waiting.extend(batch)
        if len(waiting) >= GROUP_ROWS:
            yield _table(waiting)
            waiting = []
    if waiting:
        yield _table(waiting)


def _table(rows: Sequence[Stored]) -> pa.Table:
    *columns, headers = zip(*rows, strict=True)
    structs = [None if each is None else [{"name": name, "value": value} for name, value in each] for each in headers]
    arrays = [pa.array(values, field.type) for values, field in zip([*columns, structs], SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
