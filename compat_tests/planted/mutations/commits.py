"""What is committed, and when: too far, too early, back, never; a roll-back that aborts nothing.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: every commit freezes its tasks by `Task.freeze_if_flushed`, and confirms by the producer or the member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from compat_tests.planted.mutations import Once, around, mutation, mutations_by
from milestones.common.errors import TaskCorruptedError
from milestones.common.kafka.membership import GroupMember
from milestones.common.kafka.producer import OutputProducer
from milestones.common.records import TopicPartition
from milestones.common.task.task import Task

Offsets = Mapping[TopicPartition, int]


def committing(change: Callable[[Offsets], Offsets]) -> None:
    """Commit what `change` makes of each boundary's offsets."""

    @around(Task, "freeze_if_flushed")
    def freeze(original: Any, task: Any) -> Any:
        staged = original(task)
        if staged is None:
            return None
        changed = replace(staged, offsets=change(staged.offsets))
        task._commits.pending = changed, task._commits.pending[1]
        return changed


mutations_by(
    committing,
    {
        "commits-are-one-too-far": lambda offsets: {at: offset + 1 for at, offset in offsets.items()},
        "commits-are-one-too-early": lambda offsets: {at: max(0, offset - 1) for at, offset in offsets.items()},
        "a-repartition-topic-is-never-committed": lambda offsets: {
            at: offset for at, offset in offsets.items() if not at.topic.endswith("-repartition")
        },
    },
)


@mutation
def transactions_have_no_offsets() -> None:
    """Outputs are committed without the offsets of their inputs."""

    @around(OutputProducer, "begin_send_offsets")
    def begin_send_offsets(_original: Any, producer: Any, *_: Any) -> None:
        producer._begin_call(lambda: None, 0)


@mutation
def commits_go_back_and_forth() -> None:
    """Every commit is made again with the offsets before it, and once more with the right ones."""

    @around(GroupMember, "begin_commit")
    def begin_commit(original: Any, member: Any, offsets: Any, timeout_ms: int) -> None:
        earlier = {partition: at._replace(offset=max(0, at.offset - 1)) for partition, at in offsets.items()}
        for made in (offsets, earlier):
            original(member, made, timeout_ms)
            while not member.commit_returned(timeout_ms):
                pass
        original(member, offsets, timeout_ms)


@mutation
def a_roll_back_does_not_abort() -> None:
    """One commit fails once its outputs are flushed; the roll-back that follows leaves them in the open transaction."""
    due = Once()

    @around(OutputProducer, "_flushed")
    def flushed(original: Any, producer: Any, *times_ms: int) -> bool:
        over: bool = original(producer, *times_ms)
        if over and due():
            raise TaskCorruptedError("a planted failure of a commit", [])
        return over

    @around(OutputProducer, "begin_abort")
    def begin_abort(_original: Any, producer: Any, _timeout_ms: int) -> None:
        """Nothing is aborted."""
        producer._look = lambda _: True
