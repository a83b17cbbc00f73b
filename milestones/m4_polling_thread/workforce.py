"""`PollingWorkforce`: one polling thread, and the processing threads that the user counts.

*Guarantees*: the group sees one member. Its name, static id and transactional id are those of thread number 1 on an
earlier stage. So a rolling restart in either direction meets known ids.
*Assumes*: `ThreadRegistry` as documented there; it has the numbers of the processing threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milestones.instance.identity import processing_thread
from milestones.m4_polling_thread.thread import PollingThread

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig
    from milestones.instance.context import ThreadContext
    from milestones.instance.thread_registry import ThreadRegistry
    from milestones.parts import ClientFactory, ThreadParts

POLLING = 1
"""The number of the polling thread."""


@dataclass(frozen=True)
class PollingIdentity:
    """The identity of the polling thread, which polls for all processing threads of its instance."""

    config: StreamsConfig
    client_id: str
    registry: ThreadRegistry
    number: int = POLLING

    @property
    def name(self) -> str:
        return f"{self.client_id}-PollingThread"

    def helper(self, kind: str) -> str:
        return f"{self.client_id}-{kind}"

    def capacity(self) -> int:
        """Return the capacity that the group sees: at the start as on every stage (`instance/capacity.py`), then with
        the threads that came or ended since."""
        first = max(self.config.num_stream_threads, self.config.num_processing_threads)
        return max(1, first + self.registry.threads - self.config.num_processing_threads)

    def speaks(self) -> bool:
        return True


class PollingWorkforce:
    """Starts one thread that polls for all processing threads, `num_processing_threads` at first. A processing
    thread comes and ends without a rebalance. When the last one ends, the polling thread leaves the group. When the
    next one comes, a new polling thread joins."""

    def __init__(
        self,
        config: StreamsConfig,
        client_id: str,
        thread_registry: ThreadRegistry,
        parts: ThreadParts,
        client_factory: Callable[[ThreadContext], ClientFactory],
    ) -> None:
        self._identity = PollingIdentity(config, client_id, thread_registry)
        self._parts, self._client_factory = parts, client_factory
        thread_registry.begin(range(1, config.num_processing_threads + 1))

    def first(self) -> Sequence[int]:
        return (POLLING,)

    def polls_for(self, number: int) -> int:
        return POLLING

    def identity(self, number: int) -> PollingIdentity:
        return self._identity

    def name(self, number: int) -> str:
        return processing_thread(self._identity, number)

    def make(self, context: ThreadContext) -> PollingThread:
        return PollingThread(context, self._parts, self._client_factory)
