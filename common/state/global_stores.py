"""`GlobalStores`: an instance's global stores, as its tasks read them.

    GlobalStreamThread --applies a batch--> namespace <--get, scan-- any number of tasks, each by a store of its own

*Guarantees*: a scan of a range shows the store at the time of the call. A scan shows all entries of a batch or none. Of
two reads of a store on disk, the later one never shows an older state. A task that writes to such a store gets a
`TopologyError`.
*Assumes*: `show` is called before a task that reads is made. The namespaces stay open until the last such task has
ended. A task calls only methods that `engine.py` allows during an `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from milestones.common.errors import StateCorruptError, StateError, TopologyError
from milestones.common.records import TaskId
from milestones.common.state.engine import Namespace
from milestones.common.state.layers import ABSENT, StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.global_readers import ShownCells
from milestones.common.state.stores.kinds import kind_of
from milestones.common.state.stores.rows import InWork, Rows, StoreParts


class ShownStore(NamedTuple):
    """A global store that is restored and may be read. `cells`: values that its writer keeps besides the rows, such as
    times."""

    spec: StoreSpec
    namespace: Namespace
    cells: ShownCells


class GlobalStores:
    """The global stores of an instance, keyed by name. There are none before `show`.

    *Concurrency*: the mapping is replaced as a whole, and any thread reads it."""

    def __init__(self) -> None:
        self._shown: Mapping[str, ShownStore] = {}
        self.damage: StateCorruptError | None = None
        """The damage that a task has found while it read. The thread that has the stores ends with this error."""

    def show(self, stores: Iterable[ShownStore]) -> None:
        """Let tasks read these stores."""
        self._shown = {store.spec.name: store for store in stores}

    def reader(self, name: str, task: TaskId, record: InWork) -> Rows | None:
        """Make a store object through which one task reads the global store `name`. The object isn't open yet.

        Returns None if there is no global store of that name."""
        shown = self._shown.get(name)
        if shown is None:
            return None
        spec, namespace, cells = shown
        refused, reader = _Refused(name, task), kind_of(spec).reader
        assert reader is not None  # `Topology` has only such kinds as global stores
        return reader(StoreParts(
            task, ReadOnlyLayers(namespace, name, refused, self._damaged), _NOTHING_REMEMBERED, spec.key_serde,
            spec.value_serde, str(spec.source_topic), refused, record, spec, cells,
        ))  # fmt: skip

    def _damaged(self, error: StateCorruptError) -> StateError:
        """Note the damage, and return the error for the task that was reading."""
        self.damage = error
        return StateError(f"a global store is damaged, so this instance ends; the next start restores it: {error}")


class GlobalReaders:
    """The global stores as the user code of one task reads them. A store object is made when its name is first asked
    for.

    *Owned* by the thread that has the task."""

    def __init__(self, stores: GlobalStores, task: TaskId, record: InWork) -> None:
        self._stores, self._task, self._record = stores, task, record
        self._readers: dict[str, Rows] = {}

    def store(self, name: str) -> Rows | None:
        """Return the open store of that name, None if there is no such global store."""
        if name not in self._readers:
            reader = self._stores.reader(name, self._task, self._record)
            if reader is None:
                return None
            reader.open()
            self._readers[name] = reader
        return self._readers[name]

    def close(self) -> None:
        """Close all store objects. A later call of `store` makes new ones."""
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.close()


class _Refused:
    """Refuses a write with a `TopologyError`. It stands in the place of the store's `Log`, which is called before
    anything is written."""

    def __init__(self, store: str, task: TaskId) -> None:
        self._store, self._task = store, task

    def __call__(self, key: bytes, value: bytes | None, timestamp: int, _: object = None) -> NoReturn:
        raise TopologyError(
            f"store {self._store} is global, so task {self._task} can only read it: only its own processor writes it. "
            "Send the record to the store's topic"
        )


class ReadOnlyLayers(StoreLayers):
    """The namespace of a global store as `StoreLayers` without layers. `damaged` turns the error of a damaged namespace
    into the reader's error."""

    __slots__ = ("_damaged", "_refuse", "_source")

    def __init__(
        self, namespace: Namespace, name: str, refuse: _Refused, damaged: Callable[[StateCorruptError], StateError]
    ) -> None:
        super().__init__(namespace, [], _NOTHING_REMEMBERED, name)
        self._refuse, self._source, self._damaged = refuse, namespace, damaged

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._source.get(key)
        except StateCorruptError as error:
            raise self._damaged(error) from error

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        try:
            found = self._source.scan(start, end, reverse=reverse)
        except StateCorruptError as error:
            raise self._damaged(error) from error
        return self._watched(found)

    def _watched(self, found: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from found
        except StateCorruptError as error:
            raise self._damaged(error) from error

    def scan_bounded(self, _head: bytes, _first: bytes, _last: bytes) -> None:
        """Return None, so that each thread uses `scan`: two threads may not call a namespace's `scan_bounded` at the
        same time."""

    def put(self, key: bytes, value: bytes | None) -> None:
        self._refuse(key, value, 0)


class _NothingRemembered(ReadCache):
    """A cache that keeps no value, because another thread may write to the store at any time. All stores share it."""

    __slots__ = ()

    def find(self, key: bytes) -> Any:
        return ABSENT

    def keep(self, key: bytes, value: Any, size: int) -> None:
        """Do nothing: no value is kept."""

    def forget_value(self, key: bytes) -> None:
        """Do nothing: no value was kept."""


_NOTHING_REMEMBERED = _NothingRemembered(ReadCaches(0))
