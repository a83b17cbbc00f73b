"""The states of the client and of a stream thread, and the allowed changes between them, as in Kafka Streams.

Client:

    CREATED ---> REBALANCING <---> RUNNING
       |              |               |
       |              +-------+-------+-----> PENDING_ERROR ---> ERROR
       v                      v
       +-----------> PENDING_SHUTDOWN ---> NOT_RUNNING

Stream thread:

    CREATED ---> STARTING ---> PARTITIONS_REVOKED <---> PARTITIONS_ASSIGNED ---> RUNNING
                    |                  |                        |                   |
                    +------------------+-----------+------------+-------------------+
                                                   v
                                          PENDING_SHUTDOWN ---> DEAD

RUNNING goes back to PARTITIONS_REVOKED or PARTITIONS_ASSIGNED in a rebalance.

*Guarantees*: a change that isn't in the tables raises an error, because it is a bug.
*Assumes*: nothing.
"""

from __future__ import annotations

import enum


class StreamsState(enum.Enum):
    """The state of a client: `RUNNING` when all its threads process, `REBALANCING` while a thread gets tasks or
    restores them. `ERROR` and `NOT_RUNNING` are final; `Streams.error` is the reason of an `ERROR`."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"

    @property
    def has_not_started(self) -> bool:
        """Whether `start` wasn't called yet."""
        return self is StreamsState.CREATED

    @property
    def is_running_or_rebalancing(self) -> bool:
        """Whether the client works."""
        return self in (StreamsState.RUNNING, StreamsState.REBALANCING)

    @property
    def is_shutting_down(self) -> bool:
        """True if the client is shutting down."""
        return self in (StreamsState.PENDING_SHUTDOWN, StreamsState.PENDING_ERROR)

    @property
    def has_completed_shutdown(self) -> bool:
        """True if the client has ended for good."""
        return self in (StreamsState.NOT_RUNNING, StreamsState.ERROR)

    def may_become(self, new: StreamsState) -> bool:
        """True if `other` may be the next state of a client in this state."""
        return new in STREAMS_MOVES[self]


class ThreadState(enum.Enum):
    """The state of a stream thread: `PARTITIONS_ASSIGNED` while its tasks are restored, `RUNNING` when all of them
    process, `DEAD` at the end."""

    CREATED = "CREATED"
    STARTING = "STARTING"
    PARTITIONS_REVOKED = "PARTITIONS_REVOKED"
    PARTITIONS_ASSIGNED = "PARTITIONS_ASSIGNED"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    DEAD = "DEAD"


_S, _T = StreamsState, ThreadState

STREAMS_MOVES: dict[StreamsState, frozenset[StreamsState]] = {
    _S.CREATED: frozenset({_S.REBALANCING, _S.PENDING_SHUTDOWN}),
    _S.REBALANCING: frozenset({_S.RUNNING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
    _S.RUNNING: frozenset({_S.REBALANCING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
    _S.PENDING_SHUTDOWN: frozenset({_S.NOT_RUNNING}),
    _S.PENDING_ERROR: frozenset({_S.ERROR}),
    _S.NOT_RUNNING: frozenset(),
    _S.ERROR: frozenset(),
}

_ALIVE = frozenset({_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.RUNNING, _T.PENDING_SHUTDOWN})

THREAD_MOVES: dict[ThreadState, frozenset[ThreadState]] = {
    _T.CREATED: frozenset({_T.STARTING, _T.PENDING_SHUTDOWN}),
    _T.STARTING: frozenset({_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN}),
    _T.PARTITIONS_REVOKED: _ALIVE - {_T.RUNNING},
    _T.PARTITIONS_ASSIGNED: _ALIVE,
    _T.RUNNING: _ALIVE,
    _T.PENDING_SHUTDOWN: frozenset({_T.DEAD}),
    _T.DEAD: frozenset(),
}

ALIVE_THREADS = frozenset({_T.CREATED, _T.STARTING, _T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.RUNNING})


def moved(old: StreamsState, new: StreamsState) -> StreamsState:
    """Return `new`. Raises an error if a client can't change from `old` to `new`."""
    if new not in STREAMS_MOVES[old]:
        raise RuntimeError(f"client state can't go from {old.value} to {new.value}: this is a bug")
    return new


def thread_moved(old: ThreadState, new: ThreadState) -> ThreadState:
    """Return `new`. Raises an error if a stream thread can't change from `old` to `new`."""
    if new not in THREAD_MOVES[old]:
        raise RuntimeError(f"stream thread state can't go from {old.value} to {new.value}: this is a bug")
    return new
