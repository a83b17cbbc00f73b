"""`CommittedCollector`: the outputs of all tasks of an instance, by commit interval, until Kafka has confirmed them.

    processing threads --> task's buffer --taken--> this interval --cut--> handed over, flushed --> confirmed: gone
                           (after a cut it            | sinks flow as they come;   | the transaction failed,
                            is the next interval's)   v upserts wait for the cut   v the member holds: again

*Guarantees*: those of `BufferedCollection`. Nothing of an interval is handed over before the former one is confirmed
under exactly once; at least once nothing that goes to a changelog. An output that a handler has given up is left out of
its interval for good, however often that is sent again, and counts once. No call of the producer takes more than
`CHUNK` outputs.
*Assumes*: driven by the polling thread. Whatever was taken of a task belongs to the task's epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from milestones.common.errors import LeftOutError, ProcessingError, SendAgainError
from milestones.common.memory import Account
from milestones.common.topology.handlers import Action
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.m4_polling_thread.collection import AskedBeside
from milestones.m5_committed_collector.intervals import TaskIntervals

if TYPE_CHECKING:
    from milestones.baseline.refused_outputs import Answer, ProductionHandler
    from milestones.common.errors import ProductionError
    from milestones.common.records import TaskId
    from milestones.common.steps import Steps
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Sending

CHUNK, MOST = 2_000, 20_000
"""Outputs that are handed over at once, and in a turn: 2 ms and 20 ms, about."""


class CommittedCollector(BufferedCollection):
    """*Owns*: the intervals of the tasks. *Receives*: answers of the user's handler. For metrics: `sent_again` outputs.
    """

    sent_again: int

    def __init__(self, context: ThreadContext, clients: Sending, handler: ProductionHandler | None = None) -> None:
        """`handler`: by default the user's is asked by handler threads."""
        super().__init__(context, clients, handler or AskedBeside(context))
        self._memory = context.memory
        self._intervals: dict[TaskId, TaskIntervals] = {}
        self._left_out: LeftOutError | None = None
        self._refused_since_ms: dict[TaskId, int] = {}
        self.sent_again = 0

    def _of(self, task: Task) -> TaskIntervals:
        """What is kept of the task: nothing of an epoch before."""
        kept = self._intervals.get(task.id)
        if kept is None or not kept.are_of(task):
            kept = self._intervals[task.id] = TaskIntervals(task)
        return kept

    # -- the interval that is open

    def collect(self, tasks: Iterable[Task]) -> bool:
        self._take_answers()
        self._make_again_without()
        held = self._must_wait_for_answers() or not self._send_letters(0)
        sent, unsent, left = held, [], MOST
        for task in tasks:
            kept = self._of(task)
            if not self._may_be_taken(task, kept):
                continue
            kept.add(task.take_outputs())
            if kept.waiting and not held:
                sent, before = True, left
                left -= self._hand_over_some(task, kept, left)
                held = left == before or left <= 0
            if kept.waiting:
                unsent.append(task)
            self._bound(task, kept)
        self.unsent = unsent
        if sent:
            self._clients.producer.poll()
            self._settle()
        return sent

    def _may_be_taken(self, task: Task, kept: TaskIntervals) -> bool:
        return self._may_be_sent(task) and not (kept.cut and self._config.exactly_once)

    def _hand_over_some(self, task: Task, kept: TaskIntervals, most: int) -> int:
        """Hand over at most so many, as far as there is room; how many."""
        handed = 0
        self._write(task.id, kept.take_letters())
        while handed < most and (chunk := kept.of_the_next(CHUNK)):
            self._must_be_in_session()
            taken = len(chunk) - len(self._hand_over(task, chunk, 0))
            kept.handed_over(taken)
            handed += taken
            if taken < len(chunk):
                break
        return handed

    def _bound(self, task: Task, kept: TaskIntervals) -> None:
        """From half of the bound on have the task committed: only that frees what is kept."""
        if 2 * kept.tell() >= self._memory.part(Account.OUTPUTS, among=len(self._intervals)):
            task.request_commit()

    # -- the interval that was cut

    def send(self, commit_set: CommitSet, within_ms: int) -> Steps[bool]:
        for task, boundary in commit_set.items():
            kept = self._of(task)
            kept.cut_at(boundary)
            kept.tell()
            self._write(task.id, kept.take_letters())
        if self._clients.producer.undecided:
            yield from self._decided()
        complete = yield from self._push_letters(within_ms)
        return complete and (yield from self._push_intervals(commit_set, within_ms))

    def _push_intervals(self, tasks: Iterable[Task], within_ms: int) -> Steps[bool]:
        """Hand over what is left of the tasks' intervals, `CHUNK` outputs in a step; False when nothing has left for
        `within_ms`."""
        handed, wait_ms, until_ms = 0, 0, self._until_ms(within_ms)
        for task in tasks:
            kept = self._of(task)
            while chunk := kept.of_the_cut(CHUNK):
                self._must_be_in_session()
                left_ms = max(0, until_ms - self._clock.monotonic_ms())
                taken = len(chunk) - len(self._hand_over(task, chunk, min(wait_ms, left_ms)))
                kept.handed_over(taken)
                handed, wait_ms = handed + taken, 0
                if taken:
                    until_ms = self._until_ms(within_ms)
                elif not left_ms:
                    return False
                if not taken or handed >= CHUNK:
                    handed, wait_ms = 0, (yield)
        return True

    def _until_ms(self, within_ms: int) -> int:
        return self._clock.monotonic_ms() + int(min(within_ms, self._retry_policy.rest_ms()))

    def take_changelog_offsets(self, task: Task) -> dict[str, int]:
        kept = self._of(task)
        kept.confirmed()
        kept.tell()
        self._refused_since_ms.pop(task.id, None)
        return super().take_changelog_offsets(task)

    # -- what fails

    def send_again(self, tasks: Mapping[TaskId, Task]) -> None:
        self._left_out = self._full_since_ms = None
        self._intervals = {id: kept for id, kept in self._intervals.items() if id in tasks and kept.are_of(tasks[id])}
        for kept in self._intervals.values():
            self.sent_again += kept.again()

    def _follow(self, answer: Answer) -> None:
        """Leave the output out of its interval, if the handler says so; else raise."""
        question, response = answer.question, answer.response
        refused, error = question.refused, question.error
        if isinstance(response, ProcessingError) or response.action is not Action.CONTINUE:
            self._must_be_in_time(refused.task, error)
            if isinstance(response, ProcessingError):
                raise response
            if response.action is Action.RETRY and question.context.retriable:
                raise SendAgainError(f"{error}; it is sent again", [refused.task])
            raise error
        if not question.may_be_left_out:
            raise error
        letters = self._letters_for(refused, response)
        kept = self._intervals.get(refused.task)
        if kept is not None:
            kept.leave_out(refused.output, letters)
        self.dropped[refused.task] += 1
        if refused.sent and self._clients.producer.transactional:
            self._left_out = LeftOutError(f"{error}; its transaction is made again without it", [refused.task])
        else:
            self._write(refused.task, letters)

    def _must_be_in_time(self, task: TaskId, error: ProductionError) -> None:
        """Raise when a handler has had outputs of the task sent again for `task_timeout_ms`."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._refused_since_ms.setdefault(task, now_ms) > self._config.task_timeout_ms:
            raise error

    def _settle(self, wait_ms: int = 0) -> bool:
        sent = super()._settle(wait_ms)
        self._make_again_without()
        return sent

    def _make_again_without(self) -> None:
        """Once all that was refused is decided about, have the transaction made again without what was left out."""
        if self._left_out is not None and not self._clients.producer.undecided:
            error, self._left_out = self._left_out, None
            raise error

    def let_go(self, tasks: Collection[TaskId]) -> None:
        super().let_go(tasks)
        for memory in (self._intervals, self._refused_since_ms):
            for id in memory.keys() - tasks:
                del memory[id]
