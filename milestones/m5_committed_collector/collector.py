"""`CommittedCollector` keeps the outputs of all tasks, by commit interval, until Kafka has confirmed them.

    processing threads --> task's buffer --taken--> this interval --cut--> handed over, flushed --> confirmed: dropped
                           (after a cut, the          | sinks' outputs flow;       | the transaction failed, and
                            next interval)            v upserts wait for the cut   v the member holds: sent once more

*Guarantees*: everything that `OutputSender` guarantees. Under `exactly_once_v2` no output of an interval is handed over
before the interval before it is confirmed. Under `at_least_once` only changelog records wait for this confirmation.
Changelog records also wait until Kafka has all outputs of their interval, so that no crash leaves state that is ahead
of its outputs. An output that a handler has skipped is left out of its interval, however often the interval is resent,
and is counted once. No call of the producer takes more than `CHUNK` outputs.
*Assumes*: the polling thread makes all calls. All outputs that are taken from a task belong to the task's present
epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from milestones.common.errors import LeftOutError, SendAgainError
from milestones.common.memory import Account
from milestones.common.testing.faults import reach
from milestones.m4_polling_thread.collection import ThreadedProductionHandler
from milestones.m5_committed_collector.intervals import TaskIntervals
from milestones.shared_parts.sending import OutputSender, take_changelog_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from milestones.common.errors import ProductionError
    from milestones.common.kafka.refusals import Refused
    from milestones.common.records import Emitted, Output, TaskId
    from milestones.common.steps import Steps
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Sending
    from milestones.shared_parts.refused_outputs import ProductionHandler

    NextOf = Callable[[TaskIntervals, int], Sequence[Emitted]]

CHUNK, MOST = 2_000, 20_000
"""The numbers of outputs that are handed over in one go, and in one turn. They take about 2 ms and 20 ms."""


class CommittedCollector:
    """*Owns*: the intervals of the tasks. *Receives*: answers of the user's handler. `dropped` and `unsent` as in
    `OutputCollection`."""

    client_queue_full = False
    """Never set: a task whose buffer is full waits, and no other task does."""

    sent_again: int
    suppressed: int

    def __init__(self, context: ThreadContext, clients: Sending, handler: ProductionHandler | None = None) -> None:
        """`handler`: by default, handler threads ask the user's handler."""
        self._sender = OutputSender(context, clients, self, handler or ThreadedProductionHandler(context))
        self._config, self._clients, self._clock = context.config, clients, context.clock
        self._retry_policy, self._memory = context.retry_policy, context.memory
        self._intervals: dict[TaskId, TaskIntervals] = {}
        self._left_out: LeftOutError | None = None
        self._refused_since_ms: dict[TaskId, int] = {}
        self.dropped: Counter[TaskId] = Counter()
        self.unsent: Collection[Task] = ()
        self.sent_again = self.suppressed = 0

    def _of(self, task: Task) -> TaskIntervals:
        """Return the intervals of the task. Intervals of an earlier epoch are dropped."""
        kept = self._intervals.get(task.id)
        if kept is None or not kept.are_of(task):
            kept = self._intervals[task.id] = TaskIntervals(task)
        return kept

    # -- the interval that is open

    def collect(self, tasks: Iterable[Task]) -> bool:
        self._sender.take_answers()
        held = self._sender.must_wait_for_answers() or not self._sender.send_letters(0)
        sent, unsent, left = held, [], MOST
        for task in tasks:
            kept = self._of(task)
            if not self._may_be_taken(task, kept):
                continue
            self._add(task, kept)
            if kept.waiting and not held:
                sent, before = True, left
                left -= self._hand_over_some(task, kept, left)
                held = left == before or left <= 0
            if kept.waiting:
                unsent.append(task)
            kept.tell()
        self.unsent = unsent
        self._bound()
        if sent:
            self._clients.producer.poll()
            self._sender.settle()
        return sent

    def _add(self, task: Task, kept: TaskIntervals) -> None:
        begun = kept.begun
        kept.add(task.take_outputs())
        if kept.begun and not begun:
            reach("interval.first-record")

    def _may_be_taken(self, task: Task, kept: TaskIntervals) -> bool:
        """Return whether the task's outputs can be taken now. Under `exactly_once_v2` a transaction gets an output only
        if it also gets the offsets of the output's task."""
        return not self._config.exactly_once or (task.committable and not kept.cut)

    def _hand_over_some(self, task: Task, kept: TaskIntervals, most: int) -> int:
        """Hand over about `most` outputs, in whole chunks, as far as the producer has room. Returns their number."""
        handed = 0
        self._sender.write(task.id, kept.take_letters())
        while handed < most and (chunk := kept.of_the_next(CHUNK)):
            self._sender.must_be_in_session()
            taken = len(chunk) - len(self._sender.hand_over(task.id, chunk, task.changelog_topics, 0))
            kept.handed_over(taken)
            handed += taken
            if taken < len(chunk):
                break
        return handed

    def _bound(self) -> None:
        """Ask for a commit of all open intervals if half of the bound is kept, as only a commit frees kept outputs."""
        if 2 * sum(kept.bytes for kept in self._intervals.values()) >= self._memory.part(Account.OUTPUTS):
            for kept in self._intervals.values():
                kept.request_commit()

    # -- the interval that was cut

    def send(self, commit_set: CommitSet, within_ms: int) -> Steps[bool]:
        for task, boundary in commit_set.items():
            kept = self._of(task)
            self.suppressed += kept.cut_at(boundary)
            kept.tell()
            self._sender.write(task.id, kept.take_letters())
        if self._clients.producer.undecided:
            yield from self._sender.decided()
        if not (yield from self._sender.push_letters(within_ms)):
            return False
        if not self._config.exactly_once and any(task.changelog_topics for task in commit_set):
            if not (yield from self._push(commit_set, within_ms, TaskIntervals.outputs_of_the_cut)):
                return False
            yield from self._sender.flush()
        return (yield from self._push(commit_set, within_ms, TaskIntervals.of_the_cut))

    def _push(self, tasks: Iterable[Task], within_ms: int, next_of: NextOf) -> Steps[bool]:
        """Hand over the outputs that `next_of` takes from the tasks' intervals, `CHUNK` in a step. Returns False if the
        producer has taken none for `within_ms`."""
        wait_ms, until_ms, rest = 0, self._until_ms(within_ms), CHUNK
        for task in tasks:
            kept = self._of(task)
            while chunk := next_of(kept, rest):
                self._sender.must_be_in_session()
                left_ms = max(0, until_ms - self._clock.monotonic_ms())
                left = self._sender.hand_over(task.id, chunk, task.changelog_topics, min(wait_ms, left_ms))
                taken = len(chunk) - len(left)
                kept.handed_over(taken)
                rest, wait_ms = rest - taken, 0
                if left and self._sender.must_wait_for_answers():
                    yield from self._sender.decided()  # the transaction has failed: more room wouldn't help
                if taken:
                    until_ms = self._until_ms(within_ms)
                elif not left_ms:
                    return False
                if left or rest <= 0:
                    wait_ms, rest = (yield), CHUNK
        return True

    def flush(self) -> Steps[None]:
        return self._sender.flush()

    def _until_ms(self, within_ms: int) -> int:
        return self._clock.monotonic_ms() + int(min(within_ms, self._retry_policy.rest_ms()))

    def take_changelog_offsets(self, task: Task) -> dict[str, int]:
        kept = self._of(task)
        kept.confirmed()
        kept.tell()
        self._refused_since_ms.pop(task.id, None)
        return take_changelog_offsets(self._clients.producer, task)

    # -- what fails

    def resend_unconfirmed(self, tasks: Mapping[TaskId, Task]) -> None:
        self._left_out = None
        self._sender.begin_anew()
        self._intervals = {id: kept for id, kept in self._intervals.items() if id in tasks and kept.are_of(tasks[id])}
        for kept in self._intervals.values():
            self.sent_again += kept.mark_unsent()

    def leave_out(self, refused: Refused, letters: Sequence[Output], error: ProductionError) -> None:
        kept = self._intervals.get(refused.task)
        if kept is not None:
            kept.leave_out(refused.output, letters)
        self.dropped[refused.task] += 1
        if refused.sent and self._clients.producer.transactional:
            self._left_out = LeftOutError(f"{error}; its transaction is made again without it", [refused.task])
        else:
            self._sender.write(refused.task, letters)

    def send_again(self, refused: Refused, error: ProductionError) -> None:
        """Ask for the outputs to be sent once more, during `task_timeout_ms`. After that the refusal is final."""
        now_ms = self._clock.monotonic_ms()
        since_ms = self._refused_since_ms.setdefault(refused.task, now_ms)
        if now_ms - since_ms > self._config.task_timeout_ms:
            raise error
        raise SendAgainError(f"{error}; it is sent again", [refused.task])

    def all_decided(self) -> None:
        """Raise the error that has the transaction repeated, without the outputs that were left out."""
        if self._left_out is not None:
            error, self._left_out = self._left_out, None
            raise error

    def forget_all_but(self, tasks: Collection[TaskId]) -> None:
        self._clients.producer.forget_all_but(tasks)
        for memory in (self._intervals, self._refused_since_ms, self.dropped):
            for id in memory.keys() - tasks:
                del memory[id]
