"""`Admin`: how a thread without an admin client has requests made by the thread that owns one.

    a thread --ask(begin)--> the owner calls begin(cluster) --requests--> Kafka --answers--> the future of the thread

*Guarantees*: `ask` doesn't wait. Kafka's answers reach the thread that asked without the owner, which may be busy. Each
future gets its answers, or an error after `ANSWER_MS` at the latest, as long as the owner looks at its desk. After a
failure that may be the client's own fault another one takes its place; requests under way keep the old one.
*Assumes*: `begin` doesn't wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException

from milestones.common.clock import Clock, SystemClock
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.topics import Cluster

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

ANSWER_MS = 15_000
"""The longest time to an answer. A request's time-out is less: this limit is for a client that has lost the request,
and for an owner that hangs."""

STEP_MS = 20
"""The longest wait of a step."""

Begin: TypeAlias = Callable[[Cluster], Mapping[K, "Future[V]"]]
"""Begins requests of a cluster (its methods `start_...`), and returns the futures of their answers."""

Answers: TypeAlias = "Future[Mapping[K, Future[V]]]"
"""Gets what `Begin` has returned, once all futures in it are done; or an error, when it couldn't begin."""


class Admin(Protocol):
    """The way to an admin client, from any thread."""

    def ask(self, begin: Begin[K, V]) -> Answers[K, V]:
        """Have the client's owner call `begin`. A thread that gives up cancels the future."""
        ...


@dataclass(frozen=True, eq=False)
class AdminCall(Generic[K, V]):
    """*Any thread to the owner of an admin client.* Call `begin`; the answers go into `answers`."""

    begin: Begin[K, V]
    answers: Answers[K, V] = field(default_factory=Future)


@dataclass(frozen=True)
class _Open:
    call: AdminCall[Any, Any]
    futures: Mapping[Any, Future[Any]]
    client: object
    """The client that was asked: it answers as long as it lives."""
    since_ms: int


class AdminDesk:
    """Begins calls for other threads. *Owns*: the calls under way. *Receives*: `AdminCall`s."""

    def __init__(self) -> None:
        self._open: list[_Open] = []

    def begin(self, call: AdminCall[Any, Any], cluster: Cluster, now_ms: int) -> None:
        """Begin the call, unless its thread has given up."""
        if not call.answers.set_running_or_notify_cancel():
            return
        try:
            futures = call.begin(cluster)
        except Exception as error:
            call.answers.set_exception(error.with_traceback(None))
            return
        self._open.append(_Open(call, futures, cluster.client, now_ms))
        _gather(futures, call.answers)

    def run_once(self, cluster: Cluster, now_ms: int) -> None:
        """Let clients of answered calls go, give calls up that have waited for `ANSWER_MS`, and replace a client that
        has failed."""
        for late in self._open:
            if now_ms - late.since_ms >= ANSWER_MS:
                _settle(late.call.answers, no_answer())
        over = [one for one in self._open if one.call.answers.done()]
        self._open = [one for one in self._open if not one.call.answers.done()]
        failed = next((error for one in over if (error := _failure(one)) is not None), None)
        if failed is not None:
            cluster.renew_after(failed)

    def close(self, error: BaseException) -> None:
        """Give up all calls, which get this error."""
        for one in self._open:
            _settle(one.call.answers, error)
        self._open = []

    def end(self, within_ms: int) -> None:
        """Wait for what is under way, and let the clients go: a client that is let go with a request under way has its
        answer made by a thread of its own, behind whatever its owner does next."""
        wait([future for one in self._open for future in one.futures.values()], within_ms / 1000)
        self._open = []


class OwnAdmin:
    """For a thread that has no housekeeper. *Owns*: a cluster, made when it is first asked."""

    def __init__(self, make: Callable[[], Cluster]) -> None:
        self._make, self._desk, self._clock = make, AdminDesk(), SystemClock()

    @cached_property
    def cluster(self) -> Cluster:
        return self._make()

    def ask(self, begin: Begin[K, V]) -> Answers[K, V]:
        call = AdminCall(begin)
        self.take(call)
        return call.answers

    def take(self, call: AdminCall[Any, Any]) -> None:
        """Begin the call at once."""
        now_ms = self._clock.monotonic_ms()
        self._desk.run_once(self.cluster, now_ms)
        self._desk.begin(call, self.cluster, now_ms)


def by_another_client(begin: Begin[K, V]) -> Begin[K, V]:
    """`begin`, after another client has taken the place of the present one: it may ask another broker, and no late
    answer to an earlier request holds up its own."""

    def renewed(cluster: Cluster) -> Mapping[K, Future[V]]:
        cluster.renew()
        return begin(cluster)

    return renewed


def answered(answers: Future[T], clock: Clock) -> Generator[None, None, T]:
    """Wait for the answers in steps of `STEP_MS` at most, and return them. `KafkaException` when there are none within
    `ANSWER_MS`, or the error of the future."""
    until_ms = clock.monotonic_ms() + ANSWER_MS
    yield
    while wait([answers], STEP_MS / 1000).not_done:
        if clock.monotonic_ms() >= until_ms:
            answers.cancel()
            raise no_answer()
        yield
    return answers.result()


def rest(clock: Clock, ms: int) -> Generator[None, None, None]:
    """Wait in steps of `STEP_MS`."""
    until_ms = clock.monotonic_ms() + ms
    while clock.monotonic_ms() < until_ms:
        clock.sleep_ms(STEP_MS)
        yield


def no_answer() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer to a request within {ANSWER_MS / 1000:g} s"))


def _gather(futures: Mapping[Any, Future[Any]], answers: Answers[Any, Any]) -> None:
    """Hand the futures out once all are done, in the thread that has done the last one."""
    waiting = set(futures.values())

    def done(future: Future[Any]) -> None:
        waiting.discard(future)
        if not waiting:
            _settle(answers, futures)

    for future in list(waiting):
        future.add_done_callback(done)
    if not futures:
        _settle(answers, futures)


def _settle(answers: Answers[Any, Any], outcome: Mapping[Any, Future[Any]] | BaseException) -> None:
    """Set the outcome, unless there is one: two threads may be about to."""
    with suppress(InvalidStateError):
        if isinstance(outcome, BaseException):
            answers.set_exception(outcome)
        else:
            answers.set_result(outcome)


def _failure(one: _Open) -> KafkaException | None:
    """The first error that may be the client's fault: that of a question which it may answer later."""
    errors = (future.exception() for future in one.futures.values() if future.done())
    return next((error for error in errors if isinstance(error, KafkaException) and is_passing(error)), None)
