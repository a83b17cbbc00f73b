"""`ThreadIdentity`: a thread that polls, as its instance and its group know it; that of a stream thread, of a Spark
task.

*Guarantees*: an identity is immutable; what it says of threads follows the instance's `ThreadRegistry`.
*Assumes*: no two threads that poll at a time have one number.
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
    """The names and ids of a thread that polls, and its share of the instance."""

    @property
    def number(self) -> int:
        """From 1. The thread's transactional id and its static id end with it."""
        ...

    @property
    def name(self) -> str:
        """The thread's name in logs and metrics; the names of the thread's Kafka clients begin with it."""
        ...

    def helper(self, kind: str) -> str:
        """The name of a thread of this kind that works for this one only."""
        ...

    def capacity(self) -> int:
        """The weight of the thread's member in the group, at least 1."""
        ...

    def speaks(self) -> bool:
        """Whether this thread tells the group what lies closed on the instance's disk: one thread of the instance
        does."""
        ...


def processing_thread(identity: ThreadIdentity, number: int) -> str:
    """The name of the processing thread of this number, of the thread that polls."""
    return f"{identity.helper('ProcessingThread')}-{number}"


@dataclass(frozen=True)
class StreamThreadIdentity:
    """One of several stream threads, which share out the instance's capacity and its processing threads."""

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
    """An attempt of a Spark task, which works alone and in the calling thread. The member of the driver stands for it
    in the group."""

    name: str
    number: int = 1

    def helper(self, kind: str) -> str:
        return f"{self.name}-{kind}"

    def capacity(self) -> int:
        return 1

    def speaks(self) -> bool:
        return True
