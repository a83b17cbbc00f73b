"""`Streams`, the client: one instance of an application, its threads, its states.

*Guarantees*: `start` and `close` return in time, from any thread and any callback; after `close` no thread, client,
store or lock of this object is left; an error of a listener or handler is logged and changes nothing.
*Assumes*: one `Streams` per instance; several in one process need state directories of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from milestones import wiring
from milestones.client import process_runner as running
from milestones.client.supervisor import Supervisor
from milestones.client.workers import own_state_dir, run_with_workers
from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.errors import MilestonesError, TopologyError
from milestones.common.state.directory import StateDirectory
from milestones.common.topology.builder import StreamsBuilder
from milestones.common.topology.missing import Explained
from milestones.common.topology.topology import Topology
from milestones.flags import parse_milestones, without_effect
from milestones.instance.application import Application
from milestones.instance.context import UncaughtExceptionResponse
from milestones.instance.listeners import StandbyUpdateListener, StateRestoreListener
from milestones.instance.states import StreamsState

if TYPE_CHECKING:
    from milestones.client.client_events import Status
    from milestones.common.clock import Clock
    from milestones.common.config.settings import StreamsSettings
    from milestones.common.memory import MemoryReport

log: Final = logging.getLogger(__name__)

StateListener = Callable[[StreamsState, StreamsState], None]
UncaughtHandler = Callable[[BaseException], UncaughtExceptionResponse]


class Streams(Explained):
    """An instance of a stream application.

    `topology`: a `Topology` or a `StreamsBuilder`. Settings come from `config`, or from keywords, the environment and
    a TOML file as `StreamsConfig` reads them; keywords win. Raises `ConfigError` or `TopologyError` at once.
    """

    def __init__(
        self,
        topology: Topology | StreamsBuilder,
        config: StreamsConfig | None = None,
        *,
        clock: Clock | None = None,
        **overrides: Unpack[StreamsSettings],
    ) -> None:
        built: object = topology.build() if isinstance(topology, StreamsBuilder) else topology
        if not isinstance(built, Topology):
            hint = "call it" if callable(built) else "make one with a StreamsBuilder"
            raise TopologyError(f"Streams runs a Topology or a StreamsBuilder, not {built!r}: {hint}")
        self.config: StreamsConfig = StreamsConfig(**overrides) if config is None else config.replace(**overrides)
        self._as_given = built
        self.topology: Topology = built.optimized(self.config.topology_optimization)
        flags = parse_milestones(self.config.milestones)
        self._application = Application.of(self.topology, self.config)
        self._clock = clock
        self._supervisor = Supervisor(
            self.config, flags, self._application, wiring.parts(flags), clock or SystemClock()
        )

    def with_config(self, config: StreamsConfig) -> Streams:
        """This application with other settings, and the same listeners, handler and pauses. Only before `start`."""
        self._before_start("other settings")
        other, own = type(self)(self._as_given, config, clock=self._clock), self._supervisor
        there = other._supervisor
        there.listener, there.handler, there.listeners = own.listener, own.handler, own.listeners
        there.thread_registry.pause(own.thread_registry.paused)
        return other

    @property
    def state(self) -> StreamsState:
        """The client's state."""
        return self._supervisor.state

    def set_state_listener(self, listener: StateListener) -> None:
        """Call `listener(new, old)` at each change of state, in the supervisor's thread (the first time in the
        one that calls `start`). Only before `start`."""
        self._before_start("a state listener")
        self._supervisor.listener = listener

    def set_global_state_restore_listener(self, listener: StateRestoreListener) -> None:
        """Have `listener` follow active tasks that restore, in the threads that restore; before `start`."""
        self._before_start("a state restore listener")
        self._supervisor.listeners.restore = listener

    def set_standby_update_listener(self, listener: StandbyUpdateListener) -> None:
        """Have `listener` follow standbys, in the threads that update them (KIP-869); before `start`."""
        self._before_start("a standby update listener")
        self._supervisor.listeners.standby = listener

    def set_uncaught_exception_handler(self, handler: UncaughtHandler) -> None:
        """Let `handler(error)` decide when a stream thread dies of an error. It returns an `UncaughtExceptionResponse`:
        `REPLACE_THREAD`, `SHUTDOWN_CLIENT` (the default), `SHUTDOWN_APPLICATION` (KIP-671). When one task fails for
        good the handler decides in place of `task_failed`; from M4 on, and where that setting isn't `shutdown_client`,
        the failure is the task's: `REPLACE_THREAD` opens the task anew, `END_TASK` ends it. Only before `start`."""
        self._before_start("an uncaught exception handler")
        self._supervisor.handler = handler

    def clean_up(self) -> None:
        """Delete this instance's state on disk, before `start` or after the end: the next start restores it from
        Kafka. `StateLockedError` while another process has it. (`milestones reset` is for a whole application.)"""
        if not (self.state.has_not_started or self.state.has_completed_shutdown):
            raise MilestonesError(f"clean_up() is for a client that doesn't run; this one is {self.state.value}")
        directory = StateDirectory(own_state_dir(self.config), self.config.application_id)
        try:
            directory.clear()
        finally:
            directory.close()

    def _become(self, other: Streams) -> None:
        """Take the settings of another client of the same application that hasn't started either."""
        self._before_start("other settings")
        self.config, self._application, self._supervisor = other.config, other._application, other._supervisor

    def _before_start(self, what: str) -> None:
        if self.state is not StreamsState.CREATED:
            raise MilestonesError(f"{what} can be set only before start(); this client is {self.state.value}")

    def start(self) -> None:
        """Start the threads and return. Raises `StateError`, `KafkaUnreachableError` or `SourceTopicError` when the
        state directory, Kafka or the topics don't allow a start: nothing is kept then, and `start` may be called again.
        `MilestonesError` for a client that was started or closed before. Where `close` is called meanwhile, the start
        is given up: it returns, and the client is NOT_RUNNING."""
        for reason in without_effect(self.config):
            log.warning("config: %s", reason)
        self._supervisor.begin()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the client has stopped; False when the time is up first. The client counts as stopped, with an
        `error`, when threads don't end within `close_timeout_ms`."""
        return self._supervisor.wait(timeout_s)

    def close(self, timeout_s: float = 60.0, *, leave_group: bool | None = None) -> bool:
        """Commit, close, leave the group; True when all is closed within the time, and within `close_timeout_ms`.

        `leave_group` None: a static member stays in the group (it is expected back within `session_timeout_ms`), any
        other leaves. A call from a callback of this client only starts the shutdown, and returns False.
        """
        self._supervisor.ask_to_close(self._leaves(leave_group))
        return not self._supervisor.is_inside() and self.wait(timeout_s) and not self._supervisor.hanging

    def _leaves(self, leave_group: bool | None) -> bool:
        return self.config.group_instance_id is None if leave_group is None else leave_group

    def add_stream_thread(self) -> str:
        """Start one more stream thread while the client runs, and return the thread's name (KIP-663).

        The thread gets the lowest free number, and tasks from the group. May be called from any thread and any
        callback, and returns before the thread runs: a client that ends meanwhile starts none. `MilestonesError` in any
        other state.
        """
        return self._supervisor.add_thread()

    def remove_stream_thread(self, name: str | None = None, timeout_s: float = 60.0) -> str:
        """End one stream thread while the client runs, and return the thread's name (KIP-663). Without a name: the
        thread with the highest number, but the calling thread only when it is the last.

        The thread commits, closes its tasks and leaves the group, a static member too; other threads get its tasks.
        Waits for that end, but not in a callback of this client. A client may run without any thread. `MilestonesError`
        in any other state and for an unknown name; `TimeoutExceededError`: the thread hasn't ended yet, and will.
        """
        return self._supervisor.remove_thread(name, timeout_s)

    def pause(self, subtopologies: int | str | Iterable[int | str] | None = None) -> None:
        """Stop processing, punctuating and restoring: of all tasks, or of these sub-topologies only, each named by its
        number or by one of its nodes or stores (KIP-834). At any time, also before `start`. A thread that processes
        ends its time slice first (some 50 ms, or one record that takes longer).

        Processed records are committed; the group and the assignment stay. A pause ends with the process.
        `TopologyError` for an unknown name.
        """
        self._supervisor.thread_registry.pause(self._application.named_subtopologies(subtopologies))

    def resume(self, subtopologies: int | str | Iterable[int | str] | None = None) -> None:
        """End the pause of all sub-topologies, or of these. Does nothing for one that isn't paused."""
        self._supervisor.thread_registry.resume(self._application.named_subtopologies(subtopologies))

    @property
    def is_paused(self) -> bool:
        """Whether all sub-topologies are paused."""
        return self._supervisor.thread_registry.paused >= self._application.named_subtopologies(None)

    def status(self) -> Status:
        """The instance's threads, tasks, lags and records, by the threads' last reports, at most a second ago."""
        return self._supervisor.status()

    def memory(self) -> MemoryReport | None:
        """The memory of the process now, by use; None before `start` and after the end. docs/memory.md says what each
        account is. The numbers of threads are about a second old."""
        return self._supervisor.memory()

    def metrics(self) -> Mapping[str, Any]:
        """All metrics as last published, by group: lists of `{"tags": ..., "metrics": ..., "age_ms": ...}`, with Kafka
        Streams' names (docs/metrics.md)."""
        return self._supervisor.metrics.snapshot()

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port on which metrics are served for Prometheus; None without `metrics_port`, and before `start`."""
        endpoint = self._supervisor.endpoint
        return None if endpoint is None else (endpoint.host, endpoint.port)

    @property
    def error(self) -> BaseException | None:
        """The error that put the client in state ERROR, that kept it from closing in time, or of a start by `run`."""
        return self._supervisor.error

    def run(self, *, workers: int | Literal["auto"] | None = None) -> int:
        """Start, run until SIGINT, SIGTERM or an error, close, and return the exit code, an error's `exit_code`.

        An error is logged as one line, also one of the start. A second signal ends the process at once, with 130. A
        program without a logging set-up gets one: INFO, to stderr. Only in the main thread.

        `workers`: this process starts the program that many times, as processes which share the partitions, waits for
        their end, and starts nothing itself. `"auto"`: as many as cores, at most as many as the largest input has
        partitions. In such a process `run` ends the process. `MilestonesError` where the program can't be started once
        more, as in an interactive interpreter.
        """
        if workers is not None:
            return run_with_workers(self, workers)
        return running.run(self._supervisor, self.config, self.start, self._leaves(None))

    def __enter__(self) -> Streams:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
