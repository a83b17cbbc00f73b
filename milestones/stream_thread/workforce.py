"""`StreamThreads`: the workforce up to M3. It consists of stream threads, each with its own loop, clients and tasks.

*Guarantees*: a thread's name follows from its number; the registry keeps numbers apart. The first threads join the
group together (`StartLine`).
*Assumes*: `ThreadRegistry` keeps its guarantees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from milestones.common.config import thread_name
from milestones.instance.identity import StreamThreadIdentity
from milestones.stream_thread.start_line import StartLine
from milestones.stream_thread.thread import StreamThread

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig
    from milestones.instance.context import ThreadContext
    from milestones.instance.thread_registry import ThreadRegistry
    from milestones.parts import ClientFactory, ThreadParts


class StreamThreads:
    """`num_stream_threads` stream threads. A thread that is added, removed or replaced joins or leaves the group, which
    is a rebalance."""

    def __init__(
        self,
        config: StreamsConfig,
        client_id: str,
        thread_registry: ThreadRegistry,
        parts: ThreadParts,
        client_factory: Callable[[ThreadContext], ClientFactory],
    ) -> None:
        self._config, self._client_id, self._registry = config, client_id, thread_registry
        self._parts, self._client_factory = parts, client_factory
        self._first = range(1, config.num_stream_threads + 1)
        self._start_line = StartLine(config.num_stream_threads)
        thread_registry.begin(self._first)

    def first(self) -> Sequence[int]:
        return self._first

    def name(self, number: int) -> str:
        return thread_name(self._client_id, number)

    def polls_for(self, number: int) -> int:
        return number

    def identity(self, number: int) -> StreamThreadIdentity:
        return StreamThreadIdentity(self._config, self._client_id, self._registry, number)

    def make(self, context: ThreadContext) -> StreamThread:
        return StreamThread(context, self._parts, self._client_factory, self._start_line)
