"""`DirectCollection` is the collection of the baseline: it sends outputs from the task straight to the producer.

While outputs wait for room in the client, the thread processes no records. Meanwhile the thread answers its group, and
can be stopped. If no output has left for `task_timeout_ms`, the thread ends.

*Guarantees*: everything that `OutputSender` guarantees. Only outputs of finished boundaries are sent. If a transaction
fails because of an output and a handler skips this output, the output is left out when the transaction is repeated.
*Assumes*: the thread that owns the producer and the tasks makes all calls.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from milestones.common.errors import ProductionError, UnsentError
from milestones.common.kafka.refusals import Refused
from milestones.common.records import UNKNOWN_TIMESTAMP, Emitted, Output, TaskId, output_of
from milestones.shared_parts.refused_outputs import ProductionHandler
from milestones.shared_parts.sending import ROOM_MS, OutputSender, is_about_its_time, take_changelog_offsets

if TYPE_CHECKING:
    from milestones.common.steps import Steps
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Sending

log: Final = logging.getLogger(__name__)

_Mark = tuple[TaskId, Output]
"""Identifies an output when its record is processed once more. The mark has all fields of the output. The timestamp
counts only if Kafka has refused it."""


@dataclass
class GivenUp:
    """An output that a handler has skipped after the transaction had failed because of it. `letters`: its dead letters.
    `counted`: True if the output has been counted as dropped. An output is counted once, however often its transaction
    is repeated."""

    letters: Sequence[Output]
    counted: bool = False


class DirectCollection:
    """Sends outputs while tasks process. `flush` waits until Kafka has acknowledged them.

    `dropped`: for each task, the number of outputs that the handler has left out. `client_queue_full`: True while
    outputs wait for room.
    """

    room_ms = ROOM_MS
    sent_again = suppressed = 0
    """Always 0: no output is kept after it was sent."""

    def __init__(self, context: ThreadContext, clients: Sending, handler: ProductionHandler | None = None) -> None:
        """`handler`: asks the user's handler; the default asks it in the calling thread."""
        self._sender = OutputSender(context, clients, self, handler)
        self._config, self._clients, self._clock = context.config, clients, context.clock
        self._retry_policy = context.retry_policy
        self.dropped: Counter[TaskId] = Counter()
        self.client_queue_full: bool = False
        self.unsent: Collection[Task] = ()
        self._given_up: dict[_Mark, GivenUp] = {}

    def collect(self, tasks: Iterable[Task]) -> bool:
        self._sender.take_answers()
        room_ms, sender = self.room_ms, self._sender
        held = sender.must_wait_for_answers() or not sender.send_letters(room_ms)
        sent, unsent = held, list(tasks) if held else []
        for task in () if held else tasks:
            outputs = self._take(task)
            if outputs:
                sent, rest = True, self._hand_over_or_put_back(task, outputs, room_ms)
                if rest:
                    task.put_back(rest)
                    unsent.append(task)
                    held, room_ms = True, 0
        self.unsent = unsent
        if sent:
            self._clients.producer.poll()
            self._sender.settle()
        self._hold(held or bool(self._clients.producer.letters))
        return sent

    def _take(self, task: Task) -> list[Emitted]:
        """Return the outputs of the task that may be sent now, and take them from the task."""
        return task.take_outputs()

    def _hand_over_or_put_back(self, task: Task, outputs: Sequence[Emitted], room_ms: int) -> Sequence[Emitted]:
        """Call `_hand_over`, and put the outputs back if it fails. If no transaction could begin for them, the task
        isn't rolled back because of this error, so that its next commit must have them."""
        try:
            self._sender.must_be_in_session()
            return self._hand_over(task, outputs, room_ms)
        except BaseException:
            task.put_back(outputs)
            raise

    def _hold(self, held: bool) -> None:
        """Note whether outputs wait for room, so that processing must wait, too."""
        self.client_queue_full = held

    def send(self, commit_set: CommitSet, within_ms: int) -> Steps[bool]:
        """Send the outputs of these boundaries, then the changelog records of stores that log at a commit. Under
        `at_least_once` these records are sent only when Kafka has acknowledged the outputs. So a crash in between loses
        no result that such a store has already removed. These records never wait among a task's outputs. When a commit
        fails, it is thawed or rolled back, and the next commit makes the records once more."""
        outputs: dict[Task, Sequence[Emitted]] = {task: boundary.outputs for task, boundary in commit_set.items()}
        try:
            logs: dict[Task, Sequence[Emitted]] = {task: [*at.changelog()] for task, at in commit_set.items()}
            if self._clients.producer.undecided:
                yield from self._sender.decided()
            complete = yield from self._sender.push_letters(within_ms)
            complete = complete and (yield from self._push_all(outputs, within_ms))
            if complete and any(logs.values()) and not self._config.exactly_once:
                yield from self._sender.flush()
            complete = complete and (yield from self._push_all(logs, within_ms))
        finally:  # if the outputs of one task can't be sent, those of the others are put back, too
            for task, rest in outputs.items():
                if rest:
                    task.put_back(rest)
        return complete

    def _push_all(self, unsent: dict[Task, Sequence[Emitted]], within_ms: int) -> Steps[bool]:
        """Send the outputs of each task, and leave in `unsent` those that couldn't be sent. Returns True if none is
        left."""
        for task, outputs in unsent.items():
            if outputs:
                self._sender.must_be_in_session()
                unsent[task] = yield from self._push(task, outputs, within_ms)
                if unsent[task]:
                    return False
        return True

    def _push(self, task: Task, outputs: Sequence[Emitted], within_ms: int) -> Steps[Sequence[Emitted]]:
        """Send the outputs, and wait for a slow Kafka. Returns the rest, when no output has left for `within_ms`."""
        before, wait_ms, until_ms = len(outputs) + 1, 0, 0
        while True:
            if len(outputs) < before:
                before = len(outputs)
                until_ms = self._clock.monotonic_ms() + int(min(within_ms, self._retry_policy.rest_ms()))
            left_ms = max(0, until_ms - self._clock.monotonic_ms())
            outputs = self._hand_over(task, outputs, min(wait_ms, left_ms))
            if not outputs or (len(outputs) == before and not left_ms):
                return outputs
            wait_ms = yield

    def _hand_over(self, task: Task, outputs: Sequence[Emitted], wait_ms: int) -> Sequence[Emitted]:
        """Send the outputs. Returns those for which the client had no room within `wait_ms`."""
        if self._given_up:
            outputs = self._without_given_up(task.id, outputs)
            if not self._sender.send_letters(wait_ms):
                return outputs
        return self._sender.hand_over(task.id, outputs, task.changelog_topics, wait_ms)

    def _without_given_up(self, task: TaskId, outputs: Sequence[Emitted]) -> list[Emitted]:
        """Return the outputs without those that a handler has skipped after a transaction had failed because of
        them."""
        kept = []
        for output in outputs:
            marks = (_mark(task, output_of(output), timed) for timed in (True, False))
            given_up = next((self._given_up[mark] for mark in marks if mark in self._given_up), None)
            if given_up is None:
                kept.append(output)
            else:
                self._sender.write(task, given_up.letters)
                self.dropped[task] += not given_up.counted
                given_up.counted = True
        return kept

    def resend_unconfirmed(self, tasks: Mapping[TaskId, Task]) -> None:
        """Do nothing: no outputs are kept, and tasks make their outputs once more."""

    def forget_all_but(self, tasks: Collection[TaskId]) -> None:
        self._clients.producer.forget_all_but(tasks)
        self._given_up = {mark: given_up for mark, given_up in self._given_up.items() if mark[0] in tasks}
        for id in self.dropped.keys() - tasks:
            del self.dropped[id]

    def flush(self) -> Steps[None]:
        return self._sender.flush()

    def leave_out(self, refused: Refused, letters: Sequence[Output], error: ProductionError) -> None:
        if refused.sent and self._clients.producer.transactional:
            self._given_up[_mark(refused.task, refused.output, is_about_its_time(refused))] = GivenUp(letters)
            raise UnsentError(f"{error}; its transaction is made again without it", [refused.task])
        self._sender.write(refused.task, letters)
        self.dropped[refused.task] += 1

    def send_again(self, refused: Refused, error: ProductionError) -> None:
        raise UnsentError(f"{error}; its records are processed again", [refused.task])

    def all_decided(self) -> None:
        """Do nothing: no transaction waits for the handler's decisions."""

    def take_changelog_offsets(self, task: Task) -> dict[str, int]:
        self._given_up = {mark: given_up for mark, given_up in self._given_up.items() if mark[0] != task.id}
        return take_changelog_offsets(self._clients.producer, task)


def _mark(task: TaskId, output: Output, timed: bool) -> _Mark:
    """Return the mark of the output. Without `timed` its timestamp doesn't count: a wall-clock punctuation sets another
    timestamp each time."""
    headers: Any = tuple(output.headers or ())
    return task, output._replace(headers=headers, timestamp=output.timestamp if timed else UNKNOWN_TIMESTAMP)
