"""The joins of streams, as a user calls them.

*Guarantees*: type checkers know the result from the joiner, and None where there may be no partner.
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
        """Join each record with those of another stream that have its key and are as near in time as `within` says, or
        with the present row of a table that has its key: `joiner(value, other_value) -> value`, or, `with_key=True`,
        `joiner(key, value, other_value) -> value`. A record without a partner goes no further.

        Of two streams a result has the later of both timestamps, and records without a key or a value are dropped; a
        change of a table joins no earlier record again. The topics of both sides need the same number of partitions; a
        stream whose keys may have changed goes through a repartition topic first. `JoinOptions`
        has the other keyword arguments.

        With a versioned table a record is joined with the row that held at its time. `grace`: how long it waits for
        that row, by the time of the stream's records; then it is joined, in the order of time (KIP-923).

        With a global table, `on(key, value)` gives the key of the row, whatever the record's own key is, so that
        neither side is repartitioned; a record for which it gives None goes no further.
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
        """As `join`; a record for which there is no partner is joined with None. Where it may have one among the
        records of a stream, it waits until its window and the grace are over; one that has no key is sent at once."""
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
        """As `left_join`, for records of either stream."""
        return self._join(other, StreamJoin.of(joiner, OUTER, with_key, options))
