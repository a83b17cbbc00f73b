"""The outputs of one task's commit intervals, kept until Kafka has confirmed them.

    outputs:    | confirmed (dropped) | of the interval that was cut | of the next one | upserts, which wait for a cut
                                      ^ handed over up to here, or further
    changelog:                          made of the frozen layer, once the outputs before the cut are handed over

*Guarantees*: outputs are handed over in the order in which the task has made them. After `again` all unconfirmed
outputs are handed over once more, except those that were left out.
*Assumes*: one owner, the thread that sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from milestones.common.records import Emitted, Output, emitted_bytes
from milestones.m5_committed_collector.upserts import WaitingOutputs, upsert_sinks

if TYPE_CHECKING:
    from milestones.common.task.boundary import PendingCommit
    from milestones.common.task.task import Task

NOTHING: Iterator[Emitted] = iter(())


class TaskIntervals:
    """The interval of a task that was cut, if any, and the next one, of the task's present epoch. `bytes`: memory of
    both, as of the last `tell`."""

    def __init__(self, task: Task) -> None:
        self.bytes: int = 0
        self._task, self._epoch = task, task.epoch
        self.boundary: PendingCommit | None = None
        self._letters: list[Output] = []
        self._next_letters: list[Output] = []
        self._outputs: list[Emitted] = []
        self._waiting = WaitingOutputs(upsert_sinks(task.subtopology))
        self._handed = self._suppressed = 0
        self._letters_wait = False
        self._cut: int | None = None
        self._changelog = NOTHING
        self._chunk: list[Emitted] = []

    def __bool__(self) -> bool:
        """Whether anything is kept."""
        return bool(self._outputs or self.letters or self.boundary is not None)

    def are_of(self, task: Task) -> bool:
        """Whether the task is the same, and wasn't rolled back since."""
        return self._task is task and self._epoch == task.epoch

    @property
    def waiting(self) -> bool:
        """Whether outputs wait to be handed over. Changelog records, and outputs that wait for the cut, don't count."""
        return self._handed < len(self._outputs)

    @property
    def begun(self) -> bool:
        """Whether there are outputs of the interval that is open."""
        return bool(self._waiting.outputs) or len(self._outputs) > (self._cut or 0)

    def request_commit(self) -> None:
        """Ask for the commit of the interval that is open, if it has begun."""
        if self.begun:
            self._task.request_commit()

    @property
    def letters(self) -> list[Output]:
        """The dead letters for outputs that were left out."""
        return [*self._letters, *self._next_letters]

    def add(self, outputs: Sequence[Emitted]) -> None:
        """Take what finished records have put out."""
        self._outputs += self._waiting.let_through(outputs)

    @property
    def cut(self) -> bool:
        """Whether an interval was cut that isn't confirmed."""
        return self.boundary is not None

    def cut_at(self, boundary: PendingCommit) -> int:
        """End the interval at this boundary; one that was cut there before stays as it is. The number of upserts that
        are left out of it."""
        if self.boundary is boundary:
            return 0
        self.boundary, before = boundary, self._suppressed
        self.add(boundary.outputs)
        self._outputs += self._waiting.take()
        self._cut = len(self._outputs)
        self._letters, self._next_letters = self.letters, []
        self._begin_changelog()
        self._suppressed = self._waiting.suppressed
        return self._suppressed - before

    def _begin_changelog(self) -> None:
        self._chunk = []
        self._changelog = NOTHING if self.boundary is None else iter(self.boundary.changelog())

    def outputs_of_the_cut(self, most: int) -> Sequence[Emitted]:
        """The next outputs of the interval that was cut, at most `most`, without its changelog records."""
        return () if self._cut is None else self._outputs[self._handed : min(self._handed + most, self._cut)]

    def of_the_cut(self, most: int) -> Sequence[Emitted]:
        """The next outputs of the interval that was cut, at most `most`. Its changelog records come last."""
        if outputs := self.outputs_of_the_cut(most):
            return outputs
        if self._cut is not None:
            self._chunk = self._chunk or list(islice(self._changelog, most))
        return self._chunk

    def of_the_next(self, most: int) -> Sequence[Emitted]:
        """The next outputs of the open interval, at most `most`. None until the interval before is handed over."""
        if self._chunk or (self._cut is not None and self._handed < self._cut):
            return ()
        return self._outputs[self._handed : self._handed + most]

    def handed_over(self, count: int) -> None:
        """Note that the producer has the first `count` of these outputs."""
        if self._chunk:
            del self._chunk[:count]
        else:
            self._handed += count

    def again(self) -> int:
        """Mark everything that isn't confirmed as unsent. Returns how many outputs had been handed over, without
        changelog records."""
        handed, self._handed = self._handed, 0
        self._letters_wait = True
        self._begin_changelog()
        return handed

    def take_letters(self) -> Sequence[Output]:
        """The dead letters that are to be handed over again: with outputs of the task, or its offsets, as those of
        another task may be in a transaction of their own."""
        wait, self._letters_wait = self._letters_wait, False
        return self.letters if wait else ()

    def leave_out(self, output: Output, letters: Sequence[Output]) -> None:
        """Hand over the dead letters in place of this output from now on."""
        at = self._place_of(output)
        of_the_cut = self._cut is not None and (at is None or at < self._cut)
        (self._letters if of_the_cut else self._next_letters).extend(letters)
        if at is None:
            return
        del self._outputs[at]
        self._handed -= at < self._handed
        if self._cut is not None:
            self._cut -= at < self._cut

    def _place_of(self, output: Output) -> int | None:
        """A report of what was refused may lack partition, time, headers and node."""
        if output in self._outputs:
            return self._outputs.index(output)
        known = (output.topic, output.key, output.value)
        places = (at for at, (topic, _, key, value, *_) in enumerate(self._outputs) if (topic, key, value) == known)
        return next(places, None)

    def confirmed(self) -> None:
        """Forget the interval that was cut, with the dead letters."""
        if self._cut is not None:
            del self._outputs[: self._cut]
            self._handed = max(0, self._handed - self._cut)
        self.boundary, self._cut, self._letters = None, None, []
        self._begin_changelog()

    def tell(self) -> None:
        """Count how much is kept of the task, about, and tell the task."""
        self.bytes = emitted_bytes(self._outputs) + emitted_bytes(self._waiting.outputs)
        self._task.set_retained_output_bytes(self.bytes)
