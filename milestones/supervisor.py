"""The supervisor: one thread that all lifecycle decisions of a client go through.

*Guarantees*: threads are started, replaced and stopped by one thread only; a client's state follows from its
threads' states by one function; every thread that was started is joined.
*Assumes*: the stream threads tell their states by mailbox and never touch the client.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from milestones.baseline.stream_thread import StreamThread
from milestones.common.mailbox import Mailbox
from milestones.common.metrics import PUBLISH_INTERVAL_MS, ClientMetrics, Metrics, MetricsEndpoint
from milestones.common.records import TaskId, TopicPartition
from milestones.context import Exceptions, ThreadEvent, ThreadFailed, ThreadMoved, ThreadReport
from milestones.flags import stage_name
from milestones.housekeeper import Housekeeper, NewSources
from milestones.instance import Instance
from milestones.states import ALIVE_THREADS, StreamsState, ThreadState, moved

if TYPE_CHECKING:
    from milestones.application import Application
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.parts import Parts

log = logging.getLogger(__name__)

SAY_S = 5
"""Seconds between two words about a thread that is awaited."""


@dataclass(frozen=True)
class Close:
    leave_group: bool


@dataclass(frozen=True)
class ClientFailed:
    error: BaseException


Event = ThreadEvent | Close | ClientFailed | NewSources


@dataclass(frozen=True)
class Ending:
    """How a client ends: by itself, or of an error."""

    leave_group: bool
    error: BaseException | None


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

    *Owns*: the stream threads, the housekeeper, the instance's state directory lock, the client's state, its metrics
    and their HTTP endpoint.
    *Receives*: thread events; requests to close. *Sends*: requests to stop to its threads; state changes to the
    user's listener. `state`, `error` and the threads' reports are published: replaced whole, read by anyone.
    """

    def __init__(
        self, config: StreamsConfig, flags: frozenset[str], application: Application, parts: Parts, clock: Clock
    ) -> None:
        self._config, self._application, self._parts, self._clock = config, application, parts, clock
        self.stage = stage_name(flags)
        self.metrics = Metrics(
            clock, level=config.metrics_recording_level, window_ms=config.metrics_sample_window_ms
        )
        self.endpoint: MetricsEndpoint | None = None
        self._client: ClientMetrics | None = None
        self._threads_failed = 0
        self.state = StreamsState.CREATED
        self.error: BaseException | None = None
        self.listener: Callable[[StreamsState, StreamsState], None] | None = None
        self.handler: Callable[[BaseException], Exceptions] = lambda _: Exceptions.SHUTDOWN_CLIENT
        self.stopped = threading.Event()
        self._mailbox: Mailbox[Event] = Mailbox(capacity=100_000)
        self._members: dict[str, _Member] = {}
        self._records_before = 0
        self._thread: threading.Thread | None = None
        self._listening: int | None = None

    def begin(self) -> None:
        """Take the state directory, see that Kafka is there, start the threads."""
        instance = Instance(self._config, self._application, self.stage, self._clock)
        try:
            instance.prepare()
            self._client = self._client_metrics(instance.client_id)
            if self._config.metrics_port is not None:
                self.endpoint = MetricsEndpoint(self.metrics, self._config.metrics_host, self._config.metrics_port)
                log.info("metrics are served at http://%s:%d/metrics", self.endpoint.host, self.endpoint.port)
        except BaseException:
            instance.close()
            raise
        housekeeper = Housekeeper(
            f"{instance.client_id}-housekeeper", self._config, self._application, instance.cleaner(), self._clock,
            lambda change: self._tell(change if isinstance(change, NewSources) else ClientFailed(change)),
        )  # fmt: skip
        self._move(StreamsState.REBALANCING)
        housekeeper.start()
        name = f"{instance.client_id}-supervisor"
        self._thread = threading.Thread(target=self._run, args=(instance, housekeeper), name=name, daemon=True)
        self._thread.start()

    def _client_metrics(self, client_id: str) -> ClientMetrics:
        client = self.metrics.add(ClientMetrics, client_id=client_id)
        client.version.value = _version()
        client.application_id.value, client.stage.value = self._config.application_id, self.stage
        return client

    def _publish(self, *, at_once: bool) -> None:
        """The client's own metrics: at each change of its state, and about once a second."""
        client, now_ms = self._client, self._clock.monotonic_ms()
        if client is None or not (at_once or now_ms - client.published.at_ms >= PUBLISH_INTERVAL_MS):
            return
        client.state.value = self.state.value
        client.alive_stream_threads.value = sum(m.state in ALIVE_THREADS for m in self._members.values())
        client.failed_stream_threads.value = self._threads_failed
        client.publish(now_ms)

    def ask_to_close(self, leave_group: bool) -> None:
        if self.state is not StreamsState.CREATED:
            self._tell(Close(leave_group))
            return
        self._move(StreamsState.PENDING_SHUTDOWN)
        self._move(StreamsState.NOT_RUNNING)
        self.stopped.set()

    def is_inside(self) -> bool:
        """Whether the calling thread is one of ours, or in the listener: it can't wait for itself."""
        current = threading.current_thread()
        ours = [self._thread, *(member.thread for member in list(self._members.values()))]
        return current in ours or self._listening == threading.get_ident()

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

    def _tell(self, event: Event) -> None:
        self._mailbox.try_put(event)

    def _run(self, instance: Instance, housekeeper: Housekeeper) -> None:
        try:
            ending = self._supervise(lambda index: self._add_thread(instance, housekeeper, index))
        except Exception as error:
            log.exception("the supervisor failed; the client shuts down")
            ending = self._failed(error)
        self._end(ending, instance, housekeeper)

    def _supervise(self, add: Callable[[int], None]) -> Ending:
        for index in range(1, self._config.num_stream_threads + 1):
            add(index)
        while True:
            event = self._mailbox.get(timeout_ms=PUBLISH_INTERVAL_MS)
            self._publish(at_once=False)
            ending = self._take(event, add) if event is not None else None
            if ending is not None:
                return ending

    def _failed(self, error: BaseException) -> Ending:
        """A static member stays in the group: it is expected back."""
        return Ending(self._config.group_instance_id is None, error)

    def _take(self, event: Event, add: Callable[[int], None]) -> Ending | None:
        """Note what a thread tells; how the client ends, if this is its end."""
        match event:
            case Close(leave_group):
                return Ending(leave_group, None)
            case ClientFailed(error):
                return self._failed(error)
            case ThreadFailed(name, error, decision):
                self._threads_failed += 1
                if decision is not Exceptions.REPLACE_THREAD:
                    return self._failed(error)
                self._replace(name, add)
            case ThreadMoved(name, state):
                self._thread_moved(name, ThreadState(state))
            case ThreadReport(name):
                self._members[name].report = event
            case NewSources(topics):
                alive = [member.thread for member in self._members.values() if member.state in ALIVE_THREADS]
                for thread in alive[:1]:
                    thread.rejoin(f"new source topics: {', '.join(sorted(topics))}")
        return None

    def _add_thread(self, instance: Instance, housekeeper: Housekeeper, index: int) -> None:
        context = instance.thread_context(index, self.metrics, housekeeper.requests, self._tell, self._decide)
        thread = StreamThread(context, self._parts)
        self._members[context.name] = _Member(thread)
        try:
            thread.start()
        except BaseException:
            del self._members[context.name]
            raise

    def _thread_moved(self, name: str, state: ThreadState) -> None:
        self._members[name].state = state
        wanted = client_state(member.state for member in self._members.values())
        if wanted is not None and wanted is not self.state:
            self._move(wanted)

    def _decide(self, error: BaseException) -> Exceptions:
        """What the user's handler says; called in the stream thread that dies."""
        try:
            return Exceptions(self.handler(error))
        except BaseException:
            log.exception("the uncaught exception handler raised; the client shuts down")
            return Exceptions.SHUTDOWN_CLIENT

    def _replace(self, name: str, add: Callable[[int], None]) -> None:
        """A dead thread's successor, with its number."""
        member = self._members.pop(name)
        self._records_before += member.report.records if member.report is not None else 0
        member.thread.join()
        add(int(name.rsplit("-", 1)[1]))

    def _end(self, ending: Ending, instance: Instance, housekeeper: Housekeeper) -> None:
        """Stop and join everything that was started; then say that it's over."""
        self.error = ending.error
        self._move(StreamsState.PENDING_SHUTDOWN if ending.error is None else StreamsState.PENDING_ERROR)
        for member in self._members.values():
            member.thread.stop(leave_group=ending.leave_group)
        for member in self._members.values():
            join(member.thread)
        housekeeper.close()
        join(housekeeper)
        try:
            instance.close()
        except Exception:
            log.exception("the state directory wasn't given back cleanly")
        if self.endpoint is not None:
            self.endpoint.close()
        self._move(StreamsState.NOT_RUNNING if ending.error is None else StreamsState.ERROR)
        self.stopped.set()

    def _move(self, state: StreamsState) -> None:
        old, self.state = self.state, moved(self.state, state)
        log.info("client state: %s -> %s", old.value, state.value)
        self._publish(at_once=True)
        if self.listener is not None:
            self._listening = threading.get_ident()
            try:
                self.listener(state, old)
            except BaseException:
                log.exception("the state listener raised")
            finally:
                self._listening = None


def join(thread: threading.Thread) -> None:
    """Wait until the thread has ended; every few seconds say that it is awaited, and where it is."""
    waited_s = 0
    while True:
        thread.join(SAY_S)
        if not thread.is_alive():
            return
        waited_s += SAY_S
        log.warning("waiting for %s to end, for %d s now; it is in %s", thread.name, waited_s, _place(thread))


def _place(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    calls = traceback.extract_stack(frame)[-1:] if frame is not None else []
    return "".join(f"{call.name}, {call.filename}:{call.lineno}" for call in calls) or "no Python code"


def _version() -> str:
    try:
        return version("milestones")
    except PackageNotFoundError:  # run from a checkout that isn't installed
        return "unknown"


def client_state(threads: Iterable[ThreadState]) -> StreamsState | None:
    """The client's state while it runs: RUNNING once all threads are, REBALANCING when one isn't; None to stay."""
    states = set(threads)
    if states == {ThreadState.RUNNING}:
        return StreamsState.RUNNING
    if states & {ThreadState.PARTITIONS_REVOKED, ThreadState.PARTITIONS_ASSIGNED}:
        return StreamsState.REBALANCING
    return None
