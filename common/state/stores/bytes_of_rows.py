"""Whether a serde writes the very bytes that a store has, so that a row can go on without being serialised once more.

*Guarantees*: the answer is yes only if keys and values have the same bytes, whatever the key and the value are.
*Assumes*: serdes are settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milestones.common.serdes import Serde
from milestones.common.state.stores.key_value_stores import TimestampedKeyValueStore
from milestones.common.state.stores.rows import writes_with
from milestones.common.state.stores.session_store import SessionStore
from milestones.common.state.stores.window_layouts import SEGMENT
from milestones.common.state.stores.window_stores import TimestampedWindowStore
from milestones.common.windowed import START, START_AND_SEQUENCE, SessionWindowedSerde, WindowedSerde

_KEYS: Final[Mapping[tuple[type, type], slice]] = {
    (SessionStore, SessionWindowedSerde): slice(SEGMENT.size, None),
    (TimestampedWindowStore, WindowedSerde): slice(SEGMENT.size, START.size - START_AND_SEQUENCE.size),
    (TimestampedKeyValueStore, Serde): slice(None),
}
"""By the kinds of store and of serde: which part of a local key the serde writes. `Serde` stands for those of keys
without a window."""


def key_part(store: Any, topic: str, key: Serde[Any], value: Serde[Any]) -> slice | None:
    """Return the part of a local key of `store` that the serde `key` writes for `topic`. None if one of the serdes
    writes other bytes than the store, or if the rows go through the store's cache."""
    windowed = isinstance(key, WindowedSerde | SessionWindowedSerde)
    part = _KEYS.get((type(store), type(key) if windowed else Serde))
    if part is None or store.buffer is not None:
        return None
    inner: Serde[Any] = key.inner if isinstance(key, WindowedSerde | SessionWindowedSerde) else key
    return part if writes_with(store, inner.serializer(topic), value.serializer(topic)) else None
