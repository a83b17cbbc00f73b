"""`CommitIsolation` decides whose outputs may be in the next transaction, after a transaction of several tasks has
failed because Kafka refused some outputs, or didn't take them in time.

*Why this way*: the client doesn't say whose record was refused. So each of these tasks, the *suspects*, gets
transactions of its own, in turns. All other tasks share a turn. A task is a suspect until it has committed the work
that it had done when the transaction failed. When Kafka refuses the record once more, its task is alone in the
transaction, and only this task is rolled back.

*Guarantees*: a turn ends only while no transaction is open. A suspect that has nothing to commit (because it is paused
or in a long call) has no turn, and delays nothing. A suspect that has a turn and isn't committed delays the others for
`TURN_MS`. If a suspect's outputs may be taken later, the pauses between its turns grow.
*Assumes*: the polling thread makes all calls. In each turn it begins a commit as soon as there is anything to commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition

TURN_MS, OTHERS_MS = 500, 50
"""A turn without a commit ends after this time: `TURN_MS` for a suspect's turn, `OTHERS_MS` for that of all other
tasks."""

FIRST_REST_MS, LONGEST_REST_MS = 100, 2_000
"""The pause between two turns of a suspect whose outputs Kafka may take later."""

Reached = Mapping["TopicPartition", int]


class Suspicion(NamedTuple):
    """What is known of a suspect. `reached`: the positions in its inputs when its transaction failed. `since_ms`: since
    when it is a suspect. A suspect pauses for `rest_ms`, until the time `again_ms`. It has no turn in the pause."""

    reached: Reached
    since_ms: int
    again_ms: int = 0
    rest_ms: int = 0


class CommitIsolation:
    """Gives the suspects their turns. *Owns*: the turns and the suspicions."""

    def __init__(self) -> None:
        self._suspicions: dict[TaskId, Suspicion] = {}
        self._turns: deque[TaskId | None] = deque()  # None: all other tasks
        self._since_ms: int | None = None
        self._committed = self._kept = False

    def __bool__(self) -> bool:
        return bool(self._suspicions)

    def begin(self, reached: Mapping[TaskId, Reached], now_ms: int, *, rests: bool = False) -> None:
        """Suspect these tasks. `reached`: their positions in their inputs when their transaction failed. Tasks that are
        suspects already stay suspects. `rests`: Kafka may take their outputs later, so they pause between their
        turns."""
        for task, at in reached.items():
            before = self._suspicions.get(task, Suspicion(at, now_ms))
            rest_ms = min(max(FIRST_REST_MS, 2 * before.rest_ms), LONGEST_REST_MS) if rests else 0
            self._suspicions[task] = Suspicion(at, before.since_ms, now_ms + rest_ms, rest_ms)
        self._turns = deque([None, *sorted(self._suspicions)])
        self._since_ms, self._committed, self._kept = now_ms, False, False

    def suspected_ms(self, task: TaskId, now_ms: int) -> int | None:
        """Return how long the task has been a suspect; None if it isn't one."""
        suspicion = self._suspicions.get(task)
        return None if suspicion is None else now_ms - suspicion.since_ms

    def admits(self, task: TaskId) -> bool:
        if not self._suspicions:
            return True
        turn = self._turns[0]
        return task == turn if turn is not None else task not in self._suspicions

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that Kafka has confirmed a commit."""
        self._committed = True
        turn = self._turns[0] if self._suspicions else None
        if turn not in self._suspicions:  # the turn of all other tasks, or of a task that failed for good
            return
        if all(p in offsets and offsets[p].offset >= at for p, at in self._suspicions[turn].reached.items()):
            self.clear(turn)

    def extend_turn(self) -> None:
        """Extend the turn of the present suspect: a new producer will find out which output is refused. The turn begins
        anew when that producer is ready. The turn isn't skipped while the suspect is being rolled back."""
        self._since_ms, self._kept = None, True

    def clear(self, task: TaskId) -> None:
        """Forget the suspicion of the task, as Kafka took its outputs or the task is gone."""
        self._suspicions.pop(task, None)

    def stop(self) -> None:
        """End all suspicions."""
        self._suspicions.clear()

    def run_once(self, now_ms: int, has_work: Callable[[TaskId], bool]) -> None:
        """Begin the next turn, if the present one is over. Call it only while no transaction is open. `has_work`:
        returns True if a task has anything to commit."""
        if not self._suspicions:
            return
        turn = self._turns[0]
        self._since_ms = now_ms if self._since_ms is None else self._since_ms
        gone = turn is not None and turn not in self._suspicions
        idle = gone or (turn is not None and not (self._kept or self._is_ready(turn, now_ms, has_work)))
        most_ms = OTHERS_MS if turn is None else TURN_MS
        if not (self._committed or idle or now_ms - self._since_ms >= most_ms):
            return
        self._turns.rotate(-1)
        self._turns = deque(turn for turn in self._turns if turn is None or turn in self._suspicions)
        while (turn := self._turns[0]) is not None and not self._is_ready(turn, now_ms, has_work):
            self._turns.rotate(-1)
        self._since_ms, self._committed, self._kept = now_ms, False, False

    def _is_ready(self, task: TaskId, now_ms: int, has_work: Callable[[TaskId], bool]) -> bool:
        return now_ms >= self._suspicions[task].again_ms and has_work(task)
