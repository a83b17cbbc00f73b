"""The supervisor: one thread that all lifecycle decisions of a client go through.

*Guarantees*: threads are started, replaced and stopped by one thread only; a client's state follows from its
threads' states by one function; every thread that was started is joined.
*Assumes*: the stream threads tell their states by mailbox and never touch the client.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from milestones.baseline.stream_thread import StreamThread
from milestones.common.mailbox import Mailbox
from milestones.common.metrics import Metrics
from milestones.common.records import TaskId, TopicPartition
from milestones.context import Exceptions, ThreadEvent, ThreadFailed, ThreadMoved, ThreadReport
from milestones.flags import stage_name
from milestones.housekeeper import Housekeeper
from milestones.instance import Instance
from milestones.states import StreamsState, ThreadState, moved

if TYPE_CHECKING:
    from milestones.application import Application
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.parts import Parts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Close:
    leave_group: bool


@dataclass(frozen=True)
class ClientFailed:
    error: BaseException


@dataclass(frozen=True)
class Status:
    """One instance at a glance. Lags count records not yet processed; `restoring` counts changelog records to go."""

    state: StreamsState
    stage: str
    threads: Mapping[str, ThreadState]
    tasks: Mapping[TaskId, str]
    lags: Mapping[TopicPartition, int]
    restoring: Mapping[TaskId, int]
    records: int
    generation: int


@dataclass
class _Member:
    """One stream thread as the supervisor knows it."""

    thread: StreamThread
    state: ThreadState = ThreadState.CREATED
    report: ThreadReport | None = None


class Supervisor:
    """Runs a client.

    *Owns*: the stream threads, the housekeeper, the instance's state directory lock, the client's state.
    *Receives*: thread events; requests to close. *Sends*: requests to stop to its threads; state changes to the
    user's listener. `state`, `error` and the threads' reports are published: replaced whole, read by anyone.
    """

    def __init__(
        self, config: StreamsConfig, flags: frozenset[str], application: Application, parts: Parts, clock: Clock
    ) -> None:
        self._config, self._application, self._parts, self._clock = config, application, parts, clock
        self.stage = stage_name(flags)
        self.metrics = Metrics()
        self.state = StreamsState.CREATED
        self.error: BaseException | None = None
        self.listener: Callable[[StreamsState, StreamsState], None] | None = None
        self.handler: Callable[[BaseException], Exceptions] = lambda error: Exceptions.SHUTDOWN_CLIENT
        self.stopped = threading.Event()
        self._mailbox: Mailbox[ThreadEvent | Close | ClientFailed] = Mailbox(capacity=100_000)
        self._members: dict[str, _Member] = {}
        self._records_before = 0
        self._thread: threading.Thread | None = None
        self._instance: Instance | None = None
        self._housekeeper: Housekeeper | None = None

    def begin(self) -> None:
        """Take the state directory, see that Kafka is there, start the threads."""
        self._instance = Instance(self._config, self._application, self.stage, self._clock)
        try:
            self._instance.prepare()
            self._start_threads(self._instance)
        except BaseException:
            self._instance.close()
            raise

    def _start_threads(self, instance: Instance) -> None:
        name = f"{instance.client_id}-supervisor"
        self._housekeeper = Housekeeper(
            f"{instance.client_id}-housekeeper", self._config, self._application, instance.cleaner(), self._clock,
            lambda error: self._tell(ClientFailed(error)),
        )
        self._move(StreamsState.REBALANCING)
        self._housekeeper.start()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask_to_close(self, leave_group: bool) -> None:
        if self._thread is None:
            if self.state is StreamsState.CREATED:
                self._move(StreamsState.PENDING_SHUTDOWN)
                self._move(StreamsState.NOT_RUNNING)
                self.stopped.set()
            return
        self._tell(Close(leave_group))

    def is_inside(self) -> bool:
        """Whether the calling thread is one of ours: it can't wait for itself."""
        current = threading.current_thread()
        return current is self._thread or any(current is member.thread for member in self._members.values())

    def status(self) -> Status:
        members = list(self._members.values())
        reports = [member.report for member in members if member.report is not None]
        return Status(
            state=self.state,
            stage=self.stage,
            threads={member.thread.name: member.state for member in members},
            tasks={task: place for report in reports for task, place in report.tasks.items()},
            lags={partition: lag for report in reports for partition, lag in report.lags.items()},
            restoring={task: left for report in reports for task, left in report.restoring.items()},
            records=self._records_before + sum(report.records for report in reports),
            generation=max((report.generation for report in reports), default=-1),
        )

    def _tell(self, event: ThreadEvent | Close | ClientFailed) -> None:
        self._mailbox.try_put(event)

    def _run(self) -> None:
        for index in range(1, self._config.num_stream_threads + 1):
            self._add_thread(index)
        leave_group, failure = True, None
        while failure is None:
            event = self._mailbox.get(timeout_ms=1_000)
            match event:
                case Close(leave_group):
                    break
                case ClientFailed(failure):
                    pass
                case ThreadFailed(name, error, decision):
                    failure = self._thread_failed(name, error, decision)
                case ThreadMoved(name, state):
                    self._thread_moved(name, ThreadState(state))
                case ThreadReport(name):
                    self._members[name].report = event
                case None:
                    pass
        self._end(leave_group, failure)

    def _add_thread(self, index: int) -> None:
        assert self._instance is not None and self._housekeeper is not None
        context = self._instance.thread_context(
            index, self.metrics, self._housekeeper.requests, self._tell, self._decide
        )
        thread = StreamThread(context, self._parts)
        self._members[context.name] = _Member(thread)
        thread.start()

    def _thread_moved(self, name: str, state: ThreadState) -> None:
        self._members[name].state = state
        wanted = client_state(member.state for member in self._members.values())
        if wanted is not None and wanted is not self.state:
            self._move(wanted)

    def _decide(self, error: BaseException) -> Exceptions:
        """What the user's handler says; called in the stream thread that dies."""
        try:
            return self.handler(error)
        except Exception:
            log.exception("the uncaught exception handler raised; the client shuts down")
            return Exceptions.SHUTDOWN_CLIENT

    def _thread_failed(self, name: str, error: BaseException, decision: Exceptions) -> BaseException | None:
        """Replace the thread, or name the error with which the client ends."""
        log.warning("stream thread %s died of %s: %s", name, type(error).__name__, decision.value)
        if decision is not Exceptions.REPLACE_THREAD:
            return error
        member = self._members.pop(name)
        self._records_before += member.report.records if member.report is not None else 0
        member.thread.join()
        self._add_thread(int(name.rsplit("-", 1)[1]))
        return None

    def _end(self, leave_group: bool, failure: BaseException | None) -> None:
        """Stop and join everything that was started; then say that it's over."""
        assert self._instance is not None and self._housekeeper is not None
        self.error = failure
        self._move(StreamsState.PENDING_SHUTDOWN if failure is None else StreamsState.PENDING_ERROR)
        for member in self._members.values():
            member.thread.stop(leave_group=leave_group)
        for member in self._members.values():
            member.thread.join()
        self._housekeeper.close()
        self._housekeeper.join()
        self._instance.close()
        self._move(StreamsState.NOT_RUNNING if failure is None else StreamsState.ERROR)
        self.stopped.set()

    def _move(self, state: StreamsState) -> None:
        old, self.state = self.state, moved(self.state, state)
        log.info("client state: %s -> %s", old.value, state.value)
        if self.listener is not None:
            try:
                self.listener(state, old)
            except Exception:
                log.exception("the state listener raised")


def client_state(threads: Iterable[ThreadState]) -> StreamsState | None:
    """The client's state while it runs: RUNNING once all threads are, REBALANCING when one isn't; None to stay."""
    states = set(threads)
    if states == {ThreadState.RUNNING}:
        return StreamsState.RUNNING
    if states & {ThreadState.PARTITIONS_REVOKED, ThreadState.PARTITIONS_ASSIGNED}:
        return StreamsState.REBALANCING
    return None
