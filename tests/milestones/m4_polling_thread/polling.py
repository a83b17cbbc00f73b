"""The polling thread's loop over stepped workers, and a client whose polling thread does what a test says."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from milestones.common.records import TaskId
from milestones.ended_tasks.task_failure_policy import TaskEndingPolicy
from milestones.instance.context import ProcessingThreadMoved, UncaughtExceptionResponse
from milestones.instance.thread_registry import ThreadRegistry
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.m2_processing_threads.processing import ThreadedProcessing
from milestones.m4_polling_thread.collection import ThreadedProductionHandler
from milestones.m4_polling_thread.counted_threads import CountedThreads
from milestones.m4_polling_thread.workforce import PollingIdentity
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing


class Handlers:
    """Runs handler threads at once. `held`: they begin with `release`; `refusing`: the system starts no more."""

    def __init__(self) -> None:
        self.held = self.refusing = False
        self.waiting: list[threading.Thread] = []

    def launch(self, thread: threading.Thread) -> None:
        if self.refusing:
            raise RuntimeError("can't start new thread")
        if self.held:
            self.waiting.append(thread)
        else:
            thread.run()

    def release(self) -> None:
        """Let them begin."""
        self.held, waiting, self.waiting = False, self.waiting, []
        for thread in waiting:
            thread.run()


class PollingWorld(ProcessingWorld):
    """A world of stage m4, in which a task that fails ends alone."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"task_failed": "end_task", **settings})

    def __post_init__(self) -> None:
        super().__post_init__()
        registry = ThreadRegistry(self.config.num_processing_threads)
        identity = PollingIdentity(self.config, "app", registry)
        self.context = replace(self.context, identity=identity, thread_registry=registry)
        workers = self.workers
        self.handlers = handlers = Handlers()
        self.asked: list[BaseException] = []
        self.decision: UncaughtExceptionResponse | None = None
        self.context = replace(self.context, decide=self.decide)
        self.parts = replace(
            self.parts,
            processing=lambda context: ThreadedProcessing(
                context, workers.launch, workers.wait, CountedThreads(context)
            ),
            collection=lambda context, clients: BufferedCollection(
                context, clients, ThreadedProductionHandler(context, handlers.launch)
            ),
            task_failure_policy=lambda context: TaskEndingPolicy(context, handlers.launch),
        )

    def decide(
        self,
        error: BaseException,
        default: UncaughtExceptionResponse = UncaughtExceptionResponse.SHUTDOWN_CLIENT,
        *,
        of_task: bool = False,
    ) -> UncaughtExceptionResponse:
        """The handler: says `decision`, if it is set."""
        self.asked.append(error)
        return default if self.decision is None else self.decision


class RunningPolling(RunningProcessing):
    """A loop with a world of stage m4."""

    world: PollingWorld

    def __init__(self, world: PollingWorld | None = None, **settings: Any) -> None:
        """`settings`: of a world that isn't given."""
        super().__init__(world or PollingWorld(**settings))
        self.roll_backs = Counter[TaskId]()
        began = self.tasks.roll_backs.began

        def count(tasks: Iterable[TaskId]) -> None:
            known = list(tasks)
            self.roll_backs.update(known)
            began(known)

        self.tasks.roll_backs.began = count

    def rolled_back(self) -> Counter[TaskId]:
        """How often each task was rolled back."""
        return self.roll_backs

    @property
    def registry(self) -> ThreadRegistry:
        return self.world.context.thread_registry

    @property
    def at_work(self) -> list[str]:
        """The names of the threads that haven't ended."""
        return [one.worker.name for one in self.world.workers.all if not one.worker.ended]

    def told(self) -> list[tuple[str, str]]:
        """What the polling thread has told of processing threads since the last call."""
        moves = [event for event in self.world.events if isinstance(event, ProcessingThreadMoved)]
        self.world.events.clear()
        return [(move.name.rpartition("-")[2], move.state) for move in moves]
