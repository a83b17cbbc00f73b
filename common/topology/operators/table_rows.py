"""How operators read and write the rows of a table's store, and send the updates.

    bytes_of(key) or row_of(key) ---> the operator computes the new value ---> update(...)
                                                                                 |-- the row is put or deleted
                                                                                 +-- the update goes to the children

*Guarantees*: an update is sent after its row was put or deleted. A plain store notes a deletion with the time of the
update, a versioned store with the time of the row. If the store has a cache, nothing is sent: the cache sends updates
when it is flushed.
*Assumes*: stores are `TableStore`s. An operator uses what `bytes_of` and `row_of` return only for the same key, and
only until it returns.

*Why this way*: a plain store serialises a key once for the read, the write, its changelog and the sink that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from milestones.common.state.stores.key_value_stores import TimestampedKeyValueStore
from milestones.common.topology.operators.versioned_tables import VersionedTable, forwarding_versions
from milestones.common.topology.program import KeepRow, OperatorContext, Process, TableStore

Update = Callable[[Any, Any, Any, Any, int, int], None]
"""A function that puts a row, and sends the update: (key, what `bytes_of` returned for it, new value, old value, time
of a deletion, time of the row). A new value of None deletes the row. The old value counts only if it is sent."""


class TableRows(NamedTuple):
    """The functions by which an operator uses its store.

    `bytes_of`: returns the bytes of a key, which `update` wants. `row_of`: returns these bytes and the row (value,
    timestamp), None if there is no row. `reads_again`: True if the operator must read an old value once more before it
    is sent, because a user's function has got it and may have changed it."""

    bytes_of: Callable[[Any], Any]
    row_of: Callable[[Any], tuple[Any, tuple[Any, int] | None]]
    update: Update
    reads_again: bool


def table_rows(context: OperatorContext, name: str | None, send_old_values: bool) -> TableRows:
    """Make the functions for the store `name`. None: the operator has no store, and its updates are only sent."""
    if name is None:
        return TableRows(_no_bytes, lambda _: (None, None), _sending(context, send_old_values), False)
    store: Any = context.store(name)
    forward = forwarding(context, store, send_old_values)
    again = reads_again(store, forward, send_old_values)
    if type(store) is not TimestampedKeyValueStore:  # a subclass writes other rows
        return TableRows(_no_bytes, _reading(store), _by_key(store, forward, send_old_values), again)
    put_row, delete_row, record = store.put_row, store.delete_row, context.record
    send_row, keep_row = context.row_takers
    if keep_row is not None:
        return TableRows(store.bytes_of, store.row_of, _keeping(store, keep_row), again)

    def update(key: Any, data: bytes, new: Any, old: Any, deleted: int, timestamp: int) -> None:
        if new is None:
            delete_row(data, deleted)
        else:
            put_row(data, new, timestamp)
        forward(key, (new, old) if send_old_values else new, timestamp)

    if send_row is None:
        return TableRows(store.bytes_of, store.row_of, update, again)

    def update_and_send_row(_: Any, data: bytes, new: Any, __: Any, deleted: int, timestamp: int) -> None:
        if new is None:
            delete_row(data, deleted)
            send_row(data, data, None, timestamp, record.headers)
        else:
            send_row(data, data, put_row(data, new, timestamp), timestamp, record.headers)

    return TableRows(store.bytes_of, store.row_of, update_and_send_row, again)


def _keeping(store: Any, keep_row: KeepRow) -> Update:
    """Make the function for an operator whose updates go to `suppress` only."""
    put_row, delete_row = store.put_row, store.delete_row

    def update(_: Any, data: bytes, new: Any, old: Any, deleted: int, timestamp: int) -> None:
        if new is None:
            delete_row(data, deleted)
            keep_row(data, 0, None, old, timestamp)
        else:
            keep_row(data, 0, put_row(data, new, timestamp), old, timestamp)

    return update


def _no_bytes(_: Any) -> None:
    return None


def _sending(context: OperatorContext, send_old_values: bool) -> Update:
    forward = context.forward if send_old_values else context.forward_new

    def update(key: Any, _: None, new: Any, old: Any, __: int, timestamp: int) -> None:
        forward(key, (new, old) if send_old_values else new, timestamp)

    return update


def _reading(store: TableStore) -> Callable[[Any], tuple[None, tuple[Any, int] | None]]:
    get = store.get_raw
    return lambda key: (None, get(key))


def _by_key(store: TableStore, forward: Process, send_old_values: bool) -> Update:
    put, delete, versioned = store.put_raw, store.delete_raw, store.versioned

    def update(key: Any, _: None, new: Any, old: Any, deleted: int, timestamp: int) -> None:
        if new is None:
            delete(key, timestamp if versioned else deleted)
        else:
            put(key, new, timestamp)
        forward(key, (new, old) if send_old_values else new, timestamp)

    return update


def forwarding(context: OperatorContext, store: TableStore, send_old_values: bool) -> Process:
    """Return the function to which an operator passes its updates. The function sends an update to the children. If the
    store has a cache, the function does nothing, as the cache sends updates when it is flushed."""
    if store.versioned:
        return forwarding_versions(context, cast(VersionedTable, store), send_old_values)
    forward = context.forward

    def flushed(key: Any, new: Any, old: Any, timestamp: int) -> None:
        forward(key, (new, old if send_old_values else None), timestamp)

    if store.set_flush_listener(flushed, send_old_values):
        return _nowhere
    return forward if send_old_values else context.forward_new


def reads_again(store: TableStore, forward: Process, send_old_values: bool) -> bool:
    """True if an old value must be read once more before it is sent, because a user's function has got it and may have
    changed it. `forward`: made by `forwarding`."""
    return send_old_values and not store.immutable and forward is not _nowhere


def _nowhere(key: Any, value: Any, timestamp: int) -> None:
    """Do nothing: the store has a cache, which sends updates when it is flushed."""
