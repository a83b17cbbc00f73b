"""The kinds of bounded stores, each with its model, and how a call is given to both.

A model has the methods of its kind of store, and takes and gives the same things; a value is a `Value` in what it
takes. Methods that stores don't have are steps of operators, and stand for both in `STEPS`.

*Guarantees*: a model uses nothing of the stores but the tuples that they give.
*Assumes*: as `model_values.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from milestones.common import serdes
from milestones.common.state.spec import StoreKind
from milestones.common.state.stores.suppress_buffer import ABSENT
from milestones.common.state.stores.suppress_layout import Context
from milestones.common.windowed import Windowed
from tests.common.task.storemodel.kept_models import Expiring, LastUsed, Suppressed, Versions, Waiting
from tests.common.task.storemodel.model_values import (
    HISTORY_MS,
    HISTORY_SEGMENT_MS,
    MOST,
    RETENTION_MS,
    SIZE_MS,
    TTL_MS,
    As,
    Model,
    Value,
    plain,
)
from tests.common.task.storemodel.window_models import (
    Duplicates,
    PlainWindows,
    Sessions,
    SessionsWithHeaders,
    TimedWindows,
    TimedWindowsWithHeaders,
)


def _replace_row(store: Any, key: str, value: Any, start: int, time: int) -> Any:
    place, row = store.row_of(store.bytes_of(key), start)
    if value is None:
        return row, store.put_window(key, None, time, start)
    return row, store.put_row(place, value, time, start) is not None


def _keep_row(store: Any, time: int, key: str, new: Any, old: Any, context: Context) -> Any:
    """As an operator does it that has the bytes of a row."""
    data = None if new is None else serdes.JSON.serializer("")(new)
    return store.keep(time, key.encode(), data, old, context.timestamp, context.headers, context.origin)


def _replace_near(store: Any, key: str, value: Any, earliest: int, latest: int) -> Any:
    data, found = store.near(key, earliest, latest)
    for row in found:
        if value is None:
            store.delete_rows(data, [row])
        else:
            store.replace_rows(data, [row], row[1], row[0], value)
    return [(Windowed(key, row[1], row[0]), row[4]) for row in found]


def _merge_near(store: Any, key: str, value: Any, earliest: int, latest: int) -> Any:
    data, found = store.near(key, earliest, latest)
    start, end = min([row[1] for row in found], default=earliest), max([row[0] for row in found], default=earliest)
    taken = store.replace_rows(data, found, start, end, value, new=True) is not None
    return [(Windowed(key, row[1], row[0]), store.row_value(row)) for row in found], taken


def _take_first(store: Any) -> Any:
    if not store.held()[0]:
        return None
    found, row = store.first(), store.first_row()
    value = None if found.change[0] is None else serdes.JSON.serializer("")(found.change[0])
    assert row == (found.key.encode(), found.key.encode(), value, found.context.timestamp, found.context.headers)
    if row.headers:
        row.headers.clear()  # it is the caller's
    store.remove_first()
    return tuple(found)


def _prior_of(store: Any, key: str) -> Any:
    prior = store.prior(key)
    return "absent" if prior is ABSENT else prior


def _take_due(store: Any, grace: int) -> Any:
    found = store.due(grace)
    for one in found:
        store.remove(one.place)
    return [(one.key, one.value, one.context) for one in found]


def _closed(store: Any, first: int, last: int) -> Any:
    return list(store.closed_between(max(first, store._observed.value - RETENTION_MS + 1), last))


STEPS: Mapping[str, Callable[..., Any]] = {
    "closed": _closed,
    "put_one_encoded": lambda store, key, value, start: store.put_encoded(key, store.encode(value), start),
    "put_window": lambda store, key, value, start, time: store.put_window(key, value, time, start),
    "replace_row": _replace_row,
    "rows_of": lambda store, *arguments: store.rows(*arguments),
    "replace_near": _replace_near,
    "merge_near": _merge_near,
    "rows_joined": lambda store, *arguments: store.rows_between(*arguments),
    "keep": lambda store, time, key, new, old, context: store.put(time, key, (new, old), context),
    "keep_row": _keep_row,
    "take_first": _take_first,
    "first_times": lambda store: (store.held()[0], store.first_time),
    "prior_of": _prior_of,
    "wait": lambda store, key, value, context: store.put(key, value, context),
    "take_due": _take_due,
    "approximate": lambda store: isinstance(store.approximate_num_entries(), int),
}
PLAINLY = {"put_window", "replace_row", "put_raw", "replace_near", "merge_near", "put_one_encoded", "keep",
           "keep_row", "wait"}  # fmt: skip
"""These take a value as a plain one, whatever user code puts."""
WITH_TIME = {"put_window", "replace_row"}
"""These take a value's time as a further argument."""


class Named(NamedTuple):
    """A kind of store, its model, and more of its spec."""

    kind: StoreKind
    model: type[Model]
    more: Mapping[str, Any]


_WINDOW = {"retention_ms": RETENTION_MS, "window_ms": SIZE_MS}
_SESSION = {"retention_ms": RETENTION_MS, "closing": True}
ALL: Mapping[str, Named] = {
    "window": Named("window", PlainWindows, {**_WINDOW, "closing": True}),
    "window of duplicates": Named("window", Duplicates, {**_WINDOW, "duplicates": True}),
    "timestamped window": Named("timestamped-window", TimedWindows, {**_WINDOW, "closing": True}),
    "timestamped window with headers": Named(
        "timestamped-window-with-headers", TimedWindowsWithHeaders, {**_WINDOW, "closing": True}
    ),
    "session": Named("session", Sessions, _SESSION),
    "session with headers": Named("session-with-headers", SessionsWithHeaders, _SESSION),
    "versioned": Named(
        "versioned", Versions, {"retention_ms": HISTORY_MS, "segment_interval_ms": HISTORY_SEGMENT_MS}
    ),
    "lru": Named("lru", LastUsed, {"max_entries": MOST}),
    "time to live": Named("expiring-key-value", Expiring, {"ttl_ms": TTL_MS}),
    "suppress": Named("suppress", Suppressed, {}),
    "join buffer": Named("join-buffer", Waiting, {}),
}


def given(named: Named, call: tuple[Any, ...]) -> tuple[Any, ...]:
    """The call as the store gets it: values as they are put, in objects that nobody else has."""
    name, *arguments = call
    shown = plain if name in PLAINLY or named.kind == "versioned" else named.model.shown
    made: list[Any] = [_given(argument, shown) for argument in arguments]
    if name in WITH_TIME:
        value = arguments[1]
        made.append(1 if value is None else value.time)
    return (name, *made)


def _given(argument: Any, shown: As) -> Any:
    if isinstance(argument, Value):
        return shown(argument)
    if isinstance(argument, list):  # entries of `put_all`
        return [(key, _given(value, shown)) for key, value in argument]
    return copy.deepcopy(argument)
