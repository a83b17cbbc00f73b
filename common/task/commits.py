"""The commits of one task: how a boundary is frozen, confirmed, and written to the engines.

    last boundary --freeze--> pending --confirmed--> to be applied --apply--> in the engines
                                 |
                                 +--thaw (at least once), or roll back

*Guarantees*: a `PendingCommit` is confirmed or thawed at most once, and not after a roll-back. A confirmed commit is
applied even after a roll-back. If the engines are busy, the whole commit waits, and the next `apply` writes all of it.
A commit's number is higher than all numbers committed before.
*Assumes*: one thread at a time freezes, confirms and thaws. Another thread may process records or call `apply` at the
same time.
*Why this way*: engines are written only after Kafka has confirmed, so that a crash never empties a store
([0005](../../docs/decisions/0005-write-after-confirmation.md)). Commits have numbers, as offsets alone don't prove that
Kafka made a commit: a commit in which only a punctuation wrote moves no offset. Boundaries of unanswered commits are
kept, as one of them may be the one that Kafka made. A roll-back then returns to this boundary, with the values that
operators remembered there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from milestones.common.errors import OwnershipError, StateBusyError, StateError
from milestones.common.records import UNKNOWN_TIMESTAMP, OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.state.refusals import Refusals
from milestones.common.state.storage import CommitMade
from milestones.common.state.times import is_time
from milestones.common.task.boundary import Boundary, PendingCommit, Position, RollbackPoint
from milestones.common.task.metadata import OffsetMetadata, highest, offset_entry, topic_entry

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.state.cells import Cells
    from milestones.common.task.buffers import InputBuffer
    from milestones.common.task.runner import Runner
    from milestones.common.task.task_context import TaskContext
    from milestones.common.task.task_stores import TaskStores
    from milestones.common.topology.nodes import SubTopology

log: Final = logging.getLogger(__name__)


class TaskCommits:
    """*Owns*: the pending commit, and the confirmed commit until it is applied. `committed`: the state that a roll-back
    returns to.
    """

    def __init__(
        self,
        task: TaskId,
        subtopology: SubTopology,
        buffers: Mapping[TopicPartition, InputBuffer],
        boundary: Boundary,
        runner: Runner,
        stores: TaskStores,
        cells: Cells,
        transactional_id: str,
        clock: Clock,
    ) -> None:
        self._task, self._subtopology, self._transactional_id = task, subtopology, transactional_id
        self._buffers, self._boundary, self._runner, self._stores = buffers, boundary, runner, stores
        self._cells, self._clock = cells, clock
        self._number = self._confirmed = 0
        self._others: Mapping[str, int] = {}
        """The entries that each commit writes once more. The time of an operator or store that the task no longer has
        is left out."""
        self.topic_ids: Mapping[str, int] = {}
        """The ids (`number_of`) of the topics to which the positions belong, by topic. Topics with an unknown id are
        left out."""
        self.written: frozenset[str] = frozenset()
        """The marks of the internal topics that the task writes to. Until these topics are known, the marks of the last
        commit."""
        self.pending: tuple[PendingCommit, RollbackPoint] | None = None
        self._unanswered: dict[int, RollbackPoint] = {}
        """The boundaries frozen since the last confirmed commit, by commit number. Kafka may have committed any of
        them."""
        self._to_apply: Mapping[str, int] | None = None
        self._made: CommitMade | None = None
        self._refusals = Refusals(clock, f"task {task}")
        self.incomplete: bool = False
        """True if a confirmed commit couldn't be written to the engines. The value stays True until the task is
        restored and started."""
        self.start_pends: bool = False
        """True if the positions at which the task began must be committed, even if a roll-back comes first: nothing
        else has stored them."""
        self.committed: RollbackPoint = self._progress()

    @property
    def known_number(self) -> int:
        """The number of the last commit that Kafka has confirmed. 0 before the first one."""
        return self._confirmed

    def know(self, known: Mapping[TopicPartition, OffsetMetadata]) -> None:
        """Continue the commit numbers and the entries of the committed metadata. Raises `OffsetMetadataError` if the
        entries are too long, as `make_room` does."""
        self._confirmed = max(self._confirmed, *(data.commit for data in known.values()))
        self._number = max(self._number, self._confirmed)
        self.written = self.written or frozenset().union(*(data.written for data in known.values()))
        others = highest(data.others for data in known.values())
        self._cells.know(others)
        self._others = {name: number for name, number in others.items() if not is_time(name)}
        self._without_times().check()

    def make_room(self) -> None:
        """Decide how many times the metadata of commits can carry. Call this method when all cells are made.

        Times for which there is no room share entries. Raises `OffsetMetadataError` if even the metadata without times
        would be longer than Kafka accepts. The metadata without times consists of the entries of other kept cells,
        those of another application, and the commit's own entries.
        """
        metadata = self._without_times()
        metadata.check()
        if self._cells.make_room(room := metadata.room()):
            log.warning(
                "task %s: its operators and stores have %d times, and the metadata of a committed offset has room for "
                "%d: times share entries, and after a restart each begins with the lowest time of its entry. So late "
                "records may be processed instead of dropped. Divide the sub-topology by repartition()",
                self._task, len(self._cells.times), room,
            )  # fmt: skip

    def _without_times(self) -> OffsetMetadata:
        entries = {**self._others, **dict.fromkeys(self._cells.kept_names, 0)}
        topics, offsets = {topic_entry(""): 0}, {offset_entry(""): 0}
        number, id = self._number + 1, self._transactional_id
        return OffsetMetadata(UNKNOWN_TIMESTAMP, number, id, entries, topics, offsets, self.written)

    def made_unanswered(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Return True if Kafka has made a commit that got no answer here, and that this process rolled back. The
        committed offsets show this, or the commit's number, as a commit of a punctuation alone moves no offset.

        If so, roll-backs return to the boundary of that commit, and operators remember the values that they had there.
        (`commit_outcome.outcome` asks before this.)
        """
        positions, numbers = self.committed.positions, [0]
        numbers += (OffsetMetadata.decode(at.metadata).commit for at in committed.values())
        moved = any(at.offset != positions[partition].offset for partition, at in committed.items())
        if not moved and max(numbers) <= self._confirmed:
            return False
        boundary = self._unanswered.get(max(numbers))
        if boundary is not None:
            self.committed = boundary
            self._cells.back(boundary.memory)
        return True

    def began(self) -> None:
        """Note that the input stands at the committed offsets, and that the stores are complete. The punctuation times
        stay as they were."""
        self.incomplete = False
        self.committed = replace(self._progress(), punctuations=self.committed.punctuations)
        self._cells.note_committed(self.committed.memory)

    def scheduled(self) -> None:
        """Note the punctuations that `init` has scheduled, so that they keep their times after each roll-back."""
        self.committed = replace(self.committed, punctuations=self._runner.punctuation_times())

    @property
    def applying(self) -> bool:
        """True if a confirmed commit isn't in the engines yet."""
        return self._to_apply is not None

    @property
    def to_apply(self) -> Mapping[str, int]:
        """The changelog offsets, by store, of the confirmed commit that isn't in the engines yet. Empty if there is
        none."""
        return self._to_apply or {}

    def needed(self) -> bool:
        """True if anything has changed since the last frozen boundary. Trailing control records alone count, too."""
        if self._boundary.changed or (self.start_pends and self.pending is None):
            return True
        progress = self.committed if self.pending is None else self.pending[1]
        return any(b.next_offset() != progress.positions[p].offset for p, b in self._buffers.items())

    def freeze(self, context: TaskContext) -> PendingCommit | None:
        """Freeze the last boundary and return it as a commit. Returns None if updates wait in a cache: the boundary
        can't be committed then."""
        if self.pending is not None or self.applying:
            raise OwnershipError(f"task {self._task}: commit {self._number} is still pending. This is a bug")
        boundary = self._boundary
        with boundary.lock:
            if self._runner.unflushed:
                return None
            progress = self._progress()
            outputs, boundary.outputs = boundary.outputs, []
            self._stores.freeze()
            boundary.changed = context.commit_requested = False
            epoch = boundary.epoch
        self._number += 1
        offsets = {partition: at.offset for partition, at in progress.positions.items()}
        metadata, log = self._metadata(progress), self._stores.log_frozen
        commit = PendingCommit(self._task, epoch, self._number, outputs, offsets, metadata, log)
        self.pending = commit, progress
        self._unanswered[commit.number] = progress
        return commit

    def _metadata(self, progress: RollbackPoint) -> dict[TopicPartition, str]:
        entries = {**self._others, **self._cells.to_keep(progress.memory)}
        number, id, written = self._number, self._transactional_id, self.written
        return {
            partition: OffsetMetadata(
                at.stream_time, number, id, entries, self._identity(partition.topic), self._of(partition, at), written
            ).encode()
            for partition, at in progress.positions.items()
        }

    def _of(self, partition: TopicPartition, at: Position) -> Mapping[str, int]:
        """Return the entry that names the offset to which the times belong. Empty if times share entries, as these are
        not exactly the times of the commit."""
        return {} if self._cells.share else {offset_entry(partition.topic): at.offset}

    def _identity(self, topic: str) -> Mapping[str, int]:
        return {topic_entry(topic): self.topic_ids[topic]} if topic in self.topic_ids else {}

    def _progress(self) -> RollbackPoint:
        positions = {p: Position(b.next_offset(), b.stream_time) for p, b in self._buffers.items()}
        return RollbackPoint(positions, self._runner.punctuation_times(), self._cells.values())

    def confirmed(self, commit: PendingCommit, changelog_offsets: Mapping[str, int]) -> None:
        """Note that Kafka has confirmed `commit`. `apply` writes it later."""
        self.committed = self._take(commit)
        self._cells.note_committed(self.committed.memory)
        self._unanswered.clear()
        self._confirmed = commit.number
        times = {partition: at.stream_time for partition, at in self.committed.positions.items()}
        self._made = CommitMade(commit.number, commit.offsets, times)
        self.start_pends = False
        offsets = dict(changelog_offsets)
        for spec in self._subtopology.stores:
            if spec.source_topic is not None:
                offsets[spec.name] = commit.offsets[TopicPartition(spec.source_topic, self._task.partition)]
        self._to_apply = offsets

    def apply(self, *, last: bool = False) -> None:
        """Write the confirmed commit, if there is one, to the engines.

        Raises `StateBusyError` while the engines are busy: repeat the call after the error's `pause_ms`. In the `last`
        call a busy engine raises a plain `StateError` instead. After each `StateError` other than `StateBusyError`, the
        stores must be restored.
        """
        offsets = self._to_apply
        if offsets is None:
            return
        self.incomplete, waits = True, False
        try:
            self._stores.applied(offsets, made=self._made)
            self._refusals.made()
            self.incomplete = False
        except StateBusyError as busy:
            if last:
                raise StateError(f"task {self._task}: {busy}") from busy
            busy.pause_ms = self._refusals.note(busy)
            self.incomplete, waits = False, True
            raise
        finally:
            if not waits:
                self._to_apply = None

    def write_waiting(self) -> None:
        """Write the commits that wait for the disk, if that is due. Raises `StateBusyError` or another `StateError`.
        The commits then still wait."""
        due_ms = self._stores.write_due_ms
        if due_ms is None or self._clock.monotonic_ms() < due_ms:
            return
        try:
            self._stores.write_waiting()
            self._refusals.made()
        except StateBusyError as busy:
            busy.pause_ms = self._refusals.note(busy)
            raise

    def is_pending(self, commit: PendingCommit) -> bool:
        """True if the commit may still be confirmed."""
        return self.pending is not None and self.pending[0] is commit and commit.epoch == self._boundary.epoch

    def thaw(self, commit: PendingCommit) -> None:
        """Add a failed commit to the next commit. Outputs that were sent are not taken back."""
        self._take(commit)
        with self._boundary.lock:
            self._stores.thaw()
            self._boundary.changed = True

    def _take(self, commit: PendingCommit) -> RollbackPoint:
        if self.pending is None or not self.is_pending(commit):
            raise OwnershipError(
                f"task {self._task}: commit {commit.number} of epoch {commit.epoch} isn't pending (epoch "
                f"{self._boundary.epoch}): the task was rolled back, or this was done before. This is a bug"
            )
        progress, self.pending = self.pending[1], None
        return progress
