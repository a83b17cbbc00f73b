"""The common part of the joins: which side needs no partner, and the check that both sides fit.

*Guarantees*: pure functions of immutable values.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

from milestones.common.errors import TopologyError
from milestones.common.serdes import Serde
from milestones.common.topology.graph import Graph
from milestones.common.topology.join_windows import JoinWindows
from milestones.common.topology.naming import check_keywords
from milestones.common.topology.nodes import Partitioner
from milestones.common.topology.serde_choice import check_serde
from milestones.common.topology.user_functions import function_of
from milestones.common.topology.windows import Duration
from milestones.common.typed_serdes import SerdeLike

Joiner: TypeAlias = Callable[[Any, Any], Any]
"""(value, other value) -> joined value."""


class Alone(NamedTuple):
    """Which side's value is joined with None if the other side has no value."""

    left: bool
    right: bool


INNER: Final = Alone(False, False)
LEFT: Final = Alone(True, False)
OUTER: Final = Alone(True, True)


class ForeignKey(NamedTuple):
    """A user's choices for a join of tables by foreign key. `of_row(key, value)` returns the key of the right table
    that a row of the left table refers to. `of_row` is None in a join by equal keys. `left`: a row that refers to no
    row is joined with None. `partitioner`, `other_partitioner`: the partitioners of the left and of the right table's
    topic, if these aren't the default partitioner."""

    of_row: Callable[[Any, Any], Any] | None = None
    left: bool = False
    partitioner: Partitioner | None = None
    other_partitioner: Partitioner | None = None

    def check_unused(self, table: str) -> None:
        """Raise `TopologyError` if a join by equal keys was given partitioners."""
        if self.partitioner is not None or self.other_partitioner is not None:
            raise TopologyError(
                f"{table} is joined by equal keys, whose rows have to be in partitions of equal numbers: partitioner "
                "and other_partitioner are of a join by foreign_key"
            )


class JoinOptions(TypedDict, total=False):
    """Keyword arguments of a join of a stream.

    `name`: the name of the nodes and of the repartition topics. `key`, `value`, `other_value`: the serdes of stores and
    topics. A table has serdes of its own. `grace`: in a join with a versioned table, how long a record waits for the
    row that is valid at its time.

    The other arguments are only for a join of two streams. `within`: how near in time two records must be. `store`: the
    names of the stores that keep the records begin with it, and so do those of their changelog topics.
    `logging=False`: the stores have no changelog topics. `in_memory=True`: the stores are kept in memory, not in
    RocksDB. `changelog_config`: topic settings of the changelogs, which override the defaults.
    """

    name: str | None
    key: SerdeLike[Any] | None
    value: SerdeLike[Any] | None
    other_value: SerdeLike[Any] | None
    grace: Duration | None
    within: JoinWindows | None
    store: str | None
    logging: bool
    in_memory: bool
    changelog_config: Mapping[str, str]


class JoinStores(NamedTuple):
    """The options of `JoinOptions` that are about stores, as one value."""

    store: str | None = None
    logging: bool = True
    in_memory: bool = False
    changelog_config: Mapping[str, str] = MappingProxyType({})


class StreamJoin(NamedTuple):
    """A user's choices for a join of a stream: the joiner, and the keyword arguments that Kafka Streams has in `Joined`
    and, for two streams, in `StreamJoined`. `on(key, value)` returns the key of the row of a global table."""

    joiner: Callable[..., Any]
    alone: Alone
    with_key: bool
    name: str | None = None
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    other_value: Serde[Any] | None = None
    within: JoinWindows | None = None
    stores: JoinStores = JoinStores()
    grace: Duration | None = None
    on: Callable[[Any, Any], Any] | None = None

    @classmethod
    def of(
        cls, joiner: Callable[..., Any], alone: Alone, with_key: bool, options: JoinOptions,
        on: Callable[[Any, Any], Any] | None = None,
    ) -> StreamJoin:  # fmt: skip
        """Make the choices of these keyword arguments. Raises `TopologyError` if `joiner` is no function, or if a serde
        isn't one."""
        function_of(joiner)
        check_keywords(options, JoinOptions.__annotations__)
        given: dict[str, Any] = {**options}
        given |= {what: check_serde(given[what], what) for what in ("key", "value", "other_value") if what in given}
        stores = {what: given.pop(what) for what in JoinStores._fields if what in given}
        return cls(joiner, alone, with_key, stores=JoinStores(**stores), on=on, **given)


def check_no_foreign_key(table: str, options: Mapping[str, Any]) -> None:
    """Raise `TopologyError` if an outer join of tables was given a foreign key."""
    if "foreign_key" in options:
        raise TopologyError(
            f"{table} has no outer join by foreign_key: a row of the other table that nothing refers to has no key in "
            "the result; use left_join"
        )


_WAYS: Final = (("to_table", "a stream", "to_table()"), ("to_stream", "a table", "to_stream()"))


def not_joinable(one: object, other: object, needed: str) -> TopologyError:
    """Return the error of a join of `one` with an object that isn't what is `needed`."""
    hint = next((f"; of {what}, {call} makes one" for name, what, call in _WAYS if hasattr(other, name)), "")
    return TopologyError(f"a {type(one).__name__} is joined with {needed}, not with {other!r}{hint}")


def check_one_builder(one: Any, graph: Graph, other: Any, others: Graph) -> None:
    """Raise `TopologyError` if the two sides of a join belong to two builders."""
    if graph is not others:
        raise TopologyError(
            f"{one.name} and {other.name} belong to two StreamsBuilders, and so to two topologies: make both sides of "
            "the join with one builder, or write one side to a topic and read that"
        )
