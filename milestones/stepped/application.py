"""`SteppedApplication`: one instance of an application, whose thread, clock and Kafka a test moves by hand.

*Guarantees*: nothing happens without a call of the test. The loop, the tasks, the commits and the recoveries are those
of the runtime. After a crash only Kafka's content and, if the test wants it, persistent stores are left.
*Assumes*: one thread, and one stepped application at a time, because fault points belong to the Python process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, cast

from confluent_kafka import KafkaException

from milestones import wiring
from milestones.common.assignment.plan import plan_tasks
from milestones.common.config import StreamsConfig
from milestones.common.errors import TopologyError
from milestones.common.memory import MemoryBudget
from milestones.common.metrics import Metrics
from milestones.common.patterns import matching
from milestones.common.records import Headers, Output, TopicPartition
from milestones.common.testing import StepClock
from milestones.common.testing.driver import HasTopology, topology_and_config
from milestones.common.testing.faults import POINTS, Fault, plant
from milestones.common.testing.topics import InputTopic, OutputTopic, topic_serdes
from milestones.common.topology.builder import StreamsBuilder
from milestones.common.topology.topology import Topology
from milestones.common.type_variables import K, V
from milestones.common.typed_serdes import SerdeLike
from milestones.flags import parse_milestones
from milestones.instance.application import Application
from milestones.instance.context import ThreadContext, UncaughtExceptionResponse
from milestones.instance.identity import StreamThreadIdentity
from milestones.instance.states import ThreadState
from milestones.instance.thread_registry import ThreadRegistry
from milestones.stepped.clients import AnsweredRequests, SteppedClients
from milestones.stepped.kafka import FENCED, ILLEGAL_GENERATION, TIMED_OUT, SteppedKafka
from milestones.stepped.process import ProcessCrashed, SteppedProcess
from milestones.stepped.state import KeptStores, SteppedState
from milestones.stream_thread.loop import StreamLoop

if TYPE_CHECKING:
    from milestones.common.config.settings import StreamsSettings

WITHOUT_THREADS: Final = frozenset({"fencing_tolerance"})
"""The flags whose parts need no other thread than the stream thread."""

TURN_MS: Final = 10
"""The time between two turns of `run_for`."""

CALLS: Final = ("begin", "send", "flush", "send_offsets", "commit", "abort")
"""The producer's calls that a test can make fail."""

ERRORS: Final[Mapping[str, KafkaException]] = {
    "fenced": FENCED, "timed out": TIMED_OUT, "old generation": ILLEGAL_GENERATION,
}  # fmt: skip
"""Kafka's errors, keyed by name: another producer has the transactional id; no answer came in time; the group has a
newer generation."""


class SteppedApplication:
    """One instance of an application with one stream thread, run by hand on a Kafka in memory. The instance starts when
    the object is made. The object is a context manager, which ends the instance.

    The topology and the settings are given in the same way as to `TopologyTestDriver`. `partitions`: the number of
    partitions of each topic that the application doesn't create itself. `topics`: the existing topics, for sources that
    read a pattern. The setting `milestones` may be `"baseline"` (the default) or `"fencing_tolerance"`: other stages
    have further threads. Global stores and more than one stream thread are refused, too.

        with SteppedApplication(builder, processing_guarantee="exactly_once_v2") as app:
            app.create_input_topic("lines", value=str).pipe(None, "to be")
            app.crash_at("commit.after-flush")
            app.run_for(1_000)
            assert app.crashed
            app.restart()
            app.run_for(1_000)
    """

    config: StreamsConfig

    def __init__(
        self,
        topology: Topology | StreamsBuilder | HasTopology,
        config: Mapping[str, Any] | StreamsConfig | None = None,
        *,
        partitions: int = 1,
        start_time_ms: int = 1_700_000_000_000,
        topics: Iterable[str] = (),
        **settings: Unpack[StreamsSettings],
    ) -> None:
        built, self.config = topology_and_config(topology, config, settings, "SteppedApplication")
        self._flags = parse_milestones(self.config.milestones)
        self._application = Application.of(built, self.config)
        self._check()
        self.clock: StepClock = StepClock(start_time_ms)
        known = {*self._application.source_topics, *matching(self._application.source_patterns, topics)}
        plan = plan_tasks(self._application.subtopologies, dict.fromkeys(known, partitions))
        if plan.error is not None:
            raise TopologyError(plan.error)
        counts = {**plan.repartition_counts, **plan.changelog_counts}
        self._tasks, self._inputs = plan.tasks, known
        self._kafka = SteppedKafka(lambda topic: counts.get(topic, partitions))
        self._disk = KeptStores()
        self._process = SteppedProcess()
        self._loop: StreamLoop | None = None
        self._clients: SteppedClients | None = None
        self._state = ThreadState.CREATED
        self._disarm: list[Callable[[], None]] = []
        self._start()

    def _check(self) -> None:
        threaded = sorted(self._flags - WITHOUT_THREADS)
        if threaded:
            raise ValueError(
                f"milestones={self.config.milestones!r}: SteppedApplication has one thread, and {', '.join(threaded)} "
                'needs further ones; give "baseline" or "fencing_tolerance"'
            )
        if self.config.num_stream_threads != 1:
            raise ValueError(f"num_stream_threads={self.config.num_stream_threads}: SteppedApplication has one thread")
        if self._application.globals is not None:
            raise TopologyError("SteppedApplication runs no global stores; TopologyTestDriver does")

    # -- topics

    def create_input_topic(
        self,
        name: str,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        start_time_ms: int | None = None,
        advance_ms: int = 0,
    ) -> InputTopic[K, V]:
        """Return an object that writes records to a topic that the topology reads. The arguments are those of
        `TopologyTestDriver.create_input_topic`. Raises `ValueError` for a topic that isn't a source."""
        self._check_source(name)
        start_ms = self.clock.wall_ms() if start_time_ms is None else start_time_ms
        return InputTopic(self, name, *topic_serdes(self.config, key, value), start_ms, advance_ms)

    def create_output_topic(
        self, name: str, *, key: SerdeLike[K] | None = None, value: SerdeLike[V] | None = None
    ) -> OutputTopic[K, V]:
        """Return an object that reads the committed records that the application wrote to a topic. Under
        `at_least_once` all records count as committed."""
        return OutputTopic(self, name, *topic_serdes(self.config, key, value))

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None
    ) -> None:
        """Write one record of bytes to a topic that the topology reads. The key chooses the partition; without a key it
        is partition 0."""
        self._check_source(topic)
        self._kafka.logs[self._kafka.at(topic, key)].append(key, value, timestamp, headers)

    def _check_source(self, topic: str) -> None:
        if topic not in self._inputs:
            raise ValueError(f"no source reads topic {topic!r}, only {sorted(self._inputs)}")

    def produced(self) -> dict[str, list[Output]]:
        """Return the committed outputs that weren't read yet, for every topic that was written to."""
        return {topic: list(outputs) for topic, outputs in self._kafka.unread.items()}

    def unread(self, topic: str) -> deque[Output]:
        """Return the committed outputs of a topic that weren't read yet. For `OutputTopic`."""
        return self._kafka.unread.get(topic, deque())

    # -- turns

    def step(self, times: int = 1, *, ms: int = 0) -> None:
        """Let the stream thread make turns of its loop. Before each turn `ms` milliseconds pass. Ends early at a crash.
        Raises the error that ends the thread, if there is one, and `RuntimeError` if the instance doesn't run."""
        for _ in range(times):
            if self._loop is None:
                raise RuntimeError(f"the instance {'has crashed' if self.crashed else 'has ended'}: call restart()")
            self.clock.advance(ms)
            self._turn(self._loop)
            if self.crashed:
                return

    def run_for(self, ms: int) -> None:
        """Let `ms` milliseconds pass, rounded up to a multiple of 10, with a turn every 10 ms. Ends early at a crash.
        Raises the errors of `step`."""
        self.step(-(-ms // TURN_MS), ms=TURN_MS)

    def _turn(self, loop: StreamLoop) -> None:
        try:
            loop.run_once(self.clock.monotonic_ms())
        except ProcessCrashed:
            self._drop()
        except BaseException:
            self._end(lambda: loop.fail(shut_application_down=None))
            raise
        if self._process.crashed:  # even if some code has caught the error of the crash
            self._drop()

    @property
    def state(self) -> ThreadState:
        """The state of the stream thread. `DEAD` after a crash, and after the thread has ended."""
        return self._state

    @property
    def calls(self) -> list[str]:
        """The calls by which the application has changed something in Kafka, in their order: `begin`, `send`, `flush`,
        `send_offsets`, `commit`, `abort`, `commit_offsets`, and `new producer`."""
        return list(self._kafka.calls)

    def committed(self) -> dict[TopicPartition, int]:
        """Return the offsets that the application's group has committed."""
        return {partition: at.offset for partition, at in self._kafka.committed.items()}

    # -- faults

    def fail_next(self, call: str, error: str | Exception) -> None:
        """Make the producer's next call of this kind fail. `call` is `begin`, `send`, `flush`, `send_offsets`, `commit`
        or `abort`. `error`: `"fenced"`, `"timed out"`, `"old generation"`, or an error of confluent-kafka. Repeated
        calls plant several errors, one for each call of the producer. Raises `ValueError` for other words."""
        if call not in CALLS:
            raise ValueError(f"no call {call!r} can fail, only {', '.join(CALLS)}")
        if isinstance(error, str) and error not in ERRORS:
            raise ValueError(f"no error is called {error!r}, only {', '.join(ERRORS)}")
        self._kafka.fail(call, ERRORS[error] if isinstance(error, str) else error)

    def crash_at(self, point: str, nth: int = 1) -> None:
        """Make the instance crash when it reaches a fault point for the `nth` time. `FAULT_POINTS` lists the points.
        Raises `ValueError` for an unknown one."""
        if point not in POINTS:
            raise ValueError(f"no fault point is called {point!r}, only {', '.join(POINTS)}")
        process = self._process
        self._disarm.append(plant(Fault(point, "crash", nth, performs=lambda *_: process.crash())))

    def crash(self) -> None:
        """End the instance as `kill -9` does: it commits nothing, and its open transaction is aborted."""
        self._process.crashed = True
        self._drop()

    @property
    def crashed(self) -> bool:
        """True from a crash until the restart."""
        return self._process.crashed

    def restart(self, *, keep_state: bool = True) -> None:
        """Start a new instance. An instance that still runs crashes first. Without `keep_state` the disk is lost, so
        that the stores are restored from their changelogs."""
        if self._loop is not None:
            self.crash()
        if not keep_state:
            self._disk = KeptStores()
        self._start()

    def close(self) -> None:
        """End the instance cleanly: the thread makes its last commit and closes its tasks. Does nothing when repeated,
        or after a crash."""
        if (loop := self._loop) is not None:
            self._end(lambda: loop.shut_down(leave_group=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.crash()  # an error of the end would hide that of the test

    # -- internals

    def _start(self) -> None:
        config, process = self.config, SteppedProcess()
        registry = ThreadRegistry(config.num_stream_threads)
        clients = SteppedClients(self._kafka, process, self._tasks, transactional=config.exactly_once)
        context = ThreadContext(
            identity=StreamThreadIdentity(config, config.application_id, registry, 1),
            stage="+".join(sorted(self._flags)) or "baseline",
            config=config,
            clock=self.clock,
            application=self._application,
            process_id="stepped",
            transactional_id=f"{config.application_id}-stepped-1",
            # The parts name the real classes: these have the methods of them that a stage without threads calls.
            state=cast(Any, SteppedState(self._disk, process)),
            metrics=Metrics(self.clock),
            housekeeper=cast(Any, AnsweredRequests(self._kafka, process)),
            notify=lambda _: None,
            decide=lambda *_, **__: UncaughtExceptionResponse.SHUTDOWN_CLIENT,
            memory=MemoryBudget(config).join(),
            thread_registry=registry,
        )
        parts = replace(wiring.parts(self._flags).thread, clients=lambda *_: cast(Any, clients))
        self._process, self._clients = process, clients
        self._loop = StreamLoop(context, parts, cast(Any, clients), self._move)
        clients.member.start()

    def _move(self, state: ThreadState) -> None:
        self._state = state

    def _end(self, last: Callable[[], None]) -> None:
        """Make the last steps of the thread, as `StreamThread` does. `last` closes the tasks."""
        loop, clients = self._loop, self._clients
        assert loop is not None
        assert clients is not None
        try:
            try:
                last()
            finally:
                clients.close(leave_group=True)
                loop.close()
        except ProcessCrashed:
            pass
        finally:
            self._drop()

    def _drop(self) -> None:
        """Discard the thread and its fault points."""
        for disarm in self._disarm:
            disarm()
        self._disarm.clear()
        self._loop = self._clients = None
        self._state = ThreadState.DEAD
