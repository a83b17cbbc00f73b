"""An application as it is now: what a status view shows, made of what Kafka and the instances say.

*Guarantees*: `application_status` is a pure function; what isn't known is None, never 0. `as_json` gives plain values.
*Assumes*: a task has at most one copy per process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from milestones.common.assignment.model import Assignment, AssignmentOrigin, Subscription, UserDataError
from milestones.common.assignment.summary import short_name
from milestones.common.errors import MilestonesError
from milestones.common.kafka.groups import DescribedGroup, DescribedMember
from milestones.common.kafka.membership.protocol import read_assignment, read_subscription
from milestones.common.kafka.membership.settings import PROTOCOL_TYPE
from milestones.common.memory import Account
from milestones.common.records import TaskId, TopicPartition

THREAD = re.compile(r"(?P<client>.+)-(?:StreamThread-(?P<number>\d+)|PollingThread)")
PROCESSING_THREAD = re.compile(r"(?P<client>.+)-ProcessingThread-(?:(?P<stream>\d+)-)?(?P<number>\d+)")
"""The number of its stream thread is in the name of a processing thread on m2 and m3."""

ACTIVE, RESTORING, ENDED = "active", "restoring", "ended"
"""Roles of a task that its owner is to process."""

POLLS = "polling"
"""The label of a polling thread."""
RUNS = "RUNNING"
"""The state of a processing thread that has metrics: with its end they go."""


@dataclass(frozen=True)
class Member:
    """A member of the group, with what it said and what it got."""

    described: DescribedMember
    said: Subscription
    got: Assignment

    @property
    def name(self) -> str:
        """That of its thread, in logs and metrics."""
        return short_name(self.described.client_id)


def _share(done: int, left: int) -> float:
    """0 to 1."""
    return done / max(1, done + left)


@dataclass(frozen=True)
class StoreRow:
    """One store that is restored. `left` in records, `bytes_left` about; `seconds_left` None while nothing comes."""

    store: str
    restored: int
    left: int
    bytes_left: int
    seconds_left: float | None

    @property
    def progress(self) -> float:
        """0 to 1."""
        return _share(self.restored, self.left)


@dataclass(frozen=True)
class ProcessingRow:
    """One processing thread, from m2 on. `records` processed since its start; `busy`: the part of its time, 0 to 1, in
    which it had a task. In a long call both are as they were before."""

    name: str
    label: str
    state: str
    records: int
    busy: float


@dataclass(frozen=True)
class GlobalRow:
    """The global stores of an instance, in records: `restored` and still `left` before its tasks start, `lag` later."""

    restored: int = 0
    left: int = 0
    lag: int = 0

    @property
    def progress(self) -> float:
        """Of the restoration, 0 to 1."""
        return _share(self.restored, self.left)


@dataclass(frozen=True)
class DatabaseRow:
    """The state of one sub-topology on an instance, from m6 on. `writes_wait`: why, as the metric says it: 0 they
    don't, 1 for room, 2 until it is mended."""

    size_bytes: int = 0
    files: int = 0
    writes_wait: int = 0
    unsynced_ms: int = 0


@dataclass(frozen=True)
class CallRow:
    """A call of a function of the user's that is under way: its place, and how long it has lasted."""

    thread: str
    function: str
    seconds: int


ACCOUNTS = tuple(account.name.lower() for account in Account if account is not Account.CLIENT_QUEUES)
"""Of an instance's memory, as metrics call them. What clients hold isn't known, only what they may."""


@dataclass(frozen=True)
class Scraped:
    """What an instance's metrics say. `numbers`: `commit_age_ms` of a thread that commits, `records` and `busy` of a
    processing thread. By task: records restored and still to restore, a standby's lag, the stores that a state updater
    restores; the error's class of one in quarantine, and of one that has ended; their texts, and how long the former is
    retried. `calls` that have been under way for a second or longer. `memory`: bytes by what they are for;
    `client_queues_max` may be taken, `resident` is all of the process."""

    client_id: str
    state: str | None = None
    version: str | None = None
    threads: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    restored: Mapping[TaskId, int] = field(default_factory=dict)
    remaining: Mapping[TaskId, int] = field(default_factory=dict)
    standby_lags: Mapping[TaskId, int] = field(default_factory=dict)
    stores: Mapping[TaskId, tuple[StoreRow, ...]] = field(default_factory=dict)
    classes: Mapping[TaskId, str] = field(default_factory=dict)
    ended: Mapping[TaskId, str] = field(default_factory=dict)
    texts: Mapping[TaskId, str] = field(default_factory=dict)
    seconds_left: Mapping[TaskId, int] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    globals: GlobalRow | None = None
    databases: Mapping[int, DatabaseRow] = field(default_factory=dict)
    calls: tuple[CallRow, ...] = ()


@dataclass(frozen=True)
class TaskRow:
    """One copy of a task. `role`: active, restoring, ended, standby, warm-up, or promised (its owner has to release it
    first).

    In records: `input_lag` not yet committed of its inputs; `behind` a standby's lag or what is left to restore;
    `restored` since the restoration began; `stores` that aren't there yet, from m1 on. `error` of a task in quarantine,
    from m2 on, which is retried for `seconds_left`, and of one that has ended; `error_class` of both.
    """

    task: str
    role: str
    input_lag: int | None = None
    behind: int | None = None
    restored: int | None = None
    stores: tuple[StoreRow, ...] = ()
    error: str | None = None
    error_class: str | None = None
    seconds_left: int | None = None

    @property
    def progress(self) -> float | None:
        """Of a restoration, 0 to 1."""
        if self.role != RESTORING or self.behind is None or self.restored is None:
            return None
        return _share(self.restored, self.behind)


@dataclass(frozen=True)
class Thread:
    """One member: a stream thread, the polling thread of an instance, or a whole instance. `error`: why the leader gave
    it nothing; `processing`: the threads that process its tasks, as far as its metrics say; `commit_age_ms`: of
    the commit interval that is under way, 0 without one."""

    member: str
    name: str
    label: str
    capacity: int
    state: str | None
    leads: bool
    error: str | None
    tasks: tuple[TaskRow, ...]
    processing: tuple[ProcessingRow, ...] = ()
    commit_age_ms: int | None = None


@dataclass(frozen=True)
class InstanceView:
    """One process. `unseen`: why its metrics can't be read; None when they can. `memory`: as in `Scraped`, with `other`
    for what of the process is in no account; None when it isn't known. `globals`: None without global stores, too.
    `databases`: by sub-topology, from m6 on. `calls` of functions of the user's that are under way for a second or
    longer."""

    name: str
    process: str
    host: str
    stage: str
    tags: Mapping[str, str]
    endpoint: str | None
    state: str | None
    version: str | None
    unseen: str | None
    threads: tuple[Thread, ...]
    memory: Mapping[str, int] | None = None
    globals: GlobalRow | None = None
    databases: Mapping[int, DatabaseRow] = field(default_factory=dict)
    calls: tuple[CallRow, ...] = ()

    def restoring(self, subtopology: int) -> list[int]:
        """What each of its tasks that restores has still to read, in records."""
        rows = [row for thread in self.threads for row in thread.tasks if row.role == RESTORING]
        return [row.behind or 0 for row in rows if TaskId.parse(row.task).subtopology == subtopology]


@dataclass(frozen=True)
class ApplicationStatus:
    """The whole application. `reasons` of the last rebalance, the rarest first, with how many members gave each;
    `notes`: what can't be known now, and why."""

    application: str
    state: str
    protocol: str
    generation: int | None
    leader: str | None
    rebalanced_ms: int | None
    reasons: tuple[tuple[str, int], ...]
    instances: tuple[InstanceView, ...]
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[TaskRow]:
        return [row for instance in self.instances for thread in instance.threads for row in thread.tasks]


def members_of(group: DescribedGroup, name: str) -> list[Member]:
    """The members of a stable group; none while it rebalances. `MilestonesError` when it isn't one of ours."""
    if group.protocol_type not in ("", PROTOCOL_TYPE):
        raise MilestonesError(f"the group {name} is none of consumers, its type is {group.protocol_type!r}")
    if group.state != "Stable":
        return []
    try:
        return [Member(one, read_subscription(one.metadata), read_assignment(one.assignment)) for one in group.members]
    except UserDataError as error:
        clients = ", ".join(sorted({one.client_id for one in group.members})[:3])
        raise MilestonesError(
            f"the group {name} is that of another program (protocol {group.protocol!r}, members {clients}): {error}"
        ) from error


def inputs_of(members: Iterable[Member]) -> list[TopicPartition]:
    """The input partitions of all tasks that run."""
    return sorted({at for member in members for ats in member.got.partitions.values() for at in ats})


def application_status(
    application: str,
    group: DescribedGroup,
    members: Iterable[Member],
    lags: Mapping[TopicPartition, int],
    scraped: Mapping[str, Scraped | str],
    notes: Iterable[str] = (),
) -> ApplicationStatus:
    """`lags` by input partition, `scraped` by process id: what its metrics say, or why they can't be read."""
    known = sorted(members, key=lambda member: (member.said.process_id, _number(member.name)))
    origins = [member.got.origin for member in known if member.got.origin is not None]
    origin = max(origins, key=lambda one: one.generation, default=None)
    processes = list(dict.fromkeys(member.said.process_id for member in known))
    instances = [
        _instance(application, [m for m in known if m.said.process_id == id], lags, scraped.get(id), origin)
        for id in processes
    ]
    leader = next((thread.name for one in instances for thread in one.threads if thread.leads), None)
    reasons = Counter(member.said.reason for member in known if member.said.reason)
    return ApplicationStatus(
        application=application,
        state=group.state,
        protocol=group.protocol,
        generation=None if origin is None else origin.generation,
        leader=leader,
        rebalanced_ms=None if origin is None else origin.at_ms,
        reasons=tuple(sorted(reasons.items(), key=lambda item: (item[1], item[0]))),
        instances=tuple(sorted(instances, key=lambda instance: instance.name)),
        notes=tuple(notes),
    )


def _number(name: str) -> tuple[int, str]:
    match = THREAD.fullmatch(name)
    return int(match["number"] or 0) if match else 0, name


def _instance(
    application: str,
    members: list[Member],
    lags: Mapping[TopicPartition, int],
    scraped: Scraped | str | None,
    origin: AssignmentOrigin | None,
) -> InstanceView:
    first = members[0]
    seen = scraped if isinstance(scraped, Scraped) else None
    return InstanceView(
        name=_name(application, first),
        process=first.said.process_id,
        host=first.described.host,
        stage="/".join(sorted({member.said.stage for member in members})),
        tags=first.said.client_tags,
        endpoint=first.said.endpoint,
        state=seen.state if seen else None,
        version=seen.version if seen else None,
        unseen=scraped if isinstance(scraped, str) else "metrics_port isn't set" if seen is None else None,
        threads=tuple(_thread(member, lags, seen, origin) for member in members),
        memory=_memory(seen.memory) if seen and seen.memory else None,
        globals=seen.globals if seen else None,
        databases=seen.databases if seen else {},
        calls=seen.calls if seen else (),
    )


def _memory(told: Mapping[str, int]) -> dict[str, int]:
    """With what is in no account, less than nothing where accounts are reckoned too high."""
    counted = sum(told.values()) - told["resident"] - told["client_queues_max"]
    return {**told, "other": told["resident"] - counted}


def _name(application: str, member: Member) -> str:
    """The client id that the user chose, or the beginning of the process id."""
    match = THREAD.fullmatch(member.name)
    client = match["client"] if match else member.name
    process = member.said.process_id
    return process[:8] if client == f"{application}-{process}" else client


def _thread(
    member: Member, lags: Mapping[TopicPartition, int], seen: Scraped | None, origin: AssignmentOrigin | None
) -> Thread:
    got, name = member.got, member.name
    match = THREAD.fullmatch(name)
    rows = [_active(task, got, lags, seen) for task in sorted(got.active)]
    rows += [_copy(task, "warm-up", seen) for task in sorted(got.warmup)]
    rows += [_copy(task, "promised", seen) for task in sorted(got.promised)]
    rows += [_copy(task, "standby", seen) for task in sorted(got.standby - got.promised)]
    return Thread(
        member=member.described.id,
        name=name,
        label=(match["number"] or POLLS) if match else f"{member.said.capacity} threads",
        capacity=member.said.capacity,
        state=seen.threads.get(name) if seen else None,
        leads=origin is not None and origin.leader == member.described.id,
        error=got.error,
        tasks=tuple(rows),
        processing=_processing(match, seen) if match and seen else (),
        commit_age_ms=_commit_age_ms(seen.numbers.get(name, {})) if seen else None,
    )


def _processing(polls: re.Match[str], seen: Scraped) -> tuple[ProcessingRow, ...]:
    """The processing threads for which the thread of this name polls."""
    found = [(PROCESSING_THREAD.fullmatch(name), told) for name, told in seen.numbers.items()]
    ours = [(name, told) for name, told in found if name and _whose(name) == (polls["client"], polls["number"])]
    return tuple(
        ProcessingRow(name[0], f"processing {name['number']}", RUNS, int(told["records"]), told["busy"])
        for name, told in sorted(ours, key=lambda one: int(one[0]["number"]))
    )


def _commit_age_ms(numbers: Mapping[str, float]) -> int | None:
    age_ms = numbers.get("commit_age_ms")
    return None if age_ms is None else int(age_ms)


def _whose(name: re.Match[str]) -> tuple[str, str | None]:
    """The client, and the number of the stream thread: none on m4."""
    return name["client"], name["stream"]


def _active(task: TaskId, got: Assignment, lags: Mapping[TopicPartition, int], seen: Scraped | None) -> TaskRow:
    inputs = [lags.get(at) for at in got.partitions.get(task, ())]
    known = [lag for lag in inputs if lag is not None]
    lag = sum(known) if known and len(known) == len(inputs) else None
    if seen is None:
        return TaskRow(str(task), ACTIVE, lag)
    if task in seen.ended:
        kind = seen.ended[task]
        return TaskRow(str(task), ENDED, lag, error=seen.texts.get(task, kind), error_class=kind)
    if left := seen.remaining.get(task, 0):
        return TaskRow(str(task), RESTORING, lag, left, seen.restored.get(task), seen.stores.get(task, ()))
    failing = seen.classes.get(task)
    text, seconds = seen.texts.get(task, failing), seen.seconds_left.get(task)
    return TaskRow(str(task), ACTIVE, lag, error=text, error_class=failing, seconds_left=seconds)


def _copy(task: TaskId, role: str, seen: Scraped | None) -> TaskRow:
    lag = None if seen is None else seen.standby_lags.get(task)
    return TaskRow(str(task), role, behind=None if lag is None or lag < 0 else lag)


def as_json(shown: ApplicationStatus) -> dict[str, Any]:
    """All of it, for scripts. Offsets and lags in records, `rebalanced_ms` since the epoch, `progress` 0 to 1, `memory`
    in bytes; `databases` by the number of the sub-topology, as text."""
    plain = asdict(shown)
    plain["reasons"] = dict(shown.reasons)
    for raw, instance in zip(plain["instances"], shown.instances, strict=True):
        raw["databases"] = {str(number): database for number, database in raw["databases"].items()}
        for thread, known in zip(raw["threads"], instance.threads, strict=True):
            thread["tasks"] = [asdict(row) | {"progress": row.progress} for row in known.tasks]
    return plain
