"""The supervisor is the one thread that decides about the start and the end of a client and its threads.

*Guarantees*: threads are started, replaced and stopped by one thread only; one function derives a client's state from
its threads' states; every thread that was started is joined.
*Assumes*: the stream threads only send their states to the mailbox, and never change the client.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from milestones.client.client_events import (
    AddThread,
    ClientFailed,
    CloseClient,
    Ending,
    Event,
    RemoveThread,
    Status,
    ThreadGone,
    client_state,
    give_up_removals,
    merged,
)
from milestones.client.global_member import GlobalMember, global_thread
from milestones.client.health import ClientHealth
from milestones.client.lifetime import Lifetime
from milestones.client.metrics import ClientPublisher
from milestones.client.start import Life, Start, Started, StartGivenUpError
from milestones.client.status_page import page_of
from milestones.client.thread_roster import ThreadRoster
from milestones.common.errors import MilestonesError, TimeoutExceededError
from milestones.common.kafka.failures import caught
from milestones.common.last_words import report
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.metrics import PUBLISH_INTERVAL_MS, Metrics, MetricsEndpoint
from milestones.flags import stage_name
from milestones.instance.admin_thread import Housekeeper, NewSources
from milestones.instance.context import (
    GlobalFailed,
    GlobalMoved,
    GlobalReport,
    ProcessingThreadMoved,
    ThreadContext,
    ThreadFailed,
    ThreadMoved,
    ThreadReport,
    UncaughtExceptionResponse,
)
from milestones.instance.instance import Instance
from milestones.instance.listeners import Listeners
from milestones.instance.states import StreamsState, ThreadState
from milestones.instance.thread_registry import ThreadRegistry

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.memory import MemoryReport
    from milestones.instance.application import Application
    from milestones.parts import Observer, Parts, Workforce

log: Final = logging.getLogger(__name__)

CAPACITY: Final = 100_000
"""The number of events that may wait for the supervisor."""


class Supervisor(Lifetime):
    """Runs a client.

    *Owns*: the stream threads, the housekeeper, the instance's state directory lock, the client's state, its metrics
    and their HTTP endpoint. *Receives*: thread events; requests to close, to add or remove a thread. *Sends*: requests
    to stop to its threads; state changes to the user's listener. The threads' reports, and the values of
    `thread_registry`, are replaced as a whole, and any thread may read them.
    """

    metrics: Metrics

    def __init__(
        self,
        config: StreamsConfig,
        flags: frozenset[str],
        application: Application,
        parts: Parts,
        clock: Clock,
        instance: Callable[..., Instance] = Instance,
        housekeeper: Callable[..., Housekeeper] = Housekeeper,
    ) -> None:
        """`instance` and `housekeeper` are functions that make the instance and the housekeeper."""
        super().__init__(clock, config.close_timeout_ms)
        self._make_instance, self._make_housekeeper = instance, housekeeper
        self._config, self._application, self._parts = config, application, parts
        self.stage: str = stage_name(flags)
        self.metrics = Metrics(clock, level=config.metrics_recording_level, window_ms=config.metrics_sample_window_ms)
        self.metrics.labels = {"application_id": config.application_id}
        self.endpoint: MetricsEndpoint | None = None
        self.served: Callable[[MetricsEndpoint], str | None] = lambda _: None
        """Called once the endpoint listens. Returns the address under which others reach it, or None for its own one.
        May be replaced before the start."""
        self._publisher: ClientPublisher | None = None
        self._threads_failed = 0
        self._mailbox: Mailbox[Event] = Mailbox(CAPACITY)
        self._start = Start()
        self._start_error: BaseException | None = None
        self.thread_registry: ThreadRegistry = ThreadRegistry(0)
        self._roster: ThreadRoster | None = None
        self._globals = GlobalMember(None)
        self.listeners: Listeners = Listeners()
        self._observers: list[Observer] = []

    def begin(self) -> None:
        """Take the state directory, check Kafka and its topics, start the threads. On an error, or if the client is
        closed during the start, all resources are released. Raises a `MilestonesError` if the client was started
        before.
        """
        held = ExitStack()
        try:
            self._start.begin(held, self._not_started)
            self._begin(held)
        except StartGivenUpError as given_up:
            log.info("%s", given_up)
            held.close()
        except BaseException as error:
            self._start_error = error
            held.close()
            raise

    def _begin(self, held: ExitStack) -> None:
        """Start the threads. `held` releases each resource, and is set in the same statement."""
        parts, config, enter = self._parts.instance, self._config, held.enter_context
        make = partial(self._make_instance, config, self._application, self.stage, self._clock, parts.state_manager)
        instance = enter(closing(make()))
        workforce = parts.workforce(
            config, instance.client_id, self.thread_registry, self._parts.thread, parts.client_factory
        )
        self._start.go_on()
        instance.prepare(workforce.first())
        self._start.go_on()
        self.thread_registry.sources = instance.sources
        publisher = partial(ClientPublisher, self.metrics, instance.client_id, config.application_id, self.stage)
        self._publisher = publisher(instance.memory, self._clock)
        if config.metrics_port is not None:
            health = ClientHealth(self, self.metrics, config, self._clock)
            endpoint = partial(MetricsEndpoint, self.metrics, config.metrics_host, config.metrics_port, health)
            self.endpoint = endpoint(lambda: page_of(self.status()))
            self.metrics.address = self.served(self.endpoint) or self.metrics.address
            log.info("metrics are served at http://%s:%d/metrics", self.endpoint.host, self.endpoint.port)
        housekeeper = self._make_housekeeper(
            f"{instance.client_id}-housekeeper", config, self._application, instance.cleaner(), self._clock,
            lambda change: self._tell(change if isinstance(change, NewSources) else ClientFailed(change)),
            lambda: self.state is StreamsState.RUNNING, instance.sources, instance.note_internal,
        )  # fmt: skip
        self._roster = ThreadRoster(
            workforce, self.thread_registry,
            lambda number: workforce.make(self._context(workforce, instance, housekeeper, number)),
            instance.left_group,
        )  # fmt: skip
        everyone = partial(
            global_thread, config, self._application, instance, self._clock, self.metrics, housekeeper.requests,
            self._tell, self._decide, self.listeners,
        )  # fmt: skip
        self._globals = enter(closing(GlobalMember(everyone())))
        enter(Started(housekeeper, housekeeper.close))
        for observe in parts.observers:
            observer = observe(instance.client_id, instance.state, self.metrics, self._clock)
            enter(Started(observer, observer.close))
            self._observers.append(observer)
        name = f"{instance.client_id}-supervisor"
        self._thread = threading.Thread(target=self._run, args=(instance, housekeeper), name=name, daemon=True)
        self._start.go_on()
        self._thread.start()
        self._move(StreamsState.REBALANCING)
        self._start.done()

    def _not_started(self) -> None:
        """Record that a start has failed or was cancelled, and that its resources are released. The client may be
        started once more, unless it was closed, or its listener has seen it start.
        """
        closed = self._start.failed(may_start_again=self.state is StreamsState.CREATED)
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()
        self._mailbox.close()
        if self.endpoint is not None:
            self.endpoint.close()
        if self._publisher is not None:
            self._publisher.discard()
        self._thread = self._roster = self._publisher = self.endpoint = None
        self._globals, self._observers, self._mailbox = GlobalMember(None), [], Mailbox(CAPACITY)
        if closed:
            self._stop()
        elif self.state is not StreamsState.CREATED:
            self.error = self._start_error
            self._move(StreamsState.PENDING_ERROR)
            self._move(StreamsState.ERROR)
            self._stopped.set()

    def _publish(self, *, at_once: bool) -> None:
        if self._publisher is not None:
            alive = 0 if self._roster is None else self._roster.alive_threads
            self._publisher.publish(
                self.state.value, alive, self._threads_failed, self._callers, at_once=at_once
            )

    def _callers(self) -> frozenset[int]:
        """Return the idents of all threads that call the user's functions."""
        everyone = frozenset(thread.ident for thread in self._globals.threads if thread.ident is not None)
        return everyone if self._roster is None else everyone | self._roster.callers()

    def ask_to_close(self, leave_group: bool) -> None:
        self._begin_closing()
        match self._start.close():
            case Life.STARTED:
                self._tell(CloseClient(leave_group))
            case Life.NEW:
                self._stop()
            case Life.STARTING | Life.CLOSED:
                pass  # the thread that starts the client ends it, or nothing is left to end

    def add_thread(self) -> str:
        """Ask for one more thread, with the lowest free number, and return its name."""
        return self._running("added").ask_to_add(lambda number: self._tell(AddThread(number)))

    def remove_thread(self, name: str | None, timeout_s: float) -> str:
        """End a thread, wait for it, and return its name. If `name` is None, the calling thread is chosen only if there
        is no other one.
        """
        removed, done = self._running("removed").ask_to_remove(name, self._told)
        if not self.is_inside() and not done.wait(timeout_s):
            raise TimeoutExceededError(
                f"{removed} hasn't ended within {timeout_s:g} s, it is in user code or a call to Kafka; it will end, "
                "and its number isn't used again before"
            )
        return removed

    def _running(self, what: str) -> ThreadRoster:
        if self._roster is None or self.state not in (StreamsState.REBALANCING, StreamsState.RUNNING):
            raise MilestonesError(
                f"a thread can be {what} while the client runs (REBALANCING or RUNNING); it is {self.state.value}. "
                "Before start() set num_stream_threads"
            )
        return self._roster

    def is_inside(self) -> bool:
        """True if the calling thread is the supervisor's or is in the state listener, so that it can't wait for the
        client's end.
        """
        current = threading.current_thread()
        members = [] if self._roster is None else list(self._roster.members.values())
        ours = [self._thread, *self._globals.threads, *(member.thread for member in members)]
        return current in ours or self._is_called_back()

    def _is_called_back(self) -> bool:
        """True if the calling thread is in a function of the user, or in a signal handler, for whose end this client
        waits.
        """
        listens = self._listening == threading.get_ident()
        return listens or self._start.is_mine or self.thread_registry.helped() is not None

    def status(self) -> Status:
        roster, everyone = self._roster, self._globals
        reports = [] if roster is None else roster.reports
        told = merged(reports)
        for name in ("tasks", "lags", "restoring"):
            told[name] |= getattr(everyone, name)
        return Status(
            state=self.state,
            stage=self.stage,
            threads={**everyone.states, **({} if roster is None else roster.states)},
            records=0 if roster is None else roster.records,
            generation=max((report.generation for report in reports), default=-1),
            error=self.error,
            calls=() if self._publisher is None else self._publisher.calls.found,
            **told,
        )

    def memory(self) -> MemoryReport | None:
        """Return the memory of the process now. None before the start and after the end."""
        publisher = self._publisher
        return None if publisher is None or self._stopped.is_set() else publisher.memory()

    def _tell(self, event: Event) -> None:
        self._told(event)

    def _told(self, event: Event) -> bool:
        """Put the event into the mailbox. Returns False if the client has stopped, so that no thread will read it."""
        try:
            return self._mailbox.try_put(event)
        except MailboxClosedError:
            return False

    def _run(self, instance: Instance, housekeeper: Housekeeper) -> None:
        if not self._start.awaited():
            return
        try:
            ending = self._supervise()
        except BaseException as error:
            report(log, "the supervisor failed; the client shuts down", error=error)
            self.told = True
            ending = self._failed(error)
        self._end(ending, instance, housekeeper)

    def _supervise(self) -> Ending:
        waiting: list[Event] = []
        ending = self._globals.complete_stores(self._next_event, self._take, waiting)
        if ending is not None:
            give_up_removals(waiting)
            return ending
        self._threads.start()  # later changes wait in the mailbox
        while True:
            event = waiting.pop(0) if waiting else self._next_event()
            ending = self._take(event) if event is not None else None
            if ending is not None:
                return ending

    def _next_event(self) -> Event | None:
        event = self._mailbox.get(timeout_ms=PUBLISH_INTERVAL_MS)
        self._publish(at_once=False)
        return event

    def _failed(self, error: BaseException) -> Ending:
        """Return the end by an error. A static member stays in the group then, because it is expected back."""
        return Ending(self._config.group_instance_id is None, error)

    @property
    def _threads(self) -> ThreadRoster:
        assert self._roster is not None
        return self._roster

    def _take(self, event: Event) -> Ending | None:
        """Handle one event, and return how the client ends if the event ends it."""
        match event:
            case CloseClient(leave_group):
                return Ending(leave_group, None)
            case ClientFailed(error):
                return self._failed(error)
            case ThreadFailed():
                return self._thread_failed(event)
            case GlobalFailed():
                return self._global_failed(event)
            case ThreadReport(name):
                self._threads.members[name].report = event
                return self._all_ended()
            case _:
                self._note(event)
        return None

    def _note(self, event: Event) -> None:
        """Handle an event that doesn't end the client."""
        match event:
            case GlobalMoved() | GlobalReport():
                self._globals.note(event)
            case ThreadMoved(name, state):
                self._thread_moved(name, ThreadState(state))
            case ProcessingThreadMoved():
                self._threads.processing_moved(event)
            case AddThread(number):
                self._threads.add(number)
            case RemoveThread():
                self._threads.remove(event)
                self._threads.join_gone(self._tell)
                self._follow()
            case ThreadGone(name):
                self._threads.ended(name)
            case NewSources(topics):
                self.thread_registry.sources |= topics
                for member in self._threads.alive[:1]:
                    member.thread.rejoin(f"new source topics: {', '.join(sorted(topics))}")

    def _all_ended(self) -> Ending | None:
        """Return the end of a client if all its tasks have ended for good. While the client rebalances, more tasks may
        come.
        """
        error = self._threads.all_ended() if self.state is StreamsState.RUNNING else None
        if error is None:
            return None
        log.error("all tasks have ended: so does the client")
        return self._failed(error)

    def _thread_failed(self, failed: ThreadFailed) -> Ending | None:
        """Do what the user's handler has decided. A thread that is being removed isn't replaced."""
        self._threads_failed += 1
        if failed.decision is not UncaughtExceptionResponse.REPLACE_THREAD:
            self.told = True
            return self._failed(failed.error)
        if self._threads.members[failed.thread].leaves:
            self._thread_moved(failed.thread, ThreadState.DEAD)
        else:
            self._threads.replace(failed.thread)
        return None

    def _global_failed(self, failed: GlobalFailed) -> Ending | None:
        """Handle the death of the global thread, which isn't replaced. To end all instances, a member of the group is
        needed: it dies of the error, too.
        """
        alive = self._threads.alive
        if failed.decision is UncaughtExceptionResponse.SHUTDOWN_APPLICATION and alive:
            alive[0].thread.shut_application_down(failed.error)
            return None
        self.told = True
        return self._failed(failed.error)

    def _context(
        self, workforce: Workforce, instance: Instance, housekeeper: Housekeeper, number: int
    ) -> ThreadContext:
        return instance.thread_context(
            workforce.identity(number), self.metrics, housekeeper.requests, self._tell, self._decide,
            self.thread_registry, self.listeners,
        )  # fmt: skip

    def _thread_moved(self, name: str, state: ThreadState) -> None:
        member = self._threads.members[name]
        member.state = state
        self._threads.join_gone(self._tell)
        self._follow()

    def _follow(self) -> None:
        """Derive the client's state from its threads' states."""
        wanted = client_state(self._threads.staying)
        if wanted is not None and wanted is not self.state:
            self._move(wanted)

    def _end(self, ending: Ending, instance: Instance, housekeeper: Housekeeper) -> None:
        """Stop and join every thread that was started; then publish the final state."""
        self.error = ending.error or self.error
        failed = ending.error is not None
        parts: list[Callable[[], object]] = [
            partial(self._move, StreamsState.PENDING_ERROR if failed else StreamsState.PENDING_SHUTDOWN),
            partial(self._end_threads, ending.leave_group),
            self._end_globals,
            self._refuse_events,
            partial(self._end_helpers, housekeeper),
            instance.close,
            *(one.close for one in (self.endpoint, self._publisher) if one is not None),
            partial(self._move, StreamsState.ERROR if failed else StreamsState.NOT_RUNNING),
        ]
        for part in parts:  # an error of one part doesn't keep the others from being closed
            if (error := caught(part, BaseException)) is not None:
                report(log, "a part of the client didn't close cleanly", error=error)
        self._stopped.set()

    def _end_threads(self, leave_group: bool) -> None:
        self._threads.stop(leave_group=leave_group)
        members = self._threads.members.values()
        helped = {member.thread.name: partial(self.thread_registry.helpers, member.number) for member in members}
        self._await([member.thread for member in members], helped)
        self._threads.over()

    def _end_globals(self) -> None:
        self._globals.stop()
        self._await(self._globals.threads)
        self._globals.over()

    def _refuse_events(self) -> None:
        """Take no more events, and answer the requests to remove threads."""
        self._mailbox.close()
        with suppress(MailboxClosedError):
            give_up_removals(self._mailbox.drain())

    def _end_helpers(self, housekeeper: Housekeeper) -> None:
        for observer in self._observers:
            observer.close()
        self._await(self._observers)
        housekeeper.close()
        self._await([housekeeper])
