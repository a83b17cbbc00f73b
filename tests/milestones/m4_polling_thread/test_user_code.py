"""No user code runs on the polling thread: every user callable there is notes the thread that it is called in.

Real threads, the polling thread's loop and parts as on m4; Kafka and the state directory are in memory.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones import wiring
from milestones.common.clock import SystemClock
from milestones.common.kafka.membership import Assigned, JoinNeeded
from milestones.common.kafka.refusals import Refused
from milestones.common.metrics import Metrics
from milestones.common.records import TOPIC, VALUE, Emitted, Record, TaskId, TopicPartition, output_of
from milestones.common.serdes import Serde
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import Processor, Topology
from milestones.common.topology.handlers import Action, Response
from milestones.ended_tasks.task_failure_policy import TaskEndingPolicy
from milestones.flags import parse_milestones
from milestones.instance.context import UncaughtExceptionResponse
from milestones.instance.listeners import Listeners, StandbyUpdateListener, StateRestoreListener
from milestones.instance.thread_registry import ThreadRegistry
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.m4_polling_thread.thread import PollingThread
from milestones.m4_polling_thread.workforce import PollingIdentity
from tests.milestones.fakes import CHANGELOG, IN, NO_CLIENTS, World, assignment, kafka_error, put
from tests.milestones.stepped_workers import Ledger

WAIT_S = 60
"""The longest wait for all user code to have been called."""
POLLING = "app-PollingThread"


class Seen:
    """In which threads each piece of user code was called. *Concurrency*: any thread notes; the lock guards all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._threads: defaultdict[str, set[str]] = defaultdict(set)

    def note(self, what: str) -> None:
        with self._changed:
            self._threads[what].add(threading.current_thread().name)
            self._changed.notify_all()

    def noting(self, what: str, does: Callable[..., Any]) -> Any:
        """The function, which notes its calls from now on."""

        @wraps(does)
        def noted(*arguments: Any, **named: Any) -> Any:
            self.note(what)
            return does(*arguments, **named)

        return noted

    def all_of(self, expected: Collection[str]) -> set[str]:
        """Wait until all of these were called; those that weren't."""
        with self._changed:
            self._changed.wait_for(lambda: self._threads.keys() >= set(expected), WAIT_S)
            return set(expected) - self._threads.keys()

    def in_thread(self, name: str) -> set[str]:
        """What was called in this thread."""
        with self._changed:
            return {what for what, names in self._threads.items() if name in names}


class Listener(StateRestoreListener, StandbyUpdateListener):
    """Both listeners of a user's."""

    def __init__(self, seen: Seen) -> None:
        for name in dir(StateRestoreListener) + dir(StandbyUpdateListener):
            if name.startswith("on_"):
                setattr(self, name, seen.noting("restore" if "restor" in name else "standby", lambda *_, **__: None))


class Refusing(Ledger):
    """Refuses an output for the sink's topic at once, as the client does, if its value is "refused"; the first offsets
    of all are refused, too."""

    stale = True

    def send(
        self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str] = (), **how: Any
    ) -> Sequence[Emitted]:
        kept = []
        for output in outputs:
            if output[VALUE] == b"refused" and output[TOPIC] == "out":
                self.refused.append(Refused(task, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), output_of(output)))
            else:
                kept.append(output)
        return super().send(task, kept, changelogs, **how)

    def send_offsets(self, *arguments: Any) -> None:
        super().send_offsets(*arguments)
        if Refusing.stale:
            Refusing.stale = False
            raise kafka_error(KafkaError.INVALID_TXN_STATE, abort=True)


def topology(seen: Seen) -> Topology:
    """in -> counted -> a topic that a function names; every function of it notes its calls."""

    class Counted(Processor):
        def init(self, context: Any) -> None:
            seen.note("init")
            super().init(context)
            self.store = context.get_state_store("counts")
            context.schedule(1, "wall-clock-time", lambda _: seen.note("punctuate"))

        def process(self, record: Record) -> None:
            seen.note("process")
            if record.value in ("skipped", "fatal"):
                raise ValueError(record.value)
            self.store.put(record.key, record.value)
            self.context.forward(record)

        def close(self) -> None:
            seen.note("close")

    def read(data: bytes) -> str:
        if data == b"unreadable":
            raise ValueError("unreadable")
        return data.decode()

    text = Serde(seen.noting("serialize", str.encode), seen.noting("deserialize", read))
    found = Topology()
    extractor = seen.noting("timestamp extractor", lambda record, time: record.timestamp)
    found.add_source("source", "in", key=text, value=text, timestamp_extractor=extractor)
    found.add_processor("counting", seen.noting("supplier", lambda: Counted()), "source")
    found.add_sink(
        "sink", seen.noting("topic extractor", lambda *_: "out"), "counting", key=text, value=text,
        partitioner=seen.noting("partitioner", lambda *_: 0),
    )  # fmt: skip
    found.add_state_store(StoreSpec("counts", key_serde=text, value_serde=text), "counting")
    return found


EXPECTED = {
    "supplier", "init", "process", "close", "punctuate", "serialize", "deserialize", "timestamp extractor",
    "topic extractor", "partitioner", "deserialization handler", "processing handler", "production handler",
    "uncaught exception handler", "restore", "standby",
}  # fmt: skip


class Instance:
    """An instance with two tasks and a standby, whose user code fails in each way; `planted`: other parts than m4's."""

    def __init__(self, **planted: Any) -> None:
        self.seen = seen = Seen()

        def handler(name: str) -> Any:
            return seen.noting(name, lambda *_: Response(Action.CONTINUE))

        self.world = world = World(
            topology(seen),
            {
                "processing_guarantee": "exactly_once_v2", "commit_interval_ms": 20, "task_timeout_ms": 200,
                "num_processing_threads": 2, "poll_ms": 5,
                "deserialization_exception_handler": handler("deserialization handler"),
                "production_exception_handler": handler("production handler"),
                "processing_exception_handler": seen.noting("processing handler", self.answer),
            },
        )  # fmt: skip
        Refusing.stale = True

        def make() -> Refusing:
            return Refusing(world.logs, world.member)

        world.clients.producer, world.clients.new_producer = make(), make  # type: ignore[method-assign]
        registry, listeners = ThreadRegistry(2), Listeners()
        listeners.restore = listeners.standby = Listener(seen)
        clock = SystemClock()
        self.context = replace(
            world.context, identity=PollingIdentity(world.config, "app", registry), thread_registry=registry,
            listeners=listeners, clock=clock, metrics=Metrics(clock),
            decide=seen.noting("uncaught exception handler", lambda *_, **__: UncaughtExceptionResponse.REPLACE_THREAD),
        )  # fmt: skip
        world.context = self.context
        parts = wiring.parts(parse_milestones("m4")).thread
        fakes: Any = {"clients": lambda *_: world.clients, "state": lambda *_: world.state}
        self.thread = PollingThread(self.context, replace(parts, **{**fakes, **planted}), NO_CLIENTS)

    @staticmethod
    def answer(context: Any, error: Exception) -> Response:
        return Response(Action.FAIL if "fatal" in str(error) else Action.CONTINUE)

    def run(self) -> Seen:
        """From its start to its clean end; a roll-back, restorations and all failures come between."""
        for partition in (0, 2):
            self.world.logs[TopicPartition(CHANGELOG, partition)].add("restored")
        put(self.world, IN.partition, "a", "skipped", "unreadable", "refused", "b")
        put(self.world, 1, "a", "fatal")
        given = assignment(self.world, 0, 1, standby=frozenset({TaskId(0, 2)}))
        self.world.member.events += [JoinNeeded("a test"), Assigned(1, "member", given)]
        self.thread.start()
        missing = self.seen.all_of(EXPECTED - {"close"})
        self.thread.stop(leave_group=True)
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        assert missing | self.seen.all_of(EXPECTED) == set()
        return self.seen


def test_all_user_code_runs_in_other_threads_than_the_one_that_polls() -> None:
    assert Instance().run().in_thread(POLLING) == set()


def test_the_handler_that_a_polling_thread_dies_with_runs_in_another_thread() -> None:
    instance = Instance()

    def dies() -> None:
        raise RuntimeError("a bug")

    instance.world.member.poll = dies  # type: ignore[method-assign,assignment]
    instance.thread.start()
    instance.thread.join(WAIT_S)
    assert instance.seen.all_of({"uncaught exception handler"}) == set()
    assert instance.seen.in_thread(POLLING) == set()


PLANTED: dict[str, dict[str, Any]] = {
    "production handler": {"collection": BufferedCollection},
    "uncaught exception handler": {
        "task_failure_policy": lambda context: TaskEndingPolicy(context, lambda thread: thread.run()),
    },
}


@pytest.mark.parametrize("what", PLANTED)
def test_user_code_on_the_polling_thread_is_found(what: str) -> None:
    assert what in Instance(**PLANTED[what]).run().in_thread(POLLING)
