"""Producers that are fenced, and commits whose end isn't known: a zombie that commits, guesses, wiped stores,
transactions that stay open.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: every transaction is begun, given its offsets and ended by `OutputProducer`; with fencing tolerance
`ResolvedTransaction` asks `outcome` how one ended, and `InPlaceRecovery` answers errors.
"""

from __future__ import annotations

import shutil
from typing import Any

from compat_tests.planted.mutations import around, mutation
from milestones.common.kafka.membership import GroupMember, Lost, StaleGenerationError
from milestones.common.kafka.membership.metadata import PREFIX, _build
from milestones.common.kafka.producer import OutputProducer
from milestones.common.records import StoreId
from milestones.common.state.task_storage import LocalTaskStorage
from milestones.common.steps import Steps
from milestones.common.task.task import Task
from milestones.m3_fencing_tolerance import transaction
from milestones.m3_fencing_tolerance.commit_outcome import CommitOutcome
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.stream_thread.tasks import ThreadTasks

HELD: list[object] = []
"""What this process never lets go."""


def deaf() -> None:
    """A member doesn't hear that it was given up, and goes on under its last generation."""

    @around(GroupMember, "poll")
    def poll(original: Any, member: Any) -> list[Any]:
        events = original(member)
        member.deaf = getattr(member, "deaf", False) or any(isinstance(event, Lost) for event in events)
        return [] if member.deaf else events

    @around(GroupMember, "metadata")
    def metadata(original: Any, member: Any) -> bytes:
        try:
            member.last = original(member)
        except StaleGenerationError:
            member.deaf = True
        last: bytes = member.last
        return last


@mutation
def a_zombie_commits() -> None:
    """Who was given up commits under no generation at all, which Kafka doesn't fence."""
    deaf()

    @around(OutputProducer, "begin_send_offsets")
    def begin_send_offsets(original: Any, producer: Any, offsets: Any, metadata: bytes, timeout_ms: int) -> None:
        group = metadata[len(PREFIX) + 4 :].partition(b"\0")[0].decode()
        original(producer, offsets, _build(group, -1, "", None), timeout_ms)


@mutation
def a_zombie_goes_on() -> None:
    """At least once, who was given up neither hears of it nor looks at the clock."""
    deaf()

    @around(GroupMember, "session_over")
    def session_over(_original: Any, _member: Any) -> bool:
        return False


@mutation
def punctuations_commit_without_offsets() -> None:
    """Offsets that didn't move aren't sent: what is committed then has none, and isn't fenced."""
    deaf()
    sent: dict[Any, int] = {}

    @around(OutputProducer, "begin_send_offsets")
    def begin_send_offsets(original: Any, producer: Any, offsets: Any, *more: Any) -> None:
        moved = {partition: at for partition, at in offsets.items() if sent.get(partition) != at.offset}
        sent.update({partition: at.offset for partition, at in moved.items()})
        original(producer, moved, *more)


def guessing(guess: CommitOutcome) -> None:
    """A commit without an answer ended like this."""
    transaction.outcome = lambda *_: guess  # type: ignore[attr-defined]


@mutation
def an_unknown_end_counts_as_committed() -> None:
    """Nobody looks at what is committed."""
    guessing(CommitOutcome.COMMITTED)


@mutation
def an_unknown_end_counts_as_rolled_back() -> None:
    """Nobody looks at what is committed: neither who asks how the commit has ended, nor the task that comes back."""
    guessing(CommitOutcome.ROLLED_BACK)
    Task.compare = lambda *_: None  # type: ignore[method-assign]


@mutation
def a_producer_goes_on_after_a_lost_connection() -> None:
    """The end of a transaction that was sent twice may come late, and ends the next one of the same epoch."""
    OutputProducer.disconnected = property(lambda _: False)  # type: ignore[assignment,method-assign]


@mutation
def recovery_wipes_stores() -> None:
    """A recovery makes the first store of each task empty, to be restored from the beginning."""

    @around(ThreadTasks, "roll_back")
    def roll_back(original: Any, tasks: Any, *only: Any) -> None:
        processing = list(tasks.processing.values())
        original(tasks, *only)
        for task in processing:
            tasks.rebuild([StoreId(task.id, task.subtopology.stores[0].name)], "a planted wipe")


@mutation
def recovery_gives_tasks_up() -> None:
    """A recovery never stays in place: all tasks are closed, and the thread rejoins."""

    @around(InPlaceRecovery, "recovery")
    def recovery(original: Any, *arguments: Any) -> Steps[bool]:
        yield from original(*arguments)
        return False


@mutation
def stores_are_wiped_after_a_crash() -> None:
    """A store that wasn't closed is removed when it is to be opened, as if it couldn't be trusted."""
    closed = "closed-cleanly"

    @around(LocalTaskStorage, "open")
    def open_(original: Any, state: Any, spec: Any) -> None:
        if not (state.path / closed).exists():
            shutil.rmtree(state.path / "rocksdb" / spec.name, ignore_errors=True)
        original(state, spec)

    @around(LocalTaskStorage, "close")
    def close(original: Any, state: Any) -> None:
        original(state)
        (state.path / closed).touch()

    @around(RangeStateManager, "_begin")
    def begin(original: Any, manager: Any, weights: Any) -> None:
        original(manager, weights)
        for database in manager.databases() if not (manager.directory.path / closed).exists() else ():
            for partition in list(database.rows):
                database.wipe(partition, database.stores(), None)

    @around(RangeStateManager, "release")
    def release(original: Any, manager: Any) -> None:
        original(manager)
        (manager.directory.path / closed).touch()


@mutation
def a_transaction_stays_open() -> None:
    """Behind each commit something is sent in the next transaction, which is aborted when there is something to commit,
    and not when the producer is closed."""
    topics: list[str] = []

    @around(OutputProducer, "send")
    def send(original: Any, producer: Any, task: Any, outputs: Any, changelogs: Any = (), **named: Any) -> Any:
        topics[:] = [fields[0] for fields in outputs if fields[0] not in changelogs][:1] or topics
        return original(producer, task, outputs, changelogs, **named)

    @around(OutputProducer, "_transaction_ended")
    def transaction_ended(original: Any, producer: Any) -> None:
        original(producer)
        if topics:
            producer._producer.begin_transaction()
            producer._producer.produce(topics[0], b"left", partition=0)
            producer._producer.flush(10)
            producer.left = True

    @around(OutputProducer, "begin")
    def begin(original: Any, producer: Any) -> None:
        if getattr(producer, "left", False):
            producer.left = False
            producer._producer.abort_transaction(10)
        original(producer)

    @around(OutputProducer, "close")
    def close(original: Any, producer: Any, *arguments: Any) -> None:
        if getattr(producer, "left", False):
            HELD.append(producer)
        else:
            original(producer, *arguments)
