"""RocksDB through `rocksdict`: the default engine.

The library has these pitfalls:
- `set_iterate_lower_bound` sets the upper bound, so it must not be called.
- `items()` ends without an error if data is damaged, so it must not be called.
- A write batch can be used once.
- The library keeps a pointer to some objects without keeping them alive. An iterator points to the bytes of its upper
  bound, so a cursor keeps the options with these bytes.
- Every iterator and column family handle keeps the database open, so `close` releases them all.
`tests/common/state/test_lifetimes.py` checks these lifetimes. If a new kind of object is used here, add a test there.

*Guarantees* and *assumes*: those of `engine.py`.

*Why this way*: the library holds the GIL in get, apply and scan, so writes are cut into steps of some thousand entries.
The library also holds the GIL during the fsyncs of an opening, of making and removing a column family, and of an
ingestion. `empty_database.py` makes these fsyncs fewer, and `locked_calls.py` puts pauses between them. docs/stores.md
has the numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ChecksumType,
    ColumnFamily,
    DbClosedError,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from milestones.common.clock import SystemClock
from milestones.common.errors import StateError
from milestones.common.state.engine import NOBODYS, Batch, EngineMemory, Owners, Span
from milestones.common.state.engines.empty_database import is_unused, write_empty_database
from milestones.common.state.engines.families import FamilyTable, RocksEngine, family_name
from milestones.common.state.engines.locked_calls import LOCKED_CALLS
from milestones.common.state.engines.log_tails import readable
from milestones.common.state.engines.rocks import (
    ARENA_BLOCK_BYTES,
    BLOCK_BYTES,
    DELAYED_WRITE_RATE,
    MIB,
    RUNNING_JOBS,
    Contents,
    RocksSettings,
    pack_offset,
)
from milestones.common.state.engines.rocks_namespace import RocksNamespace

_log = logging.getLogger(__name__)

LAST_JOBS_MS = 5_000
"""How long a close waits for jobs that may use dropped column families. Others go on until the database is closed."""


class RocksDictEngines:
    """Opens engines that share one block cache and one write buffer manager, for all stores of a process."""

    name = "rocksdict"

    def __init__(self, settings: RocksSettings | None = None, *, read_only: bool = False) -> None:
        """`read_only`: nothing is written into the databases that are opened, with one exception: a log that the
        library would read for ever is cut (`log_tails.py`). No other process may write to such a database."""
        self.settings: RocksSettings = settings or RocksSettings()
        self._read_only = read_only
        self._access = AccessType.read_only(False) if read_only else AccessType.read_write()
        # An LRU cache is cut into many parts, and no part has room for the filter of a million entries. Each read would
        # have to load the filter from the file. So the cache is of another kind.
        self._cache = Cache.new_hyper_clock_cache(self.settings.block_cache_bytes, BLOCK_BYTES)
        # The manager must not stall writes, because a write that waits holds the GIL.
        self._write_buffers = WriteBufferManager(self.settings.all_write_buffers_bytes, False)

    def open(self, directory: Path, owners: Owners = NOBODYS, namespaces: Collection[str] = ()) -> RocksDictEngine:
        """Open the engine in `directory`. If there is no database, `write_empty_database` makes one with its namespaces
        first. The library would need more than twice the fsyncs to make it, all of them with the GIL held."""
        try:
            if not self._read_only and is_unused(directory):
                write_empty_database(directory, [family_name(namespace) for namespace in namespaces])
        except OSError as error:
            raise Contents(directory, owners).failure(error) from error
        return RocksDictEngine(directory, self.options, self.family_options, owners, self._access)

    def memory(self) -> EngineMemory:
        return EngineMemory(block_cache=self._cache.get_usage())

    def for_many_tasks(self) -> RocksDictEngines:
        shared = copy(self)
        shared.settings = self.settings.for_many_tasks()
        return shared

    def crowded(self) -> bool:
        return self._write_buffers.get_usage() >= CROWDED * self._write_buffers.get_buffer_size()

    def options(self) -> Options:
        """Make the options of a database."""
        return self._with_settings(with_compressed_log() if self.settings.compresses_log else Options(raw_mode=True))

    def family_options(self) -> Options:
        """Make the options of a column family."""
        return self._with_settings(Options(raw_mode=True))

    def _with_settings(self, options: Options) -> Options:
        size = self.settings
        table = BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_bloom_filter(size.bloom_bits, False)
        # Indexes and filters are in the cache, too, so that its size bounds all data that stores read into memory.
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_format_version(5)
        table.set_checksum_type(ChecksumType.crc32c())
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_manager(self._write_buffers)
        options.set_write_buffer_size(size.write_buffer_bytes)
        options.set_arena_block_size(ARENA_BLOCK_BYTES)
        options.set_max_write_buffer_number(size.max_write_buffers)
        options.set_max_total_wal_size(size.max_wal_bytes)
        options.set_max_open_files(size.max_open_files)
        # There are many small databases. So nothing is preallocated, and no statistics or old log files are kept.
        options.set_manifest_preallocation_size(64 * 1024)
        options.set_skip_stats_update_on_db_open(True)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(1024 * 1024)
        return options


COMPRESSED_LOG = """[Version]
  rocksdb_version=8.0.0
  options_file_version=1.1
[DBOptions]
  wal_compression=kZSTD
[CFOptions "default"]
[TableOptions/BlockBasedTable "default"]
"""
RAW_MODE = '{"raw_mode":true,"prefix_extractors":{}}'


def with_compressed_log() -> Options:
    """Make options with RocksDB's defaults, except that each record of the log is compressed.

    The library has no call for this setting, but it can read a file of options as RocksDB writes them. A database may
    be opened with and without this setting, in any order."""
    with TemporaryDirectory(prefix="milestones-options-") as folder:
        (Path(folder) / "OPTIONS-000001").write_text(COMPRESSED_LOG, encoding="ascii")
        (Path(folder) / "rocksdict-config.json").write_text(RAW_MODE, encoding="ascii")
        options, _ = Options.load_latest(folder)
    return options


CROWDED = 0.75
"""If more than this share of the write buffers' memory is used, little is left. At 7/8 RocksDB flushes the engine that
is being written."""
FILES_SIZE, ROOM_BYTES = "rocksdb.total-sst-files-size", 32 * MIB
"""The RocksDB property with the size of a store's files, and the size from which on a compaction is worth its work."""


class RocksDictNamespace(RocksNamespace):
    db: Rdict
    handle: ColumnFamily

    def __init__(self, engine: RocksDictEngine, name: str, family: str, db: Rdict, handle: ColumnFamily) -> None:
        super().__init__(engine, name, family)
        self.db, self.handle = db, handle
        read, failed = db.get, self.failed

        def get(key: bytes) -> bytes | None:
            try:
                return read(key)
            except Exception as error:
                raise failed(error) from error

        self.get = get

    def _cursor(self, start: bytes | None, end: bytes | None, reverse: bool) -> _RocksdictCursor:
        return _RocksdictCursor(self, start, end, reverse)

    def _seek(self, beyond: bytes | None) -> _RocksdictSeeker:
        return _RocksdictSeeker(self, beyond)

    def property(self, name: str) -> int:
        try:
            return self.db.property_int_value(name) or 0
        except Exception as error:
            raise self.failed(error) from error

    def failed(self, error: Exception) -> StateError:
        return self.closed() if isinstance(error, DbClosedError) else super().failed(error)

    def release(self) -> None:
        super().release()
        del self.handle
        _close(self.db, self._engine.contents, told=not self._engine.interrupted)


class _RocksdictCursor:
    """A scan. If an error passes through a frame that has the library's iterator in a variable, the error's traceback
    keeps the database open for as long as the error lives. So such variables are deleted before an error is raised."""

    def __init__(self, namespace: RocksDictNamespace, start: bytes | None, end: bytes | None, reverse: bool) -> None:
        self._namespace = namespace
        self._lower, self._reverse = start if reverse else None, reverse
        self._at_end = False
        # The library's iterator points to the bytes of the bound. They live as long as the options that have the bound.
        self._options = ReadOptions()
        if end is not None:
            self._options.set_iterate_upper_bound(end)
        self._source: RdictIter | None = namespace.db.iter(self._options)
        try:
            if reverse:
                self._source.seek_to_last()
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
        source, lower = self._source, self._lower
        if source is None:
            raise self._namespace.closed()
        found: list[tuple[bytes, bytes]] = []
        read_key, read_value, add = source.key, source.value, found.append
        move = source.prev if self._reverse else source.next
        try:
            for _ in range(count):
                key = read_key()
                if key is None or (lower is not None and key < lower):
                    source.status()
                    self._at_end = True
                    break
                add((key, read_value()))
                move()
        except Exception as error:
            self._source = None
            del source, read_key, read_value, move
            raise self._namespace.failed(error) from error
        return found

    def close(self) -> None:
        self._source = None


class _RocksdictSeeker:
    """A `Seeker`. As in `_RocksdictCursor`, variables with the library's iterator are deleted before an error is
    raised."""

    def __init__(self, namespace: RocksDictNamespace, beyond: bytes | None) -> None:
        self._namespace, self._options = namespace, ReadOptions()
        if beyond is not None:
            self._options.set_iterate_upper_bound(beyond)
        self._source: RdictIter | None = namespace.db.iter(self._options)

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        source = self._source
        if source is None:
            raise self._namespace.closed()
        found: list[tuple[bytes, bytes]] = []
        try:
            source.seek(start)
            key = source.key()
            while key is not None and key < end and len(found) < limit:
                found.append((key, source.value()))
                source.next()
                key = source.key()
            if key is None:
                source.status()
        except Exception as error:
            self._source = None
            del source
            raise self._namespace.failed(error) from error
        return found, key

    def close(self) -> None:
        self._source = None


class RocksDictEngine(RocksEngine[RocksDictNamespace]):
    def __init__(
        self,
        path: Path,
        options: Callable[[], Options],
        family_options: Callable[[], Options],
        owners: Owners = NOBODYS,
        access: AccessType | None = None,
    ) -> None:
        """`options` and `family_options` make the settings of a database and of a column family.

        Raises the errors of `Engines.open`."""
        super().__init__(path, owners)
        self._family_options = family_options
        self._dropped: list[ColumnFamily] = []
        """Handles of dropped column families that RocksDB may still use."""
        self._at_once = WriteOptions()
        self._at_once.no_slowdown = True
        try:
            path.mkdir(parents=True, exist_ok=True)
            readable(path)
            names = Rdict.list_cf(str(path), family_options()) if (path / "CURRENT").exists() else []
            self._namespaces = FamilyTable[RocksDictNamespace](path, names)
            families = {name: family_options() for name in self._namespaces.families}
            access = access or AccessType.read_write()
            with LOCKED_CALLS.made():
                self._database = Rdict(str(path), options(), column_families=families, access_type=access)
        except Exception as error:
            raise self.contents.failure(error) from error

    def open(self, namespace: str) -> RocksDictNamespace:
        db: Rdict = self.db()

        def create(family: str) -> None:
            with LOCKED_CALLS.made():
                db.create_column_family(family, self._family_options()).close()

        def opened(family: str) -> RocksDictNamespace:
            handle = db.get_column_family_handle(family)
            return RocksDictNamespace(self, namespace, family, db.get_column_family(family), handle)

        try:
            return self._namespaces.open(namespace, create, opened)
        except Exception as error:
            raise self.contents.failure(error, namespace) from error

    def _write(self, db: Rdict, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        self._write_all(db, {}, batches, offsets)

    def _wipe(self, db: Rdict, spans: Mapping[str, Span], batches: Mapping[str, Batch]) -> None:
        self._write_all(db, {namespace: (span,) for namespace, span in spans.items()}, batches, {})

    def _write_all(
        self, db: Rdict, spans: Mapping[str, Collection[Span]], batches: Mapping[str, Batch], offsets: Mapping[str, int]
    ) -> None:
        """Delete spans, then write batches and offsets, all in one atomic step. Raises the library's error if RocksDB
        refuses the write. Each try needs a new batch, because a refused batch can't be used once more."""
        if self._dropped:
            self._free_dropped(db)
        handle: ColumnFamily | None = None
        try:
            batch = WriteBatch(raw_mode=True)
            put, delete = batch.put, batch.delete
            for namespace, gone in spans.items():
                handle = self._namespaces[namespace].handle
                for first, beyond in gone:
                    batch.delete_range(first, beyond, handle)
            for namespace, writes in batches.items():
                handle = self._namespaces[namespace].handle
                for key in sorted(writes):  # sorted keys cost half as much to insert into a memtable
                    value = writes[key]
                    if value is None:
                        delete(key, handle)
                    else:
                        put(key, value, handle)
            for namespace, offset in offsets.items():
                put(self._namespaces[namespace].family, pack_offset(offset))
            db.write(batch, self._at_once)
        except BaseException:
            del handle  # as in `_RocksdictCursor`
            raise

    def _expire(self, db: Rdict, namespace: str, spans: Collection[Span], *, wait: bool) -> None:
        """Write one tombstone per span, which costs the same for any number of keys. If the store is large, compact the
        spans. Otherwise RocksDB would keep the deleted entries on the disk until it compacts these files for another
        reason."""
        self._unstalled(lambda: self._write_all(db, {namespace: spans}, {}, {}), (), wait=wait)
        opened = self._namespaces[namespace]
        if opened.property(FILES_SIZE) >= ROOM_BYTES:
            for first, beyond in spans:
                opened.db.compact_range(first, beyond)

    def _compact(self, db: Rdict, opened: RocksDictNamespace, span: Span) -> None:
        opened.db.compact_range(*span)

    def interrupt(self) -> None:
        self.interrupted = True
        self.db().cancel_all_background(False)

    def _sync(self, db: Rdict) -> None:
        db.flush_wal(sync=True)

    def _flush(self, opened: RocksDictNamespace) -> None:
        opened.db.flush(wait=False)

    def _delayed_write_rate(self, db: Rdict) -> int:
        return db.property_int_value(DELAYED_WRITE_RATE) or 0

    def ingest(self, namespace: str, files: Sequence[Path]) -> Iterator[None]:
        """Link the files into the database, in one step. The library copies files that are on another disk."""
        self.db()
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            if files:
                with LOCKED_CALLS.made():
                    self._namespaces[namespace].db.ingest_external_file([str(file) for file in files], options)
                self._written(namespace)
        except Exception as error:
            raise self.contents.failure(error, namespace) from error
        yield

    def _drop(self, db: Rdict, family: str) -> None:
        self._dropped.append(db.get_column_family_handle(family))
        with LOCKED_CALLS.made():
            db.drop_column_family(family)
        self._free_dropped(db)
        self._unstalled(lambda: db.delete(family.encode(), self._at_once), ())

    def _free_dropped(self, db: Rdict) -> None:
        """Free the handles of dropped column families, unless a flush or a compaction is running.

        Such a job tells listeners of a stall when it ends, and reads a list of them that belongs to its column family.
        RocksDB frees this list with the last handle, so the process would crash (seen with RocksDB 9.8)."""
        if not any(db.property_int_value(running) for running in RUNNING_JOBS):
            self._dropped.clear()

    def _free_last_dropped(self, db: Rdict) -> None:
        """Free these handles before the database is closed. Wait for running jobs, but not for a long compaction."""
        clock = SystemClock()
        ends = clock.monotonic_ms() + LAST_JOBS_MS
        self._free_dropped(db)
        while self._dropped and clock.monotonic_ms() < ends:
            clock.sleep_ms(5)
            self._free_dropped(db)
        self._dropped.clear()

    def close(self) -> None:
        db, self._database = self._database, None
        if db is None:
            return
        self._namespaces.close()
        self._free_last_dropped(db)
        _close(db, self.contents, told=not self.interrupted)

    def _read(self, db: Rdict, key: bytes) -> bytes | None:
        return db.get(key)


def _close(db: Rdict, contents: Contents, *, told: bool = True) -> None:
    """Close the database. The library flushes at the close. If the flush fails, the data is still in the write-ahead
    log. `told`: True logs such a failure as a warning, False only for debugging."""
    try:
        db.close()
    except Exception as error:
        _log.log(logging.WARNING if told else logging.DEBUG, "closing %s: %s", contents, error)
