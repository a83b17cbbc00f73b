"""What holds at every moment of a campaign, and at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from milestones.common.errors import TimeoutExceededError, TransactionalIdError
from milestones.common.records import OffsetAndMetadata, Output, TaskId, TopicPartition
from milestones.parts import DecidedError
from milestones.stream_thread.task_registry import OPENED, Phase
from tests.milestones.chaos.moods import OF_ONE_TASK
from tests.milestones.chaos.windows import (
    AGAIN,
    TAILS,
    check_results,
    check_totals,
    check_windows,
    inner_key,
    own_keys,
)
from tests.milestones.fakes import CHANGELOG

if TYPE_CHECKING:
    from milestones.common.assignment.model import Subscription
    from tests.milestones.chaos.campaign import Chaos
    from tests.milestones.chaos.threads import SteppedPolling

HOLDER = {
    Phase.WAITING: set[str](), Phase.OPENING: {"opening"}, Phase.POSITIONING: set[str](),
    Phase.RESTORING: {"restoration"}, Phase.STARTING: {"inputs"}, Phase.PROCESSING: {"scheduler"},
    Phase.RETURNING: {"removal"}, Phase.STANDBY: {"restoration"}, Phase.ENDED: set[str](),
}  # fmt: skip
"""By phase: the part that has the task. A task that leaves is with one of `LEAVES`."""

DEATHS = (DecidedError, TimeoutExceededError, TransactionalIdError)
"""What a polling thread may die of: a handler's decision, or the end of all tasks; a Kafka that is away for too long,
or whose answers to a producer look like a take-over."""

DROPPED_LATER = ("finals",)
"""Stores of which a restoration brings back what is over: it may still have to be emitted."""

LOCAL, UNDONE = ("lru",), ("versions",)
"""Stores that aren't restored to the same bytes; and those that at least once have a deletion more where a write was
rolled back."""

COLLAPSING = {f"app-{store}-changelog" for store in ("counts", "last", "stamped", "ticks", "totals")}
COLLAPSING |= {topic for topic in TAILS if topic.endswith("-changelog")}

LEAVES = [Counter([holder]) for holder in ("opening", "restoration", "removal")]


def tasks_of(chaos: Chaos) -> Any:
    polling = chaos.polling
    return None if polling is None or polling.loop is None else polling.loop._tasks


def places(chaos: Chaos) -> dict[TaskId, Phase]:
    tasks = tasks_of(chaos)
    return {} if tasks is None else tasks.places()


def inputs_of(chaos: Chaos, task: TaskId) -> list[TopicPartition]:
    return [TopicPartition("in" if task.subtopology == 0 else AGAIN, task.partition)]


def committed(chaos: Chaos, partition: TopicPartition) -> int:
    at = chaos.world.member.committed.get(partition)
    return 0 if at is None else at.offset


def check(chaos: Chaos) -> None:
    """After a step of the polling thread."""
    assert not chaos.world.wrong, chaos.world.wrong
    assert not chaos.world.state.wrong, chaos.world.state.wrong
    check_waits(chaos)
    note_excuses(chaos)
    if tasks_of(chaos) is not None:
        check_places(chaos)
        check_leases(chaos)
        check_stores(chaos)
        chaos.happened["turns with suspects"] += tasks_of(chaos).failures._ends.isolating
        chaos.happened["turns beside a commit"] += chaos.world.clients.producer._under_way is not None
    chaos.happened["checks"] += 1


def check_waits(chaos: Chaos) -> None:
    too_long = chaos.world.waits.too_long()
    assert not too_long, f"the polling thread has asked for waits of more than a quarter: {too_long}"


def holders(chaos: Chaos) -> dict[TaskId, Counter[str]]:
    """By task: the parts that have it, or are to give it back."""
    tasks = tasks_of(chaos)
    inputs, restoration, processing = tasks._inputs, tasks._restoration, tasks._processing
    scheduler, opening = processing._scheduler, tasks._opening
    requests = chaos.world.openers.requests(opening)
    removals = [*scheduler._leaving, *scheduler._void, *scheduler._removed, *processing._late]
    started = [*inputs._started, *(task for task, _ in inputs._waiting.values())]
    returned = [*restoration._restored, *restoration._removed, *(failed.task for failed in restoration._failed)]
    found = {
        "opening": [request.task for request in [*requests, *opening.answers._items]],
        "restoration": [*restoration._pending, *(task.id for task in returned)],
        "inputs": [*{task.id for task in [*started, *(task for task, _ in inputs._unfed.values())]}],
        "scheduler": list(scheduler.places()),
        "removal": [one.task.id for one in removals],
    }
    counted: dict[TaskId, Counter[str]] = {}
    for holder, ids in found.items():
        for id in ids:
            counted.setdefault(id, Counter())[holder] += 1
    return counted


def check_places(chaos: Chaos) -> None:
    """A task is in one place, and that is where its phase says."""
    where, held_by = places(chaos), holders(chaos)
    assert held_by.keys() <= where.keys(), f"unknown tasks: {held_by.keys() - where.keys()}"
    for id, phase in where.items():
        chaos.happened[f"was {phase.value}"] += 1
        found = held_by.get(id, Counter())
        if phase is Phase.LEAVING:
            assert found in LEAVES, f"{id} leaves, and is with {dict(found)}"
        else:
            assert found == Counter(HOLDER[phase]), f"{id} is {phase.value}, and with {dict(found)}"
    fed = {at for id, phase in where.items() if phase is Phase.PROCESSING for at in inputs_of(chaos, id)}
    assert chaos.world.consumer.assigned == fed, f"fed: {chaos.world.consumer.assigned}, processing: {fed}"


def check_leases(chaos: Chaos) -> None:
    """Each lease is that of a thread that works, and such a thread has one at most."""
    scheduler = tasks_of(chaos)._processing._scheduler
    leases = [*scheduler._leased.values(), *scheduler._void.values()]
    at_work = [one.worker.name for one in chaos.world.workers.all if one.inside and one.worker._scheduler is scheduler]
    owners = [lease.owner for lease in leases]
    assert len(owners) == len(set(owners)), f"a thread has two leases: {owners}"
    assert set(owners) <= set(at_work), f"leases of {owners}, at work: {at_work}"
    chaos.happened["leases seen"] += len(leases)


def check_stores(chaos: Chaos) -> None:
    """Stores that are open have an owner: a task in a phase with open stores, or one that leaves; no other."""
    tasks, live = tasks_of(chaos), Counter(chaos.world.state.live.values())
    assert not [id for id, count in live.items() if count > 1], f"opened twice: {live}"
    orphans = {id for storage, id in chaos.world.state.live.items() if storage in chaos.world.state.orphans}
    for entry in tasks._registry:
        owned, what = live[entry.id] > 0 and entry.id not in orphans, f"{entry.id} is {entry.phase.value}"
        if entry.phase in OPENED or entry.phase is Phase.STANDBY or entry.stores is not None:
            assert owned, f"{what}, its stores are closed"
        elif entry.phase in (Phase.WAITING, Phase.ENDED):
            assert not owned, f"{what}, its stores are open"
    unowned = live.keys() - places(chaos).keys() - orphans
    assert not unowned, f"no task owns the open stores of {unowned}"


def check_told(chaos: Chaos, said: Subscription) -> None:
    """The group is told of all state that is open here: else it takes the task elsewhere, as if the state were lost."""
    live, orphans = chaos.world.state.live, chaos.world.state.orphans
    kept = {id for storage, id in live.items() if storage not in orphans and any(storage.offsets().values())}
    untold = kept - said.active - said.positions.keys()
    if untold:
        where = places(chaos)
        chaos.world.wrong.append(f"the group isn't told of {', '.join(f'{id}, {where[id].value}' for id in untold)}")
    chaos.happened["joins with open state"] += bool(kept)


def note_end(chaos: Chaos, polling: SteppedPolling) -> None:
    """A polling thread has ended: as it may, and what is still open belongs to a call that hasn't returned."""
    if polling.died is not None:
        chaos.excused.add("a polling thread has died")
        assert isinstance(polling.died, DEATHS), f"the polling thread died of {polling.died!r}"
        decided = isinstance(polling.died, DecidedError)
        of_one_task = not decided and any(text in str(polling.died) for text in OF_ONE_TASK)
        of_one_task &= "Kafka's answers were lost" not in chaos.excused  # these count, too
        assert not of_one_task, f"the polling thread died of one task's outputs: {polling.died!r}"
    chaos.happened["polling threads stopped" if polling.died is None else type(polling.died).__name__] += 1
    loop: Any = polling.loop
    if polling.in_calls:
        chaos.excused.add("a task was taken away in the midst of a long call")
    if polling.late:
        chaos.excused.add("there was no time for a last commit")
    if polling.unwritten:
        chaos.excused.add("no processing thread was left")
    if polling.unanswered:
        chaos.excused.add("a last commit had no answer")
    counts = {"commits": loop._commits.commits, "tasks rolled back": loop._tasks.roll_backs.count}
    recovered = loop._recoveries._recovery.recovered
    chaos.happened.update(counts | {"tasks made": loop._tasks.created, "recovered": recovered})
    chaos.world.state.orphans |= set(chaos.world.state.live)


def check_threads(chaos: Chaos) -> None:
    """The threads at work are those that the user has."""
    scheduler, registry = tasks_of(chaos)._processing._scheduler, chaos.world.context.thread_registry
    workers = [one.worker for one in chaos.world.workers.all if one.worker._scheduler is scheduler]
    numbers = sorted(int(worker.name.rpartition("-")[2]) for worker in workers if not worker.ended)
    assert numbers == registry.numbers(), f"threads {numbers} are at work, wanted: {registry.numbers()}"
    assert not registry.leaving, f"threads that never left: {registry.leaving}"


def check_transaction(
    chaos: Chaos, records: Sequence[Output], offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """A transaction that is about to be committed has what its inputs have led to, and nothing else."""
    for at, to in offsets.items():
        before = chaos.world.clients.coordinator.offsets.get(at)
        begin = 0 if before is None else before.offset
        if at.topic == AGAIN:
            check_totals(chaos, records, at, begin, to.offset)
            continue
        check_interval(chaos, records, chaos.world.keys_of(at.partition), begin, to.offset)
        if chaos.world.wide:
            check_windows(chaos, records, at, begin, to.offset)
    own = own_keys(chaos, offsets) | {f"t{p.partition}".encode() for p in offsets if p.topic == "in"}
    check_changelogs(chaos, records)
    check_ticks(chaos, records)
    keyed = [record for record in records if record.key and record.topic not in ("app-lru-changelog", AGAIN)]
    foreign = {(record.topic, record.key) for record in keyed if inner_key(record) not in own}
    if foreign:
        chaos.world.wrong.append(f"outputs without offsets of their task: {sorted(map(str, foreign))}")
    chaos.happened["transactions"] += 1


def check_changelogs(chaos: Chaos, records: Sequence[Output]) -> None:
    """Where keys collapse a commit has one record per key."""
    counts = Counter((record.topic, record.key) for record in records if record.topic in COLLAPSING)
    if chaos.keeps and counts and max(counts.values()) > 1:
        chaos.world.wrong.append(f"a commit has several records of a key: {counts}")


def check_ticks(chaos: Chaos, records: Sequence[Output]) -> None:
    """The punctuations that a transaction has go on where those of the one before ended."""
    for record in records:
        if record.topic == "ticks" and record.key is not None:
            number, before = int.from_bytes(record.value or b"", "big"), chaos.ticks[record.key]
            if number != before + 1:
                chaos.world.wrong.append(f"punctuation {number} of {record.key!r} comes after {before}")
            chaos.ticks[record.key] = number
            chaos.happened["punctuations"] += 1


def check_interval(chaos: Chaos, records: Sequence[Output], keys: Sequence[str], begin: int, end: int) -> None:
    """Of the records of one partition's input from `begin` to `end` there are all outputs, and no others."""
    counted, made = Counter(keys[:begin]), dict[str, list[int]]()
    for key in keys[begin:end]:
        counted[key] += 1
        made.setdefault(key, []).append(counted[key])
    found: dict[str, dict[str, list[int]]] = {}
    for record in records:
        key, count = inner_key(record).decode(), int.from_bytes(record.value or b"", "big")
        topic = "changelog" if record.topic == CHANGELOG else record.topic
        if key in set(keys):
            found.setdefault(topic, {}).setdefault(key, []).append(count)
    for key in sorted({*made, *chain.from_iterable(found.values())}):
        wanted, letters = made.get(key, []), found.get("letters", {}).get(key, [])
        for topic in ("out", "latest", "changelog"):
            seen = found.get(topic, {}).get(key, [])
            whole = sorted([*seen, *letters]) if topic == "out" else seen
            right = seen == sorted(seen) and whole == (wanted[-1:] if chaos.keeps and topic != "out" else wanted)
            if not (right or (chaos.cached and not chaos.keeps)):
                what = f"{topic}: {key} has {seen}, letters {letters}, of {wanted}"
                chaos.world.wrong.append(f"a transaction from {begin} to {end}: {what}")
        chaos.happened["letters"] += len(letters)


def check_user_code(chaos: Chaos) -> None:
    """Each record was done once, where no task has failed by itself, and what isn't confirmed is kept."""
    if not chaos.keeps or chaos.excused:
        return
    twice = {value: count for value, count in Counter(chaos.world.user_code.done).items() if count > 1}
    assert not twice, f"records were done more than once: {twice}"
    chaos.happened["done once in all"] += 1


def note_excuses(chaos: Chaos) -> None:
    """What explains that records are done again."""
    if chaos.world.state.failed_writes:
        chaos.excused.add("a store has failed")
    if any(polling.unsent for polling in chaos.world.polling):
        chaos.excused.add("the group couldn't be kept waiting any longer")
    if tasks_of(chaos) is not None:
        if tasks_of(chaos).ended:
            chaos.excused.add("a task has failed for good")
        if tasks_of(chaos)._processing._scheduler._void:
            chaos.excused.add("a task was taken away in the midst of a long call")


def check_outputs(chaos: Chaos) -> None:
    """Every input counts: once, or at least once. What a handler left out is in its dead letters."""
    world = chaos.world
    letters, written = world.out("letters"), {"out": world.out(), "latest": world.out("latest")}
    if letters:
        written["out"] = sorted([*written["out"], *letters])
    for partition in range(4):
        keys, written["changelog"] = world.keys_of(partition), world.written(partition)
        for key in sorted(set(keys)):
            for topic, records in written.items():
                counts = [count for other, count in records if other == key]
                if not chaos.exactly_once:
                    highest = max(count for count in counts if count is not None)  # a roll-back undoes what it finds
                    assert highest >= keys.count(key), f"{topic}: input of {key} is lost: {counts}"
                    if topic in ("out", "latest") and not letters:
                        assert counts[-1] == highest, f"{topic}: {key} ends with {counts[-1]} of {counts}"
                    if topic == "out" and chaos.keeps and not chaos.excused:
                        lacking = {*range(1, keys.count(key) + 1)}.difference(counts)
                        assert not lacking, f"{topic}: {sorted(lacking)} of {key} are lost: {counts}"
                elif chaos.thinned(topic):
                    assert counts == sorted(set(counts)), (topic, key, counts)
                    assert counts[-1] == keys.count(key), (topic, key, counts)
                else:
                    assert counts == [*range(1, keys.count(key) + 1)], (topic, key, counts)
    if world.wide:
        check_results(chaos)
    chaos.happened["records"] += sum(len(world.keys_of(partition)) for partition in range(4))


def check_kept(chaos: Chaos) -> None:
    """Nothing is kept, counted or undecided once all is committed."""
    if not chaos.keeps or chaos.polling is None or chaos.world.ticks_are_on:
        return
    loop: Any = chaos.polling.loop
    kept = {id: (one._outputs, one.letters, one.boundary) for id, one in loop._collection._intervals.items() if one}
    assert not kept, f"all is committed, but the collector keeps {kept}"
    producer = chaos.world.clients.producer
    undecided = [*producer.letters.values(), *producer.refused, *producer.undecided]
    assert not undecided, f"all is committed, but this isn't decided: {undecided}"
    assert not loop._register.retained, "all is committed, but a commit is to be made again"


def contents(chaos: Chaos) -> dict[tuple[TaskId, str], dict[bytes, bytes]]:
    """What the stores have on the disk."""
    stores = {(id, name): store for id, of_one in chaos.world.state.stores.items() for name, store in of_one.items()}
    return {at: dict(store.namespace.scan(None, None)) for at, store in stores.items()}


def forget_disk(chaos: Chaos) -> None:
    state = chaos.world.state
    for memory in (state.stores, state.changelog_ids, state.closed):
        memory.clear()


def check_contents(chaos: Chaos, before: Mapping[tuple[TaskId, str], Mapping[bytes, bytes]]) -> None:
    """What was restored is what was there."""
    restored, others = contents(chaos), LOCAL if chaos.exactly_once else LOCAL + UNDONE
    for (id, name), had in before.items():
        found = restored.get((id, name), {})
        same = had.items() <= found.items() if name in DROPPED_LATER else found == had
        if not (same or name in others):
            raise AssertionError(f"store {name} of {id} had {had}, its changelog {found}")
    chaos.happened["restored elsewhere"] += 1


def check_closed(chaos: Chaos) -> None:
    """Nothing is open, leased or waited for any more, of any polling thread that was."""
    world = chaos.world
    check(chaos)
    assert chaos.polling is None, "the polling thread still runs"
    assert not world.state.live, f"stores are open: {sorted(map(str, world.state.live.values()))}"
    assert world.state.opens == world.state.closes, f"{world.state.opens} opened, {world.state.closes} closed"
    assert world.openers.over(), "an opener has something to do"
    alive = [one.worker.name for one in world.workers.all if not one.worker.ended]
    assert not alive, f"processing threads that haven't ended: {alive}"
    for polling in world.polling:
        scheduler: Any = polling.loop._processing._scheduler  # type: ignore[union-attr]
        left = [*scheduler._leased, *scheduler._void, *scheduler._leaving]
        assert not left, f"leases: {left}"
    assert all(updater.ended and not updater.handover.held for updater in world.updaters.all), "an updater has tasks"
    chaos.happened["stores opened"] += world.state.opens
    chaos.happened["writes refused"] += world.state.refused
