"""The physical nodes of a topology, and the sub-topologies they form.

*Guarantees*: immutable; shareable by threads.
*Assumes*: operators are immutable descriptions (`program.Operator`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from milestones.common.errors import TopologyError
from milestones.common.offset_reset import ResetPolicy, reset_policy
from milestones.common.records import Headers
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import Choice
from milestones.common.topology.timestamps import TimestampExtractor

OffsetReset: TypeAlias = Literal["earliest", "latest", "none"] | timedelta | str
"""Where to begin without a committed offset: `"earliest"`, `"latest"`, `"none"`, or with records that are no older than
a `timedelta`, or Kafka's `"by_duration:PT1H"` (KIP-1106)."""


class SinkRecord(NamedTuple):
    """The record of a sink, for a function that chooses the topic; -1 and None when there is no input record (a
    punctuation)."""

    timestamp: int
    headers: Headers
    topic: str | None
    partition: int
    offset: int


TopicExtractor: TypeAlias = Callable[[Any, Any, SinkRecord], str]
"""Chooses the topic of a record of a sink: `(key, value, record) -> topic`. The topic must exist."""

Partitioner: TypeAlias = Callable[[str, Any, Any, int], "int | Iterable[int] | None"]
"""Chooses partitions: `(topic, key, value, partitions) -> partition`. None: the default partitioner; several: the
record goes to each; an empty collection: the record is dropped (KIP-837)."""


@dataclass(frozen=True)
class SourceNode:
    """Reads topics, either by name or by pattern (a regular expression that matches the whole name)."""

    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    key: Choice = None
    value: Choice = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: ResetPolicy | None = None
    own_timestamps: bool = False
    """Whether the records' own timestamps count, whatever the default extractor is (repartition topics)."""
    global_store: str | None = None
    """The global store that the topic's records make, which every instance reads whole; None for a source of tasks."""

    @property
    def parents(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class ProcessorNode:
    """Runs an operator on each record of its parents. `side`: only on those that they forward to it by its name."""

    name: str
    parents: tuple[str, ...]
    operator: Operator
    stores: tuple[str, ...] = ()
    side: bool = False


@dataclass(frozen=True)
class SinkNode:
    """Writes records of its parents to a topic. `by_inner_key`: without a partitioner, a windowed key goes to the
    partition of the key without its window, as with `KStream.to` in Kafka Streams. `upserts`: a record replaces
    the ones before of its key, so that a stage may send the last one of each commit only; each needs a key."""

    name: str
    parents: tuple[str, ...]
    topic: str | TopicExtractor
    key: Choice = None
    value: Choice = None
    partitioner: Partitioner | None = None
    by_inner_key: bool = False
    upserts: bool = False


Node: TypeAlias = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True)
class RepartitionTopic:
    """An internal topic. `partitions` None: as many as the largest upstream source."""

    name: str
    partitions: int | None


@dataclass(frozen=True)
class SubTopology:
    """The nodes that one task runs: connected, by streams or by stores, without a topic between them."""

    id: int
    nodes: tuple[Node, ...]
    """The nodes, parents first, with real topic names and settled serdes."""
    source_topics: tuple[str, ...]
    """The real names of source topics, sorted, repartition topics included."""
    source_patterns: tuple[str, ...]
    sink_topics: tuple[str, ...]
    """The static sink topics, sorted."""
    repartition_topics: Mapping[str, RepartitionTopic]
    """The source topics that this application owns."""
    stores: tuple[StoreSpec, ...]
    changelogs: Mapping[str, str]
    """The changelog topics of logged stores, by store (a source topic where the spec says so)."""
    copartition_groups: tuple[frozenset[str], ...]
    """The groups of source topics that must have equal partition counts."""
    copartition_patterns: tuple[tuple[str, ...], ...] = ()
    """Of each of these groups, the patterns whose topics belong to it."""
    shared_stores: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The source topics whose records reach a store, by store, where there are several."""


def check_reset(given: OffsetReset | None, source: str) -> ResetPolicy | None:
    """The policy of a source, `TopologyError` for what is none."""
    try:
        return None if given is None else reset_policy(given)
    except ValueError as error:
        raise TopologyError(f"source {source}: offset_reset {error}, not {given!r}") from error


def function_name(function: object) -> str:
    """The name of a user's function, for texts."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def place_of(function: object) -> str:
    """The file and line where a user's function begins, for texts; nothing of one that isn't written in Python."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
