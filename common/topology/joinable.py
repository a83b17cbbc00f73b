"""The joins of streams, as a user calls them.

*Guarantees*: type checkers derive the type of the result from the joiner. Type checkers know that the joiner may get
None if there may be no partner.
*Assumes*: `KStream` adds the nodes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, overload

from milestones.common.topology.joins import INNER, LEFT, OUTER, JoinOptions, StreamJoin
from milestones.common.topology.missing import Explained
from milestones.common.type_variables import KR, VO, VR, K, V

if TYPE_CHECKING:
    from milestones.common.topology.global_tables import GlobalKTable
    from milestones.common.topology.stream import KStream
    from milestones.common.topology.table import KTable


class JoinableStream(Explained, Generic[K, V]):
    """The joins of a `KStream`."""

    @abstractmethod
    def _join(self, other: object, join: StreamJoin) -> KStream[K, Any]:
        """Add the nodes of a join."""

    @overload
    def join(
        self, other: KStream[K, VO] | KTable[K, VO], joiner: Callable[[V, VO], VR], *,
        with_key: Literal[False] = False, **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    @overload
    def join(
        self, other: KStream[K, VO] | KTable[K, VO], joiner: Callable[[K, V, VO], VR], *,
        with_key: Literal[True], **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    @overload
    def join(
        self, other: GlobalKTable[KR, VO], joiner: Callable[[V, VO], VR], *, on: Callable[[K, V], KR | None],
        with_key: Literal[False] = False, **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    @overload
    def join(
        self, other: GlobalKTable[KR, VO], joiner: Callable[[K, V, VO], VR], *, on: Callable[[K, V], KR | None],
        with_key: Literal[True], **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    def join(
        self, other: Any, joiner: Callable[..., Any], *, on: Callable[[Any, Any], Any] | None = None,
        with_key: bool = False, **options: Unpack[JoinOptions],
    ) -> KStream[K, Any]:  # fmt: skip
        """Join each record with the records of another stream, or with the row of a table, that have the same key. The
        value of a result is `joiner(value, other_value) -> value`. With `with_key=True` the call is
        `joiner(key, value, other_value)`. A record without a partner has no result.

        Two streams: partners must be as near in time as `within` says. The timestamp of a result is the later of the
        two records'. Records without a key or a value are dropped.

        Stream and table: a record is joined with the row that the table has at that moment. If the row changes later,
        earlier records are not joined once more.

        In both cases the topics of both sides need the same number of partitions. A stream whose keys may have changed
        goes through a repartition topic first. `JoinOptions` describes the other keyword arguments.

        Versioned table: a record is joined with the row that was valid at the record's time. With `grace` (KIP-923) the
        record first waits that long for the row, measured by the timestamps of the stream's records. Records that have
        waited are joined in the order of their timestamps.

        Global table: `on(key, value)` returns the key of the row, which may differ from the record's own key. So
        neither side is repartitioned. A record for which `on` returns None has no result.
        """
        return self._join(other, StreamJoin.of(joiner, INNER, with_key, options, on))

    @overload
    def left_join(
        self, other: KStream[K, VO] | KTable[K, VO], joiner: Callable[[V, VO | None], VR], *,
        with_key: Literal[False] = False, **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    @overload
    def left_join(
        self, other: KStream[K, VO] | KTable[K, VO], joiner: Callable[[K, V, VO | None], VR], *,
        with_key: Literal[True], **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    @overload
    def left_join(
        self, other: GlobalKTable[KR, VO], joiner: Callable[[V, VO | None], VR], *, on: Callable[[K, V], KR | None],
        with_key: Literal[False] = False, **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    @overload
    def left_join(
        self, other: GlobalKTable[KR, VO], joiner: Callable[[K, V, VO | None], VR], *, on: Callable[[K, V], KR | None],
        with_key: Literal[True], **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    def left_join(
        self, other: Any, joiner: Callable[..., Any], *, on: Callable[[Any, Any], Any] | None = None,
        with_key: bool = False, **options: Unpack[JoinOptions],
    ) -> KStream[K, Any]:  # fmt: skip
        """Join as `join` does, but join a record without a partner with None. In a join with a stream, such a record
        waits for a partner until its window and the grace have passed. A record without a key can't have a partner, so
        its result is sent immediately."""
        return self._join(other, StreamJoin.of(joiner, LEFT, with_key, options, on))

    @overload
    def outer_join(
        self, other: KStream[K, VO], joiner: Callable[[V | None, VO | None], VR], *,
        with_key: Literal[False] = False, **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    @overload
    def outer_join(
        self, other: KStream[K, VO], joiner: Callable[[K, V | None, VO | None], VR], *,
        with_key: Literal[True], **options: Unpack[JoinOptions],
    ) -> KStream[K, VR]: ...  # fmt: skip

    def outer_join(
        self, other: Any, joiner: Callable[..., Any], *, with_key: bool = False, **options: Unpack[JoinOptions],
    ) -> KStream[K, Any]:  # fmt: skip
        """Join as `left_join` does, but join records of either stream with None if they have no partner."""
        return self._join(other, StreamJoin.of(joiner, OUTER, with_key, options))
