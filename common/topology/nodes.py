"""The physical nodes of a topology, and the sub-topologies they form.

*Guarantees*: all values are immutable, so threads may share them.
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
"""The place where reading begins if there is no committed offset: `"earliest"`, `"latest"`, `"none"` (which is an
error), or at the first record that is no older than a `timedelta`, or than a duration in Kafka's form
`"by_duration:PT1H"` (KIP-1106)."""


class SinkRecord(NamedTuple):
    """The facts about a record that a function gets when it chooses a sink's topic. `topic`, `partition` and `offset`
    are those of the input record. Without an input record (in a punctuation) they are None, -1 and -1."""

    timestamp: int
    headers: Headers
    topic: str | None
    partition: int
    offset: int


TopicExtractor: TypeAlias = Callable[[Any, Any, SinkRecord], str]
"""Chooses the topic to which a sink writes a record: `(key, value, record) -> topic`. The topic must exist."""

Partitioner: TypeAlias = Callable[[str, Any, Any, int], "int | Iterable[int] | None"]
"""Chooses a partition: `(topic, key, value, partitions) -> partition`. If it returns None, the default partitioner
chooses. If it returns several partitions, the record goes to each of them. If it returns an empty collection, the
record is dropped (KIP-837)."""


@dataclass(frozen=True)
class SourceNode:
    """Reads topics, either by name or by pattern. A pattern is a regular expression that must match a whole name."""

    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    key: Choice = None
    value: Choice = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: ResetPolicy | None = None
    own_timestamps: bool = False
    """True if the records' own timestamps count, whatever the default extractor is (as for repartition topics)."""
    global_store: str | None = None
    """The global store that the topic's records are written to. Every instance reads the whole topic. None if tasks
    read the topic."""

    @property
    def parents(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class ProcessorNode:
    """Runs an operator on each record of its parents. With `side`, it gets only the records that its parents forward to
    it by its name."""

    name: str
    parents: tuple[str, ...]
    operator: Operator
    stores: tuple[str, ...] = ()
    side: bool = False


@dataclass(frozen=True)
class SinkNode:
    """Writes the records of its parents to a topic. `by_inner_key`: if there is no partitioner, the partition of a
    windowed key is chosen by the key without its window, as with `KStream.to` in Kafka Streams. `upserts`: a record
    replaces the earlier records of its key, so each record needs a key, and a stage may send only the last record of a
    key in each commit."""

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
    """An internal topic. If `partitions` is None, it gets as many partitions as the largest source upstream of it."""

    name: str
    partitions: int | None


@dataclass(frozen=True)
class SubTopology:
    """The nodes that one task runs. Streams or shared stores connect them, without a topic in between."""

    id: int
    nodes: tuple[Node, ...]
    """The nodes, parents first. Their topics have full names, and their serdes are settled."""
    source_topics: tuple[str, ...]
    """The full names of the source topics, sorted. Repartition topics are included."""
    source_patterns: tuple[str, ...]
    sink_topics: tuple[str, ...]
    """The topics of sinks that are known by name, sorted."""
    repartition_topics: Mapping[str, RepartitionTopic]
    """The source topics that this application owns."""
    stores: tuple[StoreSpec, ...]
    changelogs: Mapping[str, str]
    """The changelog topics of logged stores, by store. If the spec says so, a store's changelog is its source topic."""
    copartition_groups: tuple[frozenset[str], ...]
    """The groups of source topics that must have equal partition counts."""
    copartition_patterns: tuple[tuple[str, ...], ...] = ()
    """For each of these groups, the patterns whose topics belong to the group, too."""
    shared_stores: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each store that several source topics reach: these topics."""


def check_reset(given: OffsetReset | None, source: str) -> ResetPolicy | None:
    """Make the policy of a source. Raises `TopologyError` for a value that is no policy."""
    try:
        return None if given is None else reset_policy(given)
    except ValueError as error:
        raise TopologyError(f"source {source}: offset_reset {error}, not {given!r}") from error


def function_name(function: object) -> str:
    """Return the name of a user's function, for error texts."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def place_of(function: object) -> str:
    """Return the file and line where a user's function begins, for error texts. Empty if it isn't written in Python."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
