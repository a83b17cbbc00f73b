"""`TaskIntervals` keeps the outputs of one task's commit intervals until Kafka has confirmed them.

    outputs:    | confirmed (dropped) | of the interval that was cut | of the next one | upserts, which wait for a cut
                                      ^ handed over up to here, or further
    changelog:                          made from the frozen layer, once the outputs before the cut are handed over

*Guarantees*: outputs are handed over in the order in which the task has made them. After `again` all unconfirmed
outputs are handed over once more, except those that were left out. *Assumes*: the thread that sends outputs makes all
calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from milestones.common.records import KEY, TOPIC, VALUE, Emitted, Output, emitted_bytes, emitted_of
from milestones.m5_committed_collector.upserts import WaitingOutputs, upsert_sinks

if TYPE_CHECKING:
    from milestones.common.task.boundary import PendingCommit
    from milestones.common.task.task import Task

NOTHING: Iterator[Emitted] = iter(())

_CONTENT = itemgetter(TOPIC, KEY, VALUE)


class TaskIntervals:
    """The outputs of two intervals of a task: one that was cut and isn't confirmed, if there is one, and the open one.
    Both belong to the task's present epoch. `bytes`: the memory of both, when `tell` was last called."""

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
        """Return whether any output, dead letter or boundary is kept."""
        return bool(self._outputs or self.letters or self.boundary is not None)

    def are_of(self, task: Task) -> bool:
        """Return whether the intervals belong to this task object, and it wasn't rolled back since."""
        return self._task is task and self._epoch == task.epoch

    @property
    def waiting(self) -> bool:
        """True if outputs wait to be handed over. Changelog records, and outputs that wait for the cut, don't count."""
        return self._handed < len(self._outputs)

    @property
    def begun(self) -> bool:
        """True if the open interval has outputs."""
        return bool(self._waiting.outputs) or len(self._outputs) > (self._cut or 0)

    def request_commit(self) -> None:
        """Ask for a commit, if the open interval has outputs."""
        if self.begun:
            self._task.request_commit()

    @property
    def letters(self) -> list[Output]:
        """The dead letters in place of outputs that were left out."""
        return [*self._letters, *self._next_letters]

    def add(self, outputs: Sequence[Emitted]) -> None:
        """Add the outputs of finished records to the open interval."""
        self._outputs += self._waiting.let_through(outputs)

    @property
    def cut(self) -> bool:
        """True if an interval was cut and isn't confirmed."""
        return self.boundary is not None

    def cut_at(self, boundary: PendingCommit) -> int:
        """End the open interval at this boundary; do nothing if it was cut there before. Returns the number of upserts
        that later records have replaced in the interval."""
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
        """Return the next outputs of the interval that was cut, at most `most`, without its changelog records."""
        return () if self._cut is None else self._outputs[self._handed : min(self._handed + most, self._cut)]

    def of_the_cut(self, most: int) -> Sequence[Emitted]:
        """Return the next outputs of the interval that was cut, at most `most`. Its changelog records come last."""
        if outputs := self.outputs_of_the_cut(most):
            return outputs
        if self._cut is not None:
            self._chunk = self._chunk or list(islice(self._changelog, most))
        return self._chunk

    def of_the_next(self, most: int) -> Sequence[Emitted]:
        """Return the next outputs of the open interval, at most `most`; none until the interval before is handed
        over."""
        if self._chunk or (self._cut is not None and self._handed < self._cut):
            return ()
        return self._outputs[self._handed : self._handed + most]

    def handed_over(self, count: int) -> None:
        """Note that the producer has the first `count` of the outputs that were returned last."""
        if self._chunk:
            del self._chunk[:count]
        else:
            self._handed += count

    def mark_unsent(self) -> int:
        """Mark all unconfirmed outputs as unsent. Returns how many of them had been handed over, without changelog
        records."""
        handed, self._handed = self._handed, 0
        self._letters_wait = True
        self._begin_changelog()
        return handed

    def take_letters(self) -> Sequence[Output]:
        """Return the dead letters that must be handed over once more, and clear the mark. Dead letters are sent with
        outputs or offsets of the same task, as another task may be in another transaction."""
        wait, self._letters_wait = self._letters_wait, False
        return self.letters if wait else ()

    def leave_out(self, output: Output, letters: Sequence[Output]) -> None:
        """Leave this output out from now on, and hand over these dead letters in its place."""
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
        """Find the output's place. A report of a refused output may lack its partition, time, headers and node."""
        emitted = emitted_of(output)
        if emitted in self._outputs:
            return self._outputs.index(emitted)
        known = _CONTENT(emitted)
        return next((at for at, one in enumerate(self._outputs) if _CONTENT(one) == known), None)

    def confirmed(self) -> None:
        """Forget the interval that was cut, with the dead letters."""
        if self._cut is not None:
            del self._outputs[: self._cut]
            self._handed = max(0, self._handed - self._cut)
        self.boundary, self._cut, self._letters = None, None, []
        self._begin_changelog()

    def tell(self) -> None:
        """Report to the task about how many bytes of its outputs are kept."""
        self.bytes = emitted_bytes(self._outputs) + emitted_bytes(self._waiting.outputs)
        self._task.set_retained_output_bytes(self.bytes)
