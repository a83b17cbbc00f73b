"""The supervisor: the one thread that makes all lifecycle decisions of a client.

*Guarantees*: threads are started, replaced and stopped by one thread only; a client's state follows from its
threads' states by one function; every thread that was started is joined.
*Assumes*: the stream threads send their states to the mailbox and never touch the client.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from milestones.client.client_events import (
    LOOK_S,
    AddThread,
    ClientFailed,
    CloseClient,
    Closing,
    Ending,
    Event,
    Joinable,
    RemoveThread,
    Status,
    ThreadGone,
    client_state,
    failing_tasks,
    give_up_removals,
    join,
    merged,
)
from milestones.client.crew import Crew
from milestones.client.global_member import GlobalMember, global_thread
from milestones.client.health import ClientHealth
from milestones.client.metrics import ClientPublisher
from milestones.common.errors import MilestonesError, TimeoutExceededError
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.metrics import PUBLISH_INTERVAL_MS, Metrics, MetricsEndpoint
from milestones.flags import stage_name
from milestones.instance.admin_thread import Housekeeper, NewSources
from milestones.instance.context import (
    Exceptions,
    GlobalFailed,
    GlobalMoved,
    GlobalReport,
    ProcessingThreadMoved,
    ThreadContext,
    ThreadFailed,
    ThreadMoved,
    ThreadReport,
)
from milestones.instance.instance import Instance
from milestones.instance.listeners import Listeners
from milestones.instance.states import StreamsState, ThreadState, moved
from milestones.instance.thread_registry import ThreadRegistry

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.instance.application import Application
    from milestones.parts import Observer, Parts, Workforce

log: Final = logging.getLogger(__name__)

Idents = Callable[[], Collection[int]]
"""Gives the idents of the threads that call user code for a thread."""


class Supervisor:
    """Runs a client.

    *Owns*: the stream threads, the housekeeper, the instance's state directory lock, the client's state, its metrics
    and their HTTP endpoint.
    *Receives*: thread events; requests to close, to add or remove a thread. *Sends*: requests to stop to its threads;
    state changes to the user's listener. `state`, `error` and the threads' reports are published: replaced whole, read
    by any thread; so are the values of `thread_registry`.
    """

    metrics: Metrics
    hanging: bool
    told: bool

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
        """`instance`, `housekeeper`: make the instance and the housekeeper."""
        self._make_instance, self._make_housekeeper = instance, housekeeper
        self._config, self._application, self._parts, self._clock = config, application, parts, clock
        self.stage: str = stage_name(flags)
        self.metrics = Metrics(clock, level=config.metrics_recording_level, window_ms=config.metrics_sample_window_ms)
        self.metrics.labels = {"application_id": config.application_id}
        self.endpoint: MetricsEndpoint | None = None
        self._publisher: ClientPublisher | None = None
        self._threads_failed = 0
        self.state: StreamsState = StreamsState.CREATED
        self.error: BaseException | None = None
        self.listener: Callable[[StreamsState, StreamsState], None] | None = None
        self.handler: Callable[[BaseException], Exceptions] | None = None
        self._stopped = threading.Event()
        self.hanging = self.told = False
        self._closing: Closing | None = None
        self._mailbox: Mailbox[Event] = Mailbox(capacity=100_000)
        self.thread_registry: ThreadRegistry = ThreadRegistry(0)
        self._crew: Crew | None = None
        self._globals = GlobalMember(None)
        self.listeners: Listeners = Listeners()
        self._thread: threading.Thread | None = None
        self._observers: list[Observer] = []
        self._listening: int | None = None

    def begin(self) -> None:
        """Take the state directory, check Kafka and its topics, start the threads."""
        parts = self._parts.instance
        instance = self._make_instance(self._config, self._application, self.stage, self._clock, parts.state_manager)
        workforce = parts.workforce(
            self._config, instance.client_id, self.thread_registry, self._parts.thread, parts.client_factory
        )
        try:
            instance.prepare(workforce.first())
            self.thread_registry.sources = instance.sources
            self._publisher = ClientPublisher(
                self.metrics, instance.client_id, self._config.application_id, self.stage, instance.memory, self._clock
            )
            if self._config.metrics_port is not None:
                health = ClientHealth(self, self.metrics, self._config, self._clock)
                self.endpoint = MetricsEndpoint(
                    self.metrics, self._config.metrics_host, self._config.metrics_port, health
                )
                log.info("metrics are served at http://%s:%d/metrics", self.endpoint.host, self.endpoint.port)
        except BaseException:
            instance.close()
            raise
        housekeeper = self._make_housekeeper(
            f"{instance.client_id}-housekeeper", self._config, self._application, instance.cleaner(), self._clock,
            lambda change: self._tell(change if isinstance(change, NewSources) else ClientFailed(change)),
            lambda: self.state is StreamsState.RUNNING, instance.sources,
        )  # fmt: skip
        self._crew = Crew(
            workforce, self.thread_registry,
            lambda number: workforce.make(self._context(workforce, instance, housekeeper, number)),
            instance.left_group,
        )  # fmt: skip
        self._globals = GlobalMember(global_thread(
            self._config, self._application, instance, self._clock, self.metrics, housekeeper.requests, self._tell,
            self._decide, self.listeners,
        ))  # fmt: skip
        self._move(StreamsState.REBALANCING)
        housekeeper.start()
        for make in parts.observers:
            self._observers.append(make(instance.client_id, instance.state, self.metrics, self._clock))
            self._observers[-1].start()
        name = f"{instance.client_id}-supervisor"
        self._thread = threading.Thread(target=self._run, args=(instance, housekeeper), name=name, daemon=True)
        self._thread.start()

    def _publish(self, *, at_once: bool) -> None:
        if self._publisher is not None:
            alive = 0 if self._crew is None else self._crew.alive_threads
            self._publisher.publish(self.state.value, alive, self._threads_failed, at_once=at_once)

    def ask_to_close(self, leave_group: bool) -> None:
        if self.state is not StreamsState.CREATED:
            self._begin_closing()
            self._tell(CloseClient(leave_group))
            return
        self._move(StreamsState.PENDING_SHUTDOWN)
        self._move(StreamsState.NOT_RUNNING)
        self._stopped.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all threads have ended, the supervisor's too, unless threads hang; False when time is up first."""
        left_s = math.inf if timeout_s is None else timeout_s
        while not self._stopped.wait(min(left_s, LOOK_S)):
            left_s -= LOOK_S
            self._look_at_listener()
            if left_s <= 0 and not self._stopped.is_set():
                return False
        if not self.hanging and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return True

    def add_thread(self) -> str:
        """Ask for one more thread, with the lowest free number, and return its name."""
        workforce = self._running("added").workforce
        number = self.thread_registry.add()
        self._tell(AddThread(number))
        return workforce.name(number)

    def remove_thread(self, name: str | None, timeout_s: float) -> str:
        """End a thread, wait for it, and return its name. `name` None: any thread but the caller, if there is one."""
        workforce = self._running("removed").workforce
        names = {workforce.name(number): number for number in self.thread_registry.numbers()}
        if name is not None and name not in names:
            there_are = ", ".join(names) or "none"
            raise MilestonesError(f"no thread is called {name!r}, or it is being removed; there are {there_are}")
        own = names.get(threading.current_thread().name) or self.thread_registry.helped()
        number = self.thread_registry.remove(names[name] if name is not None else None, own=own)
        removal = RemoveThread(number, self.thread_registry.serial(number))
        removed = workforce.name(number)
        if self._told(removal) and not self.is_inside() and not removal.done.wait(timeout_s):
            raise TimeoutExceededError(
                f"{removed} hasn't ended within {timeout_s:g} s, it is in user code or a call to Kafka; it will end, "
                "and its number isn't used again before"
            )
        return removed

    def _running(self, what: str) -> Crew:
        if self._crew is None or self.state not in (StreamsState.REBALANCING, StreamsState.RUNNING):
            raise MilestonesError(
                f"a thread can be {what} while the client runs (REBALANCING or RUNNING); it is {self.state.value}. "
                "Before start() set num_stream_threads"
            )
        return self._crew

    def is_inside(self) -> bool:
        """Whether the calling thread is the client's own or in its listener, so that it can't wait for the end."""
        current = threading.current_thread()
        members = [] if self._crew is None else list(self._crew.members.values())
        ours = [self._thread, *self._globals.threads, *(member.thread for member in members)]
        return current in ours or self._listening == threading.get_ident() or self.thread_registry.helped() is not None

    def status(self) -> Status:
        crew = self._crew
        reports, everyone = [] if crew is None else crew.reports, self._globals
        told = merged(reports)
        for name in ("tasks", "lags", "restoring"):
            told[name] |= getattr(everyone, name)
        return Status(
            state=self.state,
            stage=self.stage,
            threads={**everyone.states, **({} if crew is None else crew.states)},
            records=0 if crew is None else crew.records,
            generation=max((report.generation for report in reports), default=-1),
            error=self.error,
            failing=failing_tasks(self.metrics),
            **told,
        )

    def _tell(self, event: Event) -> None:
        self._told(event)

    def _told(self, event: Event) -> bool:
        """Put the event into the mailbox; False when the client has stopped and no thread will read it."""
        try:
            return self._mailbox.try_put(event)
        except MailboxClosedError:
            return False

    def _run(self, instance: Instance, housekeeper: Housekeeper) -> None:
        try:
            ending = self._supervise()
        except Exception as error:
            log.exception("the supervisor failed; the client shuts down")
            self.told = True
            ending = self._failed(error)
        self._end(ending, instance, housekeeper)

    def _supervise(self) -> Ending:
        waiting: list[Event] = []
        ending = self._globals.complete_stores(self._next_event, self._take, waiting)
        if ending is not None:
            give_up_removals(waiting)
            return ending
        self._threads.start()  # what was changed since waits in the mailbox
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
        """The end by an error, in which a static member stays in the group, as it is expected back."""
        return Ending(self._config.group_instance_id is None, error)

    @property
    def _threads(self) -> Crew:
        assert self._crew is not None
        return self._crew

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
            case ThreadReport(name):
                self._threads.members[name].report = event
            case ProcessingThreadMoved():
                self._threads.processing_moved(event)
            case AddThread(number):
                self._threads.add(number)
            case RemoveThread():
                self._threads.remove(event)
                self._follow()
            case ThreadGone(name):
                self._threads.ended(name)
            case NewSources(topics):
                self.thread_registry.sources |= topics
                for member in self._threads.alive[:1]:
                    member.thread.rejoin(f"new source topics: {', '.join(sorted(topics))}")

    def _thread_failed(self, failed: ThreadFailed) -> Ending | None:
        """Do what the user's handler decides; a thread that is being removed has no successor."""
        self._threads_failed += 1
        if failed.decision is not Exceptions.REPLACE_THREAD:
            self.told = True
            return self._failed(failed.error)
        if not self._threads.members[failed.thread].leaves:
            self._threads.replace(failed.thread)
        return None

    def _global_failed(self, failed: GlobalFailed) -> Ending | None:
        """The global thread has no successor. To end all instances takes a member of the group, which dies of it."""
        alive = self._threads.alive
        if failed.decision is Exceptions.SHUTDOWN_APPLICATION and alive:
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
        if member.leaves and state is ThreadState.DEAD:
            join(member.thread)
            self._tell(ThreadGone(name))
        self._follow()

    def _follow(self) -> None:
        """Derive the client's state from its threads' states."""
        wanted = client_state(self._threads.staying)
        if wanted is not None and wanted is not self.state:
            self._move(wanted)

    def _decide(self, error: BaseException, default: Exceptions = Exceptions.SHUTDOWN_CLIENT) -> Exceptions:
        """The decision of the user's handler; called in the thread that dies, or in one of its own."""
        if self.handler is None:
            return default
        try:
            decision = Exceptions(self.handler(error))
        except BaseException:
            log.exception("the uncaught exception handler raised; the client shuts down")
            return Exceptions.SHUTDOWN_CLIENT
        ends_thread = decision is Exceptions.END_TASK and default is not Exceptions.END_TASK
        return Exceptions.SHUTDOWN_CLIENT if ends_thread else decision

    def _end(self, ending: Ending, instance: Instance, housekeeper: Housekeeper) -> None:
        """Stop and join every thread that was started; then publish the final state."""
        closing = self._begin_closing()
        self.error = ending.error or self.error
        self._move(StreamsState.PENDING_SHUTDOWN if ending.error is None else StreamsState.PENDING_ERROR)
        self._threads.stop(leave_group=ending.leave_group)
        members = self._threads.members.values()
        helped = {member.thread.name: partial(self.thread_registry.helpers, member.number) for member in members}
        self._await(closing, [member.thread for member in members], helped)
        self._threads.over()
        self._globals.stop()
        self._await(closing, self._globals.threads)
        self._globals.over()
        self._mailbox.close()
        with suppress(MailboxClosedError):
            give_up_removals(self._mailbox.drain())
        for observer in self._observers:
            observer.close()
        self._await(closing, self._observers)
        housekeeper.close()
        self._await(closing, [housekeeper])
        try:
            instance.close()
        except Exception:
            log.exception("the state directory wasn't given back cleanly")
        if self.endpoint is not None:
            self.endpoint.close()
        if self._publisher is not None:
            self._publisher.close()
        self._move(StreamsState.NOT_RUNNING if ending.error is None else StreamsState.ERROR)
        self._stopped.set()

    def _await(
        self, closing: Closing, threads: Iterable[Joinable], helped: Mapping[str, Idents] = MappingProxyType({})
    ) -> None:
        """Wait for these threads. When `close_timeout_ms` is over the client counts as stopped, with an error; the rest
        is closed when the threads end. `helped`: by the name of a thread that threads work for."""
        late = [thread for thread in threads if not closing.join(thread, helped.get(thread.name, frozenset))]
        if late and not self.hanging:
            self._give_up(closing)
        for thread in late:
            thread.join()

    def _begin_closing(self) -> Closing:
        """The time limit of the client's end, counted from the first request."""
        if self._closing is None:
            self._closing = Closing(self._clock, self._config.close_timeout_ms)
        return self._closing

    def _look_at_listener(self) -> None:
        """Give up a close whose time is over while the supervisor itself hangs in the state listener."""
        closing, thread = self._closing, self._thread
        if closing is None or thread is None or self.hanging or self._listening != thread.ident or not closing.over:
            return
        closing.hangs(thread)
        self._give_up(closing)

    def _give_up(self, closing: Closing) -> None:
        error = closing.error()
        log.error("%s", error)
        self.told = self.told or self.error is None
        self.error = self.error or error
        self.hanging = True
        self._stopped.set()

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
