"""`OutputSender`: gives outputs to the client, and asks the handler about refused ones.

| what is refused | by | `at_least_once` | `exactly_once_v2` |
|---|---|---|---|
| an output (too large for the client's limits) | the client itself | its handler decides | its handler decides |
| an output | the broker | its handler decides | an error: `RefusedInTransactionError` (*) |
| a changelog record | either of them | an error | an error |
| a topic (rights, an illegal name) | the broker | an error | an error |
| an internal topic that the broker doesn't know | the broker | `UnsentError` | `UnsentError` |

Up to M3 an error ends the thread, from M4 on the task. After an `UnsentError` the outputs are made once more: their
records are processed once more, or kept outputs are resent.

(*) If the producer finds out which output is refused, its handler decides. With fencing tolerance the producer looks
for it after a transaction has failed because of an output. Then the transaction is repeated without the outputs that
the handler has skipped.

**A refused batch.** A broker that refuses one record refuses the whole batch. Under `at_least_once` recovery then makes
a producer that finds out which record is refused (`BatchIsolation`), and the outputs are made once more. After the next
commit an ordinary producer replaces it: `ready_for_the_next`.

**An internal topic that a broker doesn't know** was just made, or was deleted. The housekeeper finds out which. If it
was deleted, the housekeeper ends the application. Until then the outputs are made once more.

**RETRY.** The client has already repeated every call that may succeed. If a handler says RETRY after that, the outputs
are made once more, those of a changelog, too.

**No room.** If the client has no room for outputs (a partition without a leader fills its queue), the caller gets back
the rest. If no output has left for `task_timeout_ms`, an error is raised. A handler's dead letters that find no room
wait at the producer. No output is sent before them, and no commit is made without them.

**A slow handler** (`ProductionHandler`). A commit waits for the answer. A transaction that has failed gets no more
outputs.

*Guarantees*: without transactions nothing is sent when the session may be over. Each output knows its task. A refused
output takes no other with it. Dead letters are sent in the same commit as the outputs that they stand for.
*Assumes*: the thread that owns the producer and the tasks makes all calls. The owner of this object decides what
happens to an output that is left out or resent (`Deciding`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import (
    ProcessingError,
    ProductionError,
    SourceTopicError,
    TimeoutExceededError,
    UnsentError,
)
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.failures import TOO_LARGE, UNKNOWN_TOPIC, is_retriable
from milestones.common.kafka.membership import CommitRetriableError, StaleGenerationError
from milestones.common.kafka.refusals import Refused
from milestones.common.kafka.retry import RETRY_PAUSE_MS
from milestones.common.records import (
    TOPIC,
    UNKNOWN_TIMESTAMP,
    Emitted,
    Output,
    TaskId,
    TopicPartition,
    emitted_of,
)
from milestones.common.topology.handlers import Action, Response
from milestones.common.topology.nodes import SinkNode
from milestones.shared_parts.refused_outputs import (
    Answer,
    InlineProductionHandler,
    ProductionHandler,
    Question,
    describe,
    error_context,
    is_about_one,
    must_be_of_one,
)

if TYPE_CHECKING:
    from milestones.common.kafka.producer import OutputProducer
    from milestones.common.steps import Steps
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Sending

log: Final = logging.getLogger(__name__)

ROOM_MS = 100
"""The longest wait of a stream thread's turn for room in the client."""

UP_TO_THE_HOUSEKEEPER = "its records are made again, unless it turns out that the topic was deleted"
"""The end of the error text if a broker doesn't know an internal topic."""

ACKNOWLEDGED_MS = 2_000
"""A commit without a transaction waits for this time while Kafka acknowledges nothing. After that the commit is retried
later."""


class Deciding(Protocol):
    """Carries out what the user's handler has decided about a refused output."""

    def leave_out(self, refused: Refused, letters: Sequence[Output], error: ProductionError) -> None:
        """Leave the output out, and send the dead letters in its place. Or raise an error after which all outputs,
        except this one, are made or sent once more."""
        ...

    def send_again(self, refused: Refused, error: ProductionError) -> None:
        """Raise an error after which the output is made or sent once more."""
        ...

    def all_decided(self) -> None:
        """Note that all refused outputs are decided about."""
        ...


class OutputSender:
    """Gives outputs to the client. *Owns*: the time since which the client has had no room; the number of dead letters
    so far."""

    def __init__(
        self, context: ThreadContext, clients: Sending, deciding: Deciding, handler: ProductionHandler | None = None
    ) -> None:
        """`handler`: asks the user's handler; the default asks it in the calling thread."""
        self._handler = handler or InlineProductionHandler(context.config.production_exception_handler)
        self._deciding, self._config, self._clients, self._clock = deciding, context.config, clients, context.clock
        self._application, self._retry_policy = context.application, context.retry_policy
        self._full_since_ms: int | None = None
        self._letters = 0

    def begin_anew(self) -> None:
        """Forget for how long there was no room: the client's queue is empty."""
        self._full_since_ms = None

    def must_be_in_session(self) -> None:
        """Raise `StaleGenerationError` if there are no transactions and the session may be over. Without transactions
        no producer is fenced. So a thread that stood still for longer than its session mustn't write once others may
        have taken its tasks over."""
        if not self._config.exactly_once and self._clients.member.session_over():
            raise StaleGenerationError("the session is over: this thread stood still, or the group doesn't answer")

    def hand_over(
        self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str], wait_ms: int
    ) -> Sequence[Emitted]:
        """Give the outputs to the client. Returns those for which the client had no room within `wait_ms`.
        `changelogs`: the topics of the task's changelogs."""
        try:
            left = self._clients.producer.send(
                task, outputs, changelogs, wait_ms=wait_ms, check=self.must_be_in_session
            )
        except ProductionError as error:
            self.settle()  # by now the client may have reported which output it refuses
            if error.task is not None or not self._clients.producer.undecided:
                raise
            self.take_answers(wait_ms)
            return outputs
        self._note_room(outputs, left)
        return left

    def _note_room(self, outputs: Sequence[Emitted], left: Sequence[Emitted]) -> None:
        """Note whether the client took any output. Raises an error when it has taken none for `task_timeout_ms`."""
        if len(left) < len(outputs) or not left:
            self._full_since_ms = None
            return
        now_ms, limit_ms = self._clock.monotonic_ms(), self._config.task_timeout_ms
        if self._full_since_ms is None:
            self._full_since_ms = now_ms
            log.info("outputs wait for room in the client: Kafka doesn't take the outputs in its queue")
        if now_ms - self._full_since_ms > limit_ms:
            why = self._clients.producer.why_full({output[TOPIC] for output in left})
            kind = SourceTopicError if why.missing else TimeoutExceededError
            raise kind(f"no output could be sent within task_timeout_ms ({limit_ms}): {why.text}")

    def push_letters(self, within_ms: int) -> Steps[bool]:
        """Send the waiting dead letters, in steps. Gives up when none has left for `within_ms`. Returns True if all
        have left."""
        before, wait_ms, until_ms = self._waiting_letters() + 1, 0, 0
        while left := self._waiting_letters():
            if left < before:
                before = left
                until_ms = self._clock.monotonic_ms() + int(min(within_ms, self._retry_policy.rest_ms()))
            left_ms = max(0, until_ms - self._clock.monotonic_ms())
            self.send_letters(min(wait_ms, left_ms))
            left = self._waiting_letters()
            if left == before and not left_ms:
                return False
            if left:
                wait_ms = yield
        return True

    def _waiting_letters(self) -> int:
        return sum(map(len, self._clients.producer.letters.values()))

    def flush(self) -> Steps[None]:
        yield from self._flush()
        while (yield from self.decided()):
            if not (yield from self.push_letters(ROOM_MS)):
                self._full()
            yield from self._flush()

    def _full(self) -> None:
        """Raise an error, because dead letters find no room even after a flush."""
        letters = self._clients.producer.letters
        why = self._clients.producer.why_full({letter[TOPIC] for waiting in letters.values() for letter in waiting})
        what = f"dead letters found no room in the client: {why.text}"
        raise UnsentError(what, letters) if self._config.exactly_once else CommitRetriableError(what)

    def _flush(self) -> Steps[None]:
        producer = self._clients.producer
        if producer.transactional:
            yield from self._flush_for(self._config.task_timeout_ms)
            return
        until_ms, before = self._clock.monotonic_ms() + self._config.task_timeout_ms, producer.unacknowledged
        while True:
            try:
                yield from self._flush_for(ACKNOWLEDGED_MS)
                return
            except KafkaException as exception:
                error = exception
            if not is_retriable(error):  # outside of the `except` block: see `failures.caught`
                raise error
            left = producer.unacknowledged
            if left >= before or self._clock.monotonic_ms() >= until_ms:
                raise CommitRetriableError(f"{text_of(error)}: {producer.why_full(self._topics()).text}")
            before = left

    def _flush_for(self, within_ms: int) -> Steps[None]:
        producer = self._clients.producer
        return self._retry_policy.steps(lambda: producer.begin_flush(1_000), producer.returned, is_retriable, within_ms)

    def _topics(self) -> set[str]:
        """Return the topics that the application writes to, as far as its topology names them."""
        subs = self._application.subtopologies
        sinks = [node.topic for sub in subs for node in sub.nodes if isinstance(node, SinkNode)]
        return {topic for topic in sinks if isinstance(topic, str)}.union(*(sub.changelogs.values() for sub in subs))

    def decided(self) -> Steps[bool]:
        """Wait, in steps, until every refused output is decided about. Returns True if dead letters were sent, or wait
        to be sent."""
        sent = self.settle()
        while self._clients.producer.undecided:
            wait_ms = yield
            sent = self.settle(wait_ms) or sent
        return sent or bool(self._clients.producer.letters)

    def settle(self, wait_ms: int = 0) -> bool:
        """Ask about every refused output, and act on the answers that have come. Returns True if dead letters were
        sent."""
        producer, before = self._clients.producer, self._letters
        self.take_answers(wait_ms)
        while producer.refused:
            refused, producer.refused = producer.refused, []
            must_be_of_one(refused, producer.isolation, transactional=producer.transactional)
            for number, one in enumerate(refused):
                try:
                    if one.dead_letter:
                        self._send_letter_again(one)
                    else:
                        self._ask(one)
                except BaseException as error:
                    # Keep the undecided refusals of other tasks: this error may end only its own task.
                    failed = one.task if isinstance(error, ProductionError | ProcessingError) else None
                    left = [*refused[number + 1 :], *producer.refused]
                    producer.refused = [other for other in left if other.task != failed]
                    raise
        if not producer.undecided:
            self._deciding.all_decided()
        return self._letters > before

    def _ask(self, refused: Refused) -> None:
        """Have the handler asked about the output if it may be left out or resent. Otherwise raise an error."""
        subtopology = self._application.subtopology(refused.task.subtopology)
        topic, internal = refused.output.topic, refused.output.topic in self._application.internal_topics
        if internal and refused.error.code() in UNKNOWN_TOPIC:
            self._clock.sleep_ms(RETRY_PAUSE_MS)  # the client may report this immediately, time after time
            raise UnsentError(f"{topic}: {refused.error.str()}; {UP_TO_THE_HOUSEKEEPER}", [refused.task])
        changelog = topic in subtopology.changelogs.values() and topic not in subtopology.source_topics
        context = error_context(refused, subtopology)
        error = ProductionError(describe(refused, changelog=changelog), refused.task)
        if not self._is_up_to_a_handler(refused) or (changelog and not context.retriable):
            raise error
        self._clients.producer.undecided.add(refused)
        self._handler.ask(Question(refused, context, error, may_be_left_out=not changelog))
        self.take_answers()

    def take_answers(self, wait_ms: int = 0) -> None:
        """Act on the answers that have come from the handler. Waits at most `wait_ms` for the first one."""
        undecided = self._clients.producer.undecided
        while undecided and (answer := self._handler.take(wait_ms)) is not None:
            wait_ms = 0
            if answer.question.refused in undecided:  # else the transaction is over, and its records come once more
                undecided.remove(answer.question.refused)
                self._follow(answer)

    def must_wait_for_answers(self) -> bool:
        """Return True if the transaction has failed because of outputs about which the handler is being asked. Such a
        transaction takes no other outputs."""
        producer = self._clients.producer
        return producer.transactional and any(refused.sent for refused in producer.undecided)

    def _follow(self, answer: Answer) -> None:
        """Do what the handler says, or raise the error."""
        question, response = answer.question, answer.response
        refused, error = question.refused, question.error
        if isinstance(response, ProcessingError):
            raise response
        if response.action is Action.RETRY and question.context.retriable:
            self._deciding.send_again(refused, error)
        elif response.action is Action.CONTINUE and question.may_be_left_out:
            self._deciding.leave_out(refused, self._letters_for(refused, response), error)
        else:
            raise error

    def _letters_for(self, refused: Refused, response: Response) -> list[Output]:
        """Return the dead letters in place of the output, each with a timestamp. If Kafka refused the output's
        timestamp, it would refuse the same one in a dead letter, so these get the present time."""
        now_ms = self._clock.wall_ms()
        bad_ms = refused.output.timestamp if is_about_its_time(refused) else UNKNOWN_TIMESTAMP
        return [
            one._replace(timestamp=now_ms) if one.timestamp in (bad_ms, UNKNOWN_TIMESTAMP) else one
            for one in response.dead_letters
        ]

    def _is_up_to_a_handler(self, refused: Refused) -> bool:
        """Return True if Kafka has refused this output itself, or the producer has found that out. Otherwise a topic, a
        whole batch or a dead letter was refused."""
        told = self._clients.producer.isolation is not None and refused.error.code() in TOO_LARGE
        return not refused.dead_letter and (told or is_about_one(refused))

    def write(self, task: TaskId, letters: Sequence[Output]) -> None:
        """Send the dead letters, behind those that already wait. Letters without room wait, too."""
        if letters:
            self._letters += len(letters)
            waiting = self._clients.producer.letters
            waiting[task] = [*waiting.get(task, ()), *map(emitted_of, letters)]
            self.send_letters(0)

    def send_letters(self, wait_ms: int) -> bool:
        """Send the waiting dead letters, as far as there is room within `wait_ms`. Returns True if none is left."""
        producer = self._clients.producer
        for task, letters in list(producer.letters.items()):
            self.must_be_in_session()
            left = producer.send(task, letters, dead_letters=True, wait_ms=wait_ms, check=self.must_be_in_session)
            self._note_room(letters, left)
            if left:
                producer.letters[task] = left
                return False
            del producer.letters[task]
        return True

    def _send_letter_again(self, refused: Refused) -> None:
        """Send a refused dead letter once more without its value, if the letter was too large. The output in it may
        have been too large, too."""
        letter = refused.output
        if refused.error.code() not in TOO_LARGE or letter.value is None:
            raise ProductionError(describe(refused, changelog=False), refused.task)
        log.warning("task %s: a dead letter for %s is too large and goes without its value", refused.task, letter.topic)
        self.write(refused.task, [letter._replace(value=None)])


def is_about_its_time(refused: Refused) -> bool:
    """Return whether Kafka has refused the output's timestamp."""
    return refused.error.code() == KafkaError.INVALID_TIMESTAMP


def take_changelog_offsets(producer: OutputProducer, task: Task) -> dict[str, int]:
    """Take the offsets after the task's acknowledged changelog records, by store."""
    offsets = {}
    for store, topic in task.subtopology.changelogs.items():
        offset = producer.acknowledged.pop(TopicPartition(topic, task.id.partition), None)
        if offset is not None:
            offsets[store] = offset
    return offsets
