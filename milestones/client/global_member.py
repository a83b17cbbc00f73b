"""`GlobalMember` is the supervisor's view of a client's global thread.

*Guarantees*: if there are no global stores, it counts as complete from the beginning.
*Assumes*: only the supervisor's thread calls it. Other threads only read `states`, `tasks`, `restoring` and `lags`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from milestones.client.client_events import Ending, Event, OfClient
from milestones.common.records import GLOBAL, TaskId, TopicPartition
from milestones.global_stores.thread import GlobalStreamThread, GlobalSurroundings
from milestones.instance.context import GlobalMoved, GlobalReport
from milestones.instance.states import ThreadState

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.metrics import Metrics
    from milestones.instance.admin_thread import Requests
    from milestones.instance.application import Application
    from milestones.instance.context import Decide, GlobalEvent
    from milestones.instance.instance import Instance
    from milestones.instance.listeners import Listeners


def global_thread(
    config: StreamsConfig,
    application: Application,
    instance: Instance,
    clock: Clock,
    metrics: Metrics,
    housekeeper: Requests,
    notify: Callable[[GlobalEvent], None],
    decide: Decide,
    listeners: Listeners,
) -> GlobalStreamThread | None:
    """Return the thread of the instance's global stores, not yet started, or None if there are no global stores."""
    if application.globals is None:
        return None
    return GlobalStreamThread(GlobalSurroundings(
        f"{instance.client_id}-GlobalStreamThread", config, clock, application.globals, instance.global_partitions,
        instance.state, instance.global_stores, metrics, housekeeper, notify, decide, listeners,
    ))  # fmt: skip


class GlobalMember:
    """*Owns*: the thread. `threads`: it, if there is one."""

    def __init__(self, thread: GlobalStreamThread | None) -> None:
        self.threads: tuple[()] | tuple[GlobalStreamThread] = () if thread is None else (thread,)
        self._state, self._report = ThreadState.CREATED, GlobalReport(0, {})

    def complete_stores(
        self, next_event: Callable[[], Event | None], take: Callable[[Event], Ending | None], waiting: list[Event]
    ) -> Ending | None:
        """Start the thread, and wait until the stores are complete. If the client must end before that, the ending is
        returned. Events about stream threads, which don't exist yet, are added to `waiting`.
        """
        for thread in self.threads:
            thread.start()
        while not self.complete:
            event = next_event()
            if isinstance(event, OfClient):
                if (ending := take(event)) is not None:
                    return ending
            elif event is not None:
                waiting.append(event)
        return None

    def stop(self) -> None:
        """Ask the thread to end. No other thread reads the stores any more."""
        for thread in self.threads:
            thread.stop()

    def close(self) -> None:
        """Close a thread that wasn't started."""
        for thread in self.threads:
            thread.discard()

    def over(self) -> None:
        """Note that the thread has ended."""
        self._state, self._report = ThreadState.DEAD, GlobalReport(0, {})

    def note(self, event: GlobalMoved | GlobalReport) -> None:
        """Note what the thread tells."""
        if isinstance(event, GlobalMoved):
            self._state = ThreadState(event.state)
        else:
            self._report = event

    @property
    def complete(self) -> bool:
        """Whether tasks may start."""
        return not self.threads or self._state is ThreadState.RUNNING

    @property
    def states(self) -> Mapping[str, ThreadState]:
        """The thread's state by its name."""
        return {thread.name: self._state for thread in self.threads}

    @property
    def tasks(self) -> Mapping[TaskId, str]:
        """The global stores, in place of a task."""
        return dict.fromkeys([GLOBAL] if self.threads else [], "global")

    @property
    def restoring(self) -> Mapping[TaskId, int]:
        """The number of records to be read before tasks start."""
        return {GLOBAL: self._report.restoring} if self._report.restoring and not self.complete else {}

    @property
    def lags(self) -> Mapping[TopicPartition, int]:
        """For each partition, the number of records that aren't in the stores yet."""
        return self._report.lags
