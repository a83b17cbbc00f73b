"""`ThreadIdentity` has the names and ids of a polling thread. There is one class for stream threads, and one for Spark
tasks.

*Guarantees*: an identity is immutable. Its answers about threads come from the instance's `ThreadRegistry`.
*Assumes*: no two polling threads have the same number at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from milestones.common.config import thread_name
from milestones.instance.capacity import capacity

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig
    from milestones.instance.thread_registry import ThreadRegistry


class ThreadIdentity(Protocol):
    """The names and ids of a polling thread, and its share of the instance's capacity."""

    @property
    def number(self) -> int:
        """The number, from 1, with which the thread's transactional id and static id end."""
        ...

    @property
    def name(self) -> str:
        """The thread's name in logs and metrics; the names of the thread's Kafka clients begin with it."""
        ...

    def helper(self, kind: str) -> str:
        """Return the name of a helper thread of this kind that works only for this thread."""
        ...

    def capacity(self) -> int:
        """The weight of the thread's member in the group, at least 1."""
        ...

    def speaks(self) -> bool:
        """True if this thread tells the group which closed tasks have state on the instance's disk. One thread of the
        instance does so.
        """
        ...


def processing_thread(identity: ThreadIdentity, number: int) -> str:
    """Return the name of the polling thread's processing thread with this number."""
    return f"{identity.helper('ProcessingThread')}-{number}"


@dataclass(frozen=True)
class StreamThreadIdentity:
    """The identity of one of several stream threads, which divide the instance's capacity and its processing threads
    among them.
    """

    config: StreamsConfig
    client_id: str
    registry: ThreadRegistry
    number: int

    @property
    def name(self) -> str:
        return thread_name(self.client_id, self.number)

    def helper(self, kind: str) -> str:
        return f"{self.client_id}-{kind}-{self.number}"

    def capacity(self) -> int:
        return capacity(self.config, self.registry, self.number)

    def speaks(self) -> bool:
        return self.registry.numbers()[:1] == [self.number]


@dataclass(frozen=True)
class AttemptIdentity:
    """The identity of an attempt of a Spark task, which works alone and in the calling thread. In the group, the
    driver's member takes its place.
    """

    name: str
    number: int = 1

    def helper(self, kind: str) -> str:
        return f"{self.name}-{kind}"

    def capacity(self) -> int:
        return 1

    def speaks(self) -> bool:
        return True
