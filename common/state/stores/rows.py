"""The base classes of all typed stores: `Rows`, and `TimedRows` for values with a time. These classes serialise keys
and values, write them into the layers, log them, remember decoded values, and flush the cache.

*Guarantees*: keys and values are serialised when they are put, so that an object that changes later doesn't change the
store. A mutable value is decoded anew by each get. Each write of a logged store is in its changelog exactly once. Of a
cached store, the changelog has the last write per key and commit.
*Assumes*: the thread that has the task uses the store, from the task's start to its close. A subclass defines by its
serialisers which keys the store has (for example a key and a window).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, NoReturn, Protocol

from milestones.common.errors import MilestonesError, SerializationError, StateError
from milestones.common.records import Headers, RecordMetadata, TaskId
from milestones.common.serdes import EXACT, Serde, unwritable
from milestones.common.state.cells import Cells
from milestones.common.state.changelog import TIMESTAMP, TIMESTAMP_BYTES, Log
from milestones.common.state.layers import ABSENT, StoreLayers
from milestones.common.state.read_cache import ReadCache
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.emit_buffer import EmitBuffer, PendingUpdate
from milestones.common.type_variables import K, V
from milestones.common.writable import first_timestamp

REMEMBERED_BYTES = 512
"""Values that have more bytes aren't remembered. To read such a value costs little compared with its use."""

FlushListener = Callable[[Any, Any, Any, int], None]
"""A function that gets (key, new value, old value, timestamp) of each key that changed since the last flush. A value
None means that the key has no value."""


class InWork(Protocol):
    """The properties of the current record that a store uses."""

    timestamp: int
    headers: Headers | None

    @property
    def metadata(self) -> RecordMetadata | None: ...


_pack = TIMESTAMP.pack


class _NoType:
    """A type that no value has."""


class StoreParts(NamedTuple):
    """The objects of which a typed store is made.

    `log` is called for each write, before the write is put into the layers, and gets the layers' key. `logs_puts`:
    False means that `log` needn't be called for a put of a timed row, because the commit finds all it needs in the row.
    `cells`: the cells of the store's task. `buffer`: the pending updates of a cached store, None for other stores."""

    task: TaskId
    layers: StoreLayers
    read_cache: ReadCache
    key: Serde[Any]
    value: Serde[Any]
    topic: str
    log: Log
    record: InWork
    spec: StoreSpec
    cells: Cells
    buffer: EmitBuffer | None = None
    logs_puts: bool = True


class Rows(Generic[K, V]):
    """Values by key. The store is open from the task's start to its close. At other times each call raises
    `StateError`.

    `versioned`: True means that each key has a value for each time."""

    versioned: ClassVar[bool] = False

    __slots__ = ("_decode_key", "_decode_value", "_encode_key", "_encode_value", "_exact", "_exact_type",
                 "_layers", "_listener", "_log", "_log_put", "_read_cache", "_record", "_remembered",
                 "_send_old_values", "_serdes", "_task", "_topic", "buffer", "immutable", "name")  # fmt: skip

    buffer: EmitBuffer | None

    def __init__(self, parts: StoreParts) -> None:
        self.name: str = parts.layers.name
        self._task, self._layers = parts.task, parts.layers
        self._read_cache, self._remembered = parts.read_cache, parts.read_cache.values
        self._serdes, self._topic = (parts.key, parts.value), parts.topic
        self._log, self._record, self.buffer = parts.log, parts.record, parts.buffer
        self._log_put: Log | None = parts.log if parts.logs_puts else None
        self._listener: FlushListener | None = None
        self._send_old_values = False
        self.immutable: bool = parts.value.immutable
        """True if values can't be changed. Other values are decoded anew by each read."""
        # The object that was put is remembered only if a read would return an equal object of the same type. This is
        # known for some serdes (`EXACT`). An example of the opposite: 1 in a store of floats is read back as 1.0.
        self._exact_type: type = _NoType
        self._exact = any(parts.value is each for each in EXACT)
        self.close()

    def open(self) -> None:
        """Open the store, so that user code can call it."""
        key, value = self._serdes
        self._encode_key, self._decode_key = key.serializer(self._topic), key.deserializer(self._topic)
        self._encode_value, self._decode_value = value.serializer(self._topic), value.deserializer(self._topic)

    def close(self) -> None:
        """Close the store: from now on each call of user code raises `StateError`."""
        self._encode_key = self._decode_key = self._encode_value = self._decode_value = self._not_open

    def _get_row(self, key: K) -> V | None:
        """Return the value of `key`, None if it is absent."""
        if key is None:
            raise self._no_key("get")
        try:
            data = self._encode_key(key)
        except Exception as error:
            self._refused(0, key, error)
        return self._row_at(data)

    def _row_at(self, data: bytes) -> V | None:
        """Return the value of a serialised key, None if it is absent."""
        value: Any = self._remembered.get(data, ABSENT)
        if value is ABSENT:
            value = self._read(data)
        if self.immutable or value is None:
            return value  # type: ignore[no-any-return]  # of the value serde's type
        try:
            decoded: V = self._decode_value(value)
        except Exception as error:
            self._unreadable(value, error)
        return decoded

    def _put_row(self, key: K, value: V | None) -> None:
        """Set the value of `key`. None deletes the key."""
        if key is None:
            raise self._no_key("put")
        try:
            data = self._encode_key(key)
        except Exception as error:
            self._refused(0, key, error)
        self._put_at(data, value)

    def _put_at(self, data: bytes, value: V | None) -> None:
        """Set the value of a serialised key. None deletes the key."""
        if value is None:
            return self._delete(data, self._record.timestamp)
        try:
            encoded = self._encode_value(value)
        except Exception as error:
            self._refused(1, value, error)
        self._log(data, encoded, self._record.timestamp)
        self._layers.put(data, encoded)
        if len(encoded) > REMEMBERED_BYTES:
            self._read_cache.forget_value(data)
        elif type(value) is self._exact_type:
            if self._remembered.get(data) is None:
                self._read_cache.keep(data, value, len(encoded))
            else:
                self._remembered[data] = value
        elif self.immutable:
            self._read_cache.forget_value(data)
        elif self._remembered.get(data) is None:
            self._read_cache.keep(data, encoded, len(encoded))
        else:
            self._remembered[data] = encoded
        return None

    def _scan_rows(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Yield key and value of each row with start <= serialised key < end, at the time of this call, in the order of
        the keys' bytes."""
        self._check_open()
        return self._entries(self._layers.scan(start, end, reverse=reverse))

    def approximate_num_entries(self) -> int:
        """Estimate the number of committed entries."""
        self._check_open()
        return self._layers.approximate_entries()

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool = True) -> bool:
        """Let a cached store call `listener` at each flush. Returns True if the store is cached: then the operator must
        not forward updates itself. Without `send_old_values`, the listener gets None for old values."""
        if self.buffer is None:
            return False
        self._listener, self._send_old_values = listener, send_old_values
        return True

    # -- below

    def flush(self, key: bytes, waiting: PendingUpdate) -> None:
        """Pass one waiting update to the listener. The task calls this in a scope that is made for the update."""
        new = self._layers.get(key)
        if self._listener is None or (new is None and waiting.old is None):
            return
        value, timestamp = self._flushed(new, waiting.timestamp)
        old = self._flushed(waiting.old, 0)[0] if self._send_old_values else None
        self._listener(self._decode_key(key), value, old, timestamp)

    def _flushed(self, data: bytes | None, timestamp: int) -> tuple[Any, int]:
        """Decode stored bytes to (value, timestamp). If they hold no timestamp, the argument `timestamp` is
        returned."""
        return (None if data is None else self._decoded(data)), timestamp

    def _delete(self, data: bytes, timestamp: int) -> None:
        self._log(data, None, timestamp)
        self._layers.put(data, None)
        self._read_cache.forget_value(data)

    def _read(self, key: bytes) -> Any:
        """Read a key's value and remember it: the decoded value if it is immutable, else its bytes."""
        value: Any = self._read_cache.find(key)
        if value is not ABSENT:
            return value
        encoded = self._layers.get(key)
        if encoded is None:
            self._read_cache.keep(key, None, 0)
            return None
        value = encoded
        if self.immutable:
            value = self._decoded(encoded)
            self._exact_type = self._type_to_remember(value)
        if len(encoded) <= REMEMBERED_BYTES:
            self._read_cache.keep(key, value, len(encoded))
        return value

    def _type_to_remember(self, value: Any) -> type:
        return type(value) if self._exact else _NoType

    def _entries(self, scanned: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        for key, value in scanned:
            yield self._decode_key(key), self._decoded(value)

    def _key(self, key: Any, call: str) -> bytes:
        if key is None:
            raise self._no_key(call)
        try:
            return self._encode_key(key)
        except Exception as error:
            self._refused(0, key, error)

    def _decoded(self, data: bytes) -> Any:
        try:
            return self._decode_value(data)
        except Exception as error:
            self._unreadable(data, error)

    def _check_open(self) -> None:
        if self._encode_key == self._not_open:
            self._not_open(None)

    def _not_open(self, _: Any) -> NoReturn:
        raise StateError(
            f"store {self.name} of task {self._task} isn't open: use it from Processor.init on until Processor.close, "
            "and take it from the context of its own task"
        )

    def _no_key(self, call: str) -> SerializationError:
        return SerializationError(f"store {self.name} of task {self._task}: {call} with key None; a key can't be None")

    def _unreadable(self, data: bytes, error: Exception) -> NoReturn:
        if isinstance(error, MilestonesError):
            raise error
        raise SerializationError(
            f"store {self.name} of task {self._task}: serde {self._serdes[1].name} can't read {len(data)} bytes "
            f"of a row: {error}. Another version of the program or of the class wrote the row. Let the class accept "
            "it, or give the store a Serde that reads such rows, value=Serde(write, read); see docs/types.md"
        ) from error

    def _refused(self, which: int, value: object, error: Exception) -> NoReturn:
        if isinstance(error, MilestonesError):
            raise error
        what = unwritable(self._serdes[which], self._topic, value, error)
        raise SerializationError(
            f"store {self.name} of task {self._task}: {'value' if which else 'key'}: {what}"
        ) from error


class TimedRows(Rows[K, V]):
    """Values with their time, by key. A row is a plain tuple (value, timestamp)."""

    __slots__ = ()

    if TYPE_CHECKING:  # at run time, `get_raw` is the method itself, which saves one call

        def get_raw(self, key: K) -> V | None:
            """Return (value, timestamp) of a key, None if it is absent."""

    else:
        get_raw = Rows._get_row

    def open(self) -> None:
        super().open()
        decode, unpack, head = self._decode_value, TIMESTAMP.unpack_from, TIMESTAMP_BYTES

        def decode_row(data: bytes) -> tuple[Any, int]:
            return decode(data[head:]), unpack(data)[0]

        self._decode_value = decode_row

    def put_raw(self, key: Any, value: Any, timestamp: int) -> None:
        """Set value and time of `key`. The value None deletes the key."""
        if key is None:
            raise self._no_key("put")
        try:
            data = self._encode_key(key)
        except Exception as error:
            self._refused(0, key, error)
        if value is None:
            self._delete(data, self._record.timestamp)
        else:
            self._put_timed(data, value, timestamp)

    def delete_raw(self, key: Any, timestamp: int) -> None:
        """Delete `key` at the time `timestamp`. (`put_raw` deletes at the time of the current record.)"""
        self._delete(self._key(key, "delete"), timestamp)

    def _put_timed(self, data: bytes, value: Any, timestamp: int) -> bytes:
        """Set value and time of a serialised key. The value isn't None. Returns the value's bytes."""
        timestamp = timestamp or first_timestamp()
        try:
            encoded = self._encode_value(value)
            local = _pack(timestamp) + encoded
        except Exception as error:
            self._refused(1, value, error)
        if self._log_put is not None:
            self._log_put(data, encoded, timestamp)
        self._layers.put(data, local)
        remembered: Any = None if self.immutable else local
        if type(value) is self._exact_type:
            remembered = value, timestamp
        if remembered is None or len(local) > REMEMBERED_BYTES:
            self._read_cache.forget_value(data)
        elif self._remembered.get(data) is None:
            self._read_cache.keep(data, remembered, len(local))
        else:
            self._remembered[data] = remembered
        return encoded

    def _type_to_remember(self, value: Any) -> type:
        return super()._type_to_remember(value[0])

    def _flushed(self, data: bytes | None, timestamp: int) -> tuple[Any, int]:
        return (None, timestamp) if data is None else self._decoded(data)


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the least key that is greater than all keys that begin with `prefix`. None if there is no such key."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None


def writes_with(rows: Rows[Any, Any], key: Callable[[Any], bytes], value: Callable[[Any], bytes]) -> bool:
    """True if the store serialises keys and values with these functions."""
    own_key, own_value = rows._serdes
    return own_key.serializer(rows._topic) is key and own_value.serializer(rows._topic) is value
