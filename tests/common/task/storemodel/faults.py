"""Ways in which a store could be broken: what the model must find.

*Guarantees*: a fault is in the product for as long as its `MonkeyPatch` isn't undone.
*Assumes*: planted before any store is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from milestones.common.state import changelog
from milestones.common.state.changelog import TimestampedLayout
from milestones.common.state.commit_log import CommitLog
from milestones.common.state.engines.rocksdict_engine import _RocksdictCursor
from milestones.common.state.layers import Layer, StoreLayers
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.stores import key_value_stores, row_headers, stores_with_headers
from milestones.common.state.stores.emit_buffer import EmitBuffer
from milestones.common.state.stores.key_value_stores import KeyValueStore
from milestones.common.state.stores.row_headers import TimedHeadersLayout, without_headers
from milestones.common.task.runner import Runner
from milestones.common.task.task_stores import TaskStores

FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}
"""What plants each, by name, with spaces. The docstrings say how the store is broken."""


def fault(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the table, under its own name: it takes the place of `owner`'s `name`, and is given the
    original before the arguments."""
    original = getattr(owner, name)

    def enter(broken: Callable[..., Any]) -> Callable[..., Any]:
        def plant(monkeypatch: pytest.MonkeyPatch) -> None:
            monkeypatch.setattr(owner, name, lambda *arguments, **named: broken(original, *arguments, **named))

        FAULTS[broken.__name__.replace("_", " ")] = plant
        return broken

    return enter


@fault(StoreLayers, "scan")
def a_bound_too_early(scan: Any, layers: Any, start: Any = None, end: Any = None, *, reverse: bool = False) -> Any:
    """A range ends before its last key."""
    return scan(layers, start, end and end.removesuffix(b"\x00"), reverse=reverse)


@fault(StoreLayers, "scan")
def a_bound_too_late(scan: Any, layers: Any, start: Any = None, end: Any = None, *, reverse: bool = False) -> Any:
    """A range goes on to the key behind its last one."""
    return scan(layers, start, end and end + b"\x00", reverse=reverse)


@fault(StoreLayers, "scan")
def a_start_too_late(scan: Any, layers: Any, start: Any = None, end: Any = None, *, reverse: bool = False) -> Any:
    """A range leaves out its first key."""
    return scan(layers, start and start + b"\x00", end, reverse=reverse)


@fault(StoreLayers, "scan")
def a_reversed_order(scan: Any, layers: Any, *bounds: Any, reverse: bool = False) -> Any:
    """A reverse range goes forward."""
    return scan(layers, *bounds)


@fault(Layer, "keys_between")
def a_tombstone_shown(keys_between: Any, layer: Any, *bounds: Any) -> list[bytes]:
    """A row that was deleted since the last commit is still in scans."""
    return [key for key in keys_between(layer, *bounds) if layer[key] is not None]


@fault(StoreLayers, "abort")
def an_uncommitted_row_after_an_abort(abort: Any, layers: Any) -> None:
    """A roll-back leaves a row of the overlay."""
    kept = dict(list(layers._overlay.items())[:1])
    abort(layers)
    layers._overlay = Layer(kept)


@fault(StoreLayers, "drop_scope")
def a_row_of_a_failed_record(_: Any, layers: Any) -> None:
    """What a record wrote that was skipped becomes part of the boundary."""
    layers.merge()


@fault(CommitLog, "note")
def a_deletion_that_is_logged_without_its_time(_: Any, log: Any, *write: Any) -> None:
    """What rows don't say isn't noted for the commit."""


@fault(CommitLog, "thaw")
def a_commit_log_without_what_a_failed_commit_had(_: Any, log: Any) -> None:
    """The next commit logs only the times of what came later."""
    log.applied()


@fault(LocalStateManager, "open")
def a_row_of_the_neighbour_task(open_: Any, local: Any, *arguments: Any) -> Any:
    """A key that a store doesn't have is read from that of another task."""
    state = open_(local, *arguments)
    others = [other for other in local._open if other.complete and other.task != state.task]
    for name, store in state.stores.items():
        for other in others:
            _read_from(store.namespace, other.namespace(name))
            _read_from(other.namespace(name), store.namespace)
    return state


def _read_from(namespace: Any, other: Any) -> None:
    own, its = namespace.get, other.get
    namespace.get = lambda key: own(key) or its(key)


@fault(key_value_stores, "after_prefix")
def a_prefix_one_byte_off(after_prefix: Any, prefix: bytes) -> Any:
    """The last byte of a prefix isn't looked at for where it ends."""
    return after_prefix(prefix[:-1] or prefix)


@fault(key_value_stores, "after_prefix")
def a_prefix_that_ends_with_the_highest_byte(_: Any, prefix: bytes) -> bytes:
    """The end of a prefix is the prefix and one more of the highest byte."""
    return prefix + b"\xff"


@fault(StoreLayers, "drop_scope")
def a_stale_remembered_value(_: Any, layers: Any) -> None:
    """What a failed record has written is forgotten, but for its decoded value."""
    layers._scope = {}


@fault(KeyValueStore, "_delete")
def a_deleted_row_that_is_remembered(_: Any, store: Any, data: bytes, timestamp: int) -> None:
    """A key that was read, then deleted, is read as it was."""
    store._log(data, None, timestamp)
    store._layers.put(data, None)


@fault(StoreLayers, "scan")
def a_scan_that_misses_the_overlay(scan: Any, layers: Any, *bounds: Any, reverse: bool = False) -> Any:
    """Scans see the record in work and the engine, not what lies in between."""
    overlay, layers._overlay = layers._overlay, Layer()
    try:
        return scan(layers, *bounds, reverse=reverse)
    finally:
        layers._overlay = overlay


@fault(StoreLayers, "scan")
def a_scan_that_goes_with_later_writes(scan: Any, layers: Any, *bounds: Any, reverse: bool = False) -> Iterator[Any]:
    """A scan looks at the store when its first entry is asked for, not when it is called."""
    yield from scan(layers, *bounds, reverse=reverse)


@fault(changelog, "without_none")
def a_deleted_row_after_a_restore(without_none: Any, *arguments: Any) -> dict[bytes, bytes]:
    """A changelog's deletions aren't restored."""
    return {key: value for key, value in without_none(*arguments).items() if value is not None}


@fault(StoreLayers, "thaw")
def a_thawed_commit_that_is_lost(_: Any, layers: Any) -> None:
    """The writes of a commit that failed don't go with the next one."""
    layers.applied()


@fault(KeyValueStore, "_delete")
def a_write_that_is_not_logged(_: Any, store: Any, data: bytes, _timestamp: int) -> None:
    """A delete is in the store, and not in its changelog."""
    store._layers.put(data, None)
    store._remembered[data] = None


@fault(_RocksdictCursor, "__init__")
def an_upper_bound_that_is_freed(init: Any, cursor: Any, *arguments: Any) -> None:
    """The library's iterator points at a bound whose memory is given back: scans end somewhere."""
    init(cursor, *arguments)
    del cursor._options


@fault(Runner, "run_alone")
def a_row_of_init_that_is_gone_after_a_roll_back(run_alone: Any, runner: Any, call: Any, node: str) -> Any:
    """What Processor.init writes counts once per task, not once per program."""

    def dropped() -> None:
        call()
        runner.scope.drop()

    return run_alone(runner, dropped if node == "Processor.init" and runner._boundary.epoch else call, node)


@fault(TaskStores, "log_again")
def a_changelog_that_is_not_mended_after_a_roll_back(*_: Any) -> None:
    """At least once, the changelog keeps what was sent of records that were rolled back."""


@fault(EmitBuffer, "mark")
def a_write_to_the_key_that_is_flushed(mark: Any, buffer: Any, *arguments: Any) -> None:
    """What a flush listener writes to the key that it is told of waits for a flush that doesn't come."""
    flushing, buffer._flushing = buffer._flushing, None
    try:
        mark(buffer, *arguments)
    finally:
        buffer._flushing = flushing


ON_DISK = ("an upper bound that is freed",)
"""Faults that only stores on disk can have, by the default engine."""


@fault(row_headers, "timed_row")
def a_row_without_headers_after_a_restore(timed_row: Any, value: bytes, timestamp: int, _: Any) -> bytes:
    """The headers of changelog records aren't restored. `Store.put` has its own name for the function."""
    return bytes(timed_row(value, timestamp, None))


@fault(TimedHeadersLayout, "log_stored")
def a_row_that_is_logged_without_headers(_: Any, layout: Any, log: Any, key: bytes, stored: Any, at: int) -> None:
    """A cache logs rows as those of a store without headers."""
    plain = None if stored is None else without_headers(stored)
    TimestampedLayout.log_stored(layout, log, key, plain, at)


@fault(stores_with_headers, "timed_headers")
def headers_that_are_cut_off(timed_headers: Any, local: bytes) -> Any:
    """The last header of a row isn't read."""
    return timed_headers(local)[:-1]
