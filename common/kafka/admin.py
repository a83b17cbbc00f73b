"""`Admin`: a thread without an admin client sends its requests through the thread that owns an admin client.

    a thread --ask(begin)--> the owner calls begin(cluster) --requests--> Kafka --answers--> the future of the thread

*Guarantees*: `ask` doesn't wait. Kafka's answers go directly to the thread that asked, even while the owner is busy.
Each future gets its answers, or an error after `ANSWER_MS` at the latest, as long as the owner calls
`AdminDesk.run_once`. After a failure that may be the client's own fault, the owner replaces the client. Requests that
were begun before keep the old client.
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
"""The longest wait for an answer. The time-out of a request is shorter. This limit is reached only if the client has
lost the request, or if the owner thread hangs."""

STEP_MS = 20
"""The longest wait of one step of `answered` or `rest`."""

Begin: TypeAlias = Callable[[Cluster], Mapping[K, "Future[V]"]]
"""A function that begins requests with the `start_...` methods of a `Cluster`. It returns the futures of their
answers."""

Answers: TypeAlias = "Future[Mapping[K, Future[V]]]"
"""A future whose result is the futures that `Begin` returned. It is set when all of them are done. If `Begin` raised an
error, the future raises the same error."""


class Admin(Protocol):
    """Gives every thread access to an admin client."""

    def ask(self, begin: Begin[K, V]) -> Answers[K, V]:
        """Have the client's owner call `begin`. A caller that no longer wants the answers cancels the future."""
        ...


@dataclass(frozen=True, eq=False)
class AdminCall(Generic[K, V]):
    """*Message of any thread to the owner of an admin client.* The owner calls `begin`. `answers` gets the answers."""

    begin: Begin[K, V]
    answers: Answers[K, V] = field(default_factory=Future)


@dataclass(frozen=True)
class _Open:
    call: AdminCall[Any, Any]
    futures: Mapping[Any, Future[Any]]
    client: object
    """The client that was asked. This reference keeps it alive until it has answered."""
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
        """Give up calls that have waited for `ANSWER_MS`. Drop the references to the clients of finished calls. Replace
        the client if a call has failed and the client may be at fault."""
        for late in self._open:
            if now_ms - late.since_ms >= ANSWER_MS:
                _settle(late.call.answers, no_answer())
        over = [one for one in self._open if one.call.answers.done()]
        self._open = [one for one in self._open if not one.call.answers.done()]
        failed = next((error for one in over if (error := _failure(one)) is not None), None)
        if failed is not None:
            cluster.renew_after(failed)

    def close(self, error: BaseException) -> None:
        """Give up all calls. Their futures raise `error`."""
        for one in self._open:
            _settle(one.call.answers, error)
        self._open = []

    def end(self, within_ms: int) -> None:
        """Wait for open requests, then drop the references to the clients. If a client is dropped while a request is
        open, one of its own threads handles the answer later, while the owner already does something else."""
        wait([future for one in self._open for future in one.futures.values()], within_ms / 1000)
        self._open = []


class OwnAdmin:
    """An `Admin` for a thread that has no housekeeper to ask. *Owns*: a cluster, made at the first question."""

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
        """Begin the call immediately, in the calling thread."""
        now_ms = self._clock.monotonic_ms()
        self._desk.run_once(self.cluster, now_ms)
        self._desk.begin(call, self.cluster, now_ms)


def by_another_client(begin: Begin[K, V]) -> Begin[K, V]:
    """Returns a `Begin` that first replaces the client, then calls `begin`. The new client may ask another broker, and
    its answers don't wait behind a late answer to an earlier request."""

    def renewed(cluster: Cluster) -> Mapping[K, Future[V]]:
        cluster.renew()
        return begin(cluster)

    return renewed


def answered(answers: Future[T], clock: Clock) -> Generator[None, None, T]:
    """Wait for the answers in steps of `STEP_MS` at most, and return them. Raises the error of the future, or
    `KafkaException` when no answer comes within `ANSWER_MS`."""
    until_ms = clock.monotonic_ms() + ANSWER_MS
    yield
    while wait([answers], STEP_MS / 1000).not_done:
        if clock.monotonic_ms() >= until_ms:
            answers.cancel()
            raise no_answer()
        yield
    return answers.result()


def rest(clock: Clock, ms: int) -> Generator[None, None, None]:
    """Wait `ms` milliseconds, in steps of `STEP_MS`."""
    until_ms = clock.monotonic_ms() + ms
    while clock.monotonic_ms() < until_ms:
        clock.sleep_ms(STEP_MS)
        yield


def no_answer() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer to a request within {ANSWER_MS / 1000:g} s"))


def _gather(futures: Mapping[Any, Future[Any]], answers: Answers[Any, Any]) -> None:
    """Set the result of `answers` once all futures are done. The thread that completes the last future does it."""
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
    """Set the outcome, unless another thread has already set one."""
    with suppress(InvalidStateError):
        if isinstance(outcome, BaseException):
            answers.set_exception(outcome)
        else:
            answers.set_result(outcome)


def _failure(one: _Open) -> KafkaException | None:
    """Returns the first error that may be the client's fault, so one that a repeated question may not meet."""
    errors = (future.exception() for future in one.futures.values() if future.done())
    return next((error for error in errors if isinstance(error, KafkaException) and is_passing(error)), None)
