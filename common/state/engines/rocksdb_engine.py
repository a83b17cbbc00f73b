"""RocksDB through `import rocksdb` (the wheel `faust-streaming-rocksdb`, extra `rocksdb`): the second engine.

The library releases the GIL while it works. It has these pitfalls:
- If an iterator or a read outlives the database, the process ends. So every access goes through a cell that `close`
  empties.
- Without `verify_checksums`, a read loses the keys of a damaged block without an error.
- A settings object can be used for one database only.
- A closed database leaves a file open.

*Guarantees* and *assumes*: those of `engine.py`. There is no common limit for the memtables of all stores: each store
has its own limit.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import rocksdb

from milestones.common.errors import StateError
from milestones.common.state.engine import NOBODYS, Batch, EngineMemory, Owners, Span
from milestones.common.state.engines.families import FamilyTable, RocksEngine
from milestones.common.state.engines.log_tails import compressed, readable
from milestones.common.state.engines.rocks import ARENA_BLOCK_BYTES, DELAYED_WRITE_RATE, RocksSettings, pack_offset
from milestones.common.state.engines.rocks_namespace import RocksNamespace
from milestones.common.state.engines.sst import write_entries
from milestones.common.state.steps import steps

_log = logging.getLogger(__name__)

WAYS_ON = (
    'set rocksdb_engine = "rocksdict", which reads them; or export the state with that engine '
    "(`milestones state export`); or remove the state, which is restored from the changelogs"
)
"""The advice in the error for a database with a compressed log. This library would open it without its last writes."""


class RocksDbEngines:
    """Opens engines that share one block cache, for all stores of a process."""

    name = "rocksdb"

    def __init__(self, settings: RocksSettings | None = None) -> None:
        self.settings: RocksSettings = settings or RocksSettings()
        self._cache = rocksdb.LRUCache(self.settings.block_cache_bytes, self.settings.block_cache_shard_bits)

    def open(self, directory: Path, owners: Owners = NOBODYS, namespaces: Collection[str] = ()) -> RocksDbEngine:
        return RocksDbEngine(directory, self._options, self._family_options, owners)

    def memory(self) -> EngineMemory:
        """Return the capacity of the cache, because the library has no call for the used bytes."""
        return EngineMemory(block_cache=int(self.settings.block_cache_bytes))

    def for_many_tasks(self) -> RocksDbEngines:
        shared = copy(self)
        shared.settings = self.settings.for_many_tasks()
        return shared

    def crowded(self) -> bool:
        """Return False: the databases share no memory for unflushed data."""
        return False

    def _options(self) -> Any:
        size = self.settings
        return rocksdb.Options(
            create_if_missing=True,
            max_open_files=size.max_open_files,
            max_total_wal_size=size.max_wal_bytes,
            # There are many small databases. So nothing is preallocated, and no statistics or old log files are kept.
            allow_fallocate=False,
            skip_stats_update_on_db_open=True,
            stats_dump_period_sec=0,
            stats_persist_period_sec=0,
            keep_log_file_num=1,
            max_log_file_size=1024 * 1024,
            **self._family_settings(),
        )

    def _family_options(self) -> Any:
        return rocksdb.ColumnFamilyOptions(**self._family_settings())

    def _family_settings(self) -> dict[str, Any]:
        table = rocksdb.BlockBasedTableFactory(
            filter_policy=rocksdb.BloomFilterPolicy(self.settings.bloom_bits),
            block_cache=self._cache,
            cache_index_and_filter_blocks=True,
        )
        return {
            "table_factory": table,
            "compression": rocksdb.CompressionType.lz4_compression,
            "arena_block_size": ARENA_BLOCK_BYTES,
            "write_buffer_size": self.settings.write_buffer_bytes,
            "max_write_buffer_number": self.settings.max_write_buffers,
        }


class RocksDbNamespace(RocksNamespace):
    """A column family. `get` goes through a cell that `release` empties."""

    def __init__(self, engine: RocksDbEngine, name: str, family: str, db: Any, handle: Any) -> None:
        super().__init__(engine, name, family)
        self.handle: Any = handle
        self._reader: list[Callable[..., bytes | None]] = [db.get]
        reader, failed = self._reader, self.failed

        def get(key: bytes) -> bytes | None:
            try:
                return reader[0]((handle, key), verify_checksums=True)
            except Exception as error:
                raise failed(error) from error

        self.get = get

    def _cursor(self, start: bytes | None, end: bytes | None, reverse: bool) -> _RocksdbCursor:
        return _RocksdbCursor(self, self._engine.db(), start, end, reverse)

    def _seek(self, beyond: bytes | None) -> _RocksdbSeeker:
        return _RocksdbSeeker(self, self._engine.db())

    def property(self, name: str) -> int:
        try:
            return int(self._engine.db().get_property(name.encode(), self.handle) or 0)
        except Exception as error:
            raise self.failed(error) from error

    def release(self) -> None:
        def refuse(*_: object, **__: object) -> bytes | None:
            raise self.closed()

        super().release()
        self._reader[0] = refuse


class _RocksdbCursor:
    """A scan. If an error passes through a frame that has the library's iterator in a variable, the error's traceback
    keeps the iterator alive, and it might outlive the database. So no frame here has the iterator in a variable."""

    def __init__(
        self, namespace: RocksDbNamespace, db: Any, start: bytes | None, end: bytes | None, reverse: bool
    ) -> None:
        self._namespace = namespace
        self._start, self._end, self._reverse = start, end, reverse
        self._at_end = False
        self._source = db.iteritems(namespace.handle, verify_checksums=True)
        try:
            if reverse:
                self._source.seek_to_last() if end is None else self._source.seek_for_prev(end)
                self._source = reversed(self._source)
            elif start is None:
                self._source.seek_to_first()
            else:
                self._source.seek(start)
        except BaseException:
            self._source = None
            raise

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        if self._at_end:
            return []
        if self._source is None:
            raise self._namespace.closed()
        try:
            return self._backwards(count) if self._reverse else self._forwards(count)
        except Exception as error:
            self._source = None
            raise self._namespace.failed(error) from error

    def _forwards(self, count: int) -> list[tuple[bytes, bytes]]:
        end, found = self._end, []
        for (_, key), value in self._source:
            if end is not None and key >= end:
                break
            found.append((key, value))
            if len(found) == count:
                return found
        self._at_end = True
        return found

    def _backwards(self, count: int) -> list[tuple[bytes, bytes]]:
        start, end, found = self._start, self._end, []
        for (_, key), value in self._source:
            if end is not None and key >= end:
                continue
            if start is not None and key < start:
                break
            found.append((key, value))
            if len(found) == count:
                return found
        self._at_end = True
        return found

    def close(self) -> None:
        self._source = None


class _RocksdbSeeker:
    """A `Seeker`. As in `_RocksdbCursor`, no function keeps the library's iterator in a local variable. The traceback
    of an error would keep the iterator alive."""

    def __init__(self, namespace: RocksDbNamespace, db: Any) -> None:
        # The iterator has no upper bound: the library never frees the 32 bytes of a bound, and a new seeker is made
        # after each write.
        self._namespace = namespace
        self._source = db.iteritems(namespace.handle, verify_checksums=True)

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        if self._source is None:
            raise self._namespace.closed()
        found: list[tuple[bytes, bytes]] = []
        beyond: bytes | None = None
        try:
            self._source.seek(start)
            for (_, key), value in self._source:
                if key >= end or len(found) == limit:
                    beyond = key
                    break
                found.append((key, value))
        except Exception as error:
            self._source = None
            raise self._namespace.failed(error) from error
        return found, beyond

    def close(self) -> None:
        self._source = None


class RocksDbEngine(RocksEngine[RocksDbNamespace]):
    def __init__(
        self,
        path: Path,
        options: Callable[[], Any],
        family_options: Callable[[], Any],
        owners: Owners = NOBODYS,
    ) -> None:
        """`options` and `family_options` make the settings of a database and of a column family.

        Raises the errors of `Engines.open`."""
        super().__init__(path, owners)
        self._path, self._family_options = path, family_options
        try:
            path.mkdir(parents=True, exist_ok=True)
            readable(path)
            if (log := compressed(path)) is not None:
                raise StateError(f"{log} has compressed records, which this library can't read: {WAYS_ON}")
            names = rocksdb.list_column_families(str(path), options()) if (path / "CURRENT").exists() else []
            self._namespaces = FamilyTable[RocksDbNamespace](path, (name.decode() for name in names))
            column_families = {name.encode(): family_options() for name in self._namespaces.families}
            self._database = rocksdb.DB(str(path), options(), column_families=column_families)
        except Exception as error:
            raise self.contents.failure(error) from error

    def open(self, namespace: str) -> RocksDbNamespace:
        db = self.db()

        def opened(family: str) -> RocksDbNamespace:
            return RocksDbNamespace(self, namespace, family, db, db.get_column_family(family.encode()))

        try:
            return self._namespaces.open(
                namespace, lambda family: db.create_column_family(family.encode(), self._family_options()), opened
            )
        except Exception as error:
            raise self.contents.failure(error, namespace) from error

    def _write(self, db: Any, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        batch = rocksdb.WriteBatch()
        put, delete = batch.put, batch.delete
        for namespace, writes in batches.items():
            handle = self._namespaces[namespace].handle
            for key in sorted(writes):  # sorted keys cost half as much to insert into a memtable
                value = writes[key]
                if value is None:
                    delete((handle, key))
                else:
                    put((handle, key), value)
        for namespace, offset in offsets.items():
            put(self._namespaces[namespace].family, pack_offset(offset))
        db.write(batch, no_slowdown=True)

    def _expire(self, db: Any, namespace: str, spans: Collection[Span], *, wait: bool) -> None:
        """Delete key by key, because this library has no call for the deletion of a range."""
        for first, beyond in spans:
            keys = dict.fromkeys(key for key, _ in self._namespaces[namespace].scan(first, beyond))
            for step in steps(keys):
                self._unstalled(partial(self._write, db, {namespace: step}, {}), (step,), wait=wait)

    def _wipe(self, db: Any, spans: Mapping[str, Span], batches: Mapping[str, Batch]) -> None:
        """Delete key by key, as `_expire` does, but in one batch of any size, together with the new entries."""
        written: dict[str, Batch] = dict(batches)
        for namespace, span in spans.items():
            gone = dict.fromkeys(key for key, _ in self._namespaces[namespace].scan(*span))
            written[namespace] = {**gone, **batches.get(namespace, {})}
        self._write(db, written, {})

    def _compact(self, db: Any, opened: RocksDbNamespace, span: Span) -> None:
        db.compact_range(*span, column_family=opened.handle)

    def _sync(self, db: Any) -> None:
        """Sync the log by a synced write of an entry that nobody reads, because the library has no call for a sync."""
        db.put(b"", b"", sync=True)

    def _delayed_write_rate(self, db: Any) -> int:
        return int(db.get_property(DELAYED_WRITE_RATE.encode()) or 0)

    def ingest(self, namespace: str, files: Sequence[Path]) -> Iterator[None]:
        """Read the files with `rocksdict`, and write their entries, because this library can't ingest files."""
        self.db()
        self._namespaces[namespace]  # opened, or a bug
        return write_entries(lambda step: self.apply(step, {}), namespace, files)

    def _drop(self, db: Any, family: str) -> None:
        db.drop_column_family(db.get_column_family(family.encode()))
        db.delete(family.encode())

    def close(self) -> None:
        db, self._database = self._database, None
        if db is None:
            return
        self._namespaces.close()
        try:
            db.close()
            _close_left_open(self._path)
        except Exception as error:
            _log.warning("closing %s: %s", self.contents, error)

    def _read(self, db: Any, key: bytes) -> bytes | None:
        return db.get(key, verify_checksums=True)  # type: ignore[no-any-return]


def _close_left_open(path: Path) -> None:
    """Close the file descriptor of a closed database's directory, which the library leaves open. Otherwise an instance
    that opens and closes many stores would run out of file descriptors."""
    directory = path.stat()
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  numbers
        try:
            if os.path.samestat(os.fstat(int(name)), directory):
                os.close(int(name))
        except OSError:  # the descriptor of the listing itself
            continue
