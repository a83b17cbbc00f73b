"""`ApplicationStatus`: the present status of an application, made from the answers of Kafka and of the instances.

*Guarantees*: `application_status` is a pure function. A value that isn't known is None, never 0. `as_json` returns
values that can be written as JSON.
*Assumes*: a task has at most one copy per process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from milestones.common.assignment.machines import WORKER_TAG, given_tags
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
"""The name of a processing thread. On m2 and m3 it contains the number of the stream thread."""

ACTIVE, RESTORING, ENDED = "active", "restoring", "ended"
"""The roles of an active task: it is processed, it is restored, or it has ended after an error."""

POLLS = "polling"
"""The label of a polling thread."""
RUNS = "RUNNING"
"""The state shown for a processing thread that has metrics. When the thread ends, its metrics are removed."""


@dataclass(frozen=True)
class Member:
    """A member of the group, with the subscription that it has sent and the assignment that it has got."""

    described: DescribedMember
    said: Subscription
    got: Assignment

    @property
    def name(self) -> str:
        """The name of the member's thread, as in logs and metrics."""
        return short_name(self.described.client_id)


def _share(done: int, left: int) -> float:
    """Returns the part that is done, from 0 to 1."""
    return done / max(1, done + left)


@dataclass(frozen=True)
class StoreRow:
    """One store that is being restored. `restored`, `left`: numbers of records. `bytes_left`: an estimate.
    `seconds_left`: an estimate, or None while no records arrive."""

    store: str
    restored: int
    left: int
    bytes_left: int
    seconds_left: float | None

    @property
    def progress(self) -> float:
        """The progress of the restoration, from 0 to 1."""
        return _share(self.restored, self.left)


@dataclass(frozen=True)
class ProcessingRow:
    """One processing thread, from m2 on. `records`: the records processed since the thread's start. `busy`: the part of
    its time, from 0 to 1, in which it had a task. During a long call of user code both keep their old values."""

    name: str
    label: str
    state: str
    records: int
    busy: float


@dataclass(frozen=True)
class GlobalRow:
    """The global stores of an instance. All fields are numbers of records. `restored` and `left` count before the tasks
    start, `lag` counts after that."""

    restored: int = 0
    left: int = 0
    lag: int = 0

    @property
    def progress(self) -> float:
        """The progress of the restoration, from 0 to 1."""
        return _share(self.restored, self.left)


@dataclass(frozen=True)
class DatabaseRow:
    """The state of one sub-topology on an instance, from m6 on. `writes_wait` has the values of the metric: 0 if writes
    don't wait, 1 if they wait because the disk is full, 2 if they wait for a repair."""

    size_bytes: int = 0
    files: int = 0
    writes_wait: int = 0
    unsynced_ms: int = 0


@dataclass(frozen=True)
class CallRow:
    """A running call of a user's function. `function`: its name and place. `seconds`: the duration so far."""

    thread: str
    function: str
    seconds: int


ACCOUNTS = tuple(account.value for account in Account)
"""The accounts of an instance's memory, with the names in metrics."""
RESIDENT, OTHER, CLIENT_QUEUES = "resident", "other", "client_queues_max"
"""The memory of a whole process, what of it is in no account, and the limit of the queues of its Kafka clients."""


@dataclass(frozen=True)
class Scraped:
    """The values that were read from an instance's metrics and its page `/status`.

    `threads`: the state of each thread. `numbers`: `commit_age_ms` of a thread that commits, `records` and `busy` of a
    processing thread.

    These fields have an entry per task. `restored`, `remaining`: the records that are restored, and those still to
    restore. `standby_lags`: the lag of a standby. `stores`: the stores that a state updater restores. `classes`: the
    class of the error of a task in quarantine. `ended`: the class of the error of a task that has ended. `texts`: the
    texts of these errors. `seconds_left`: the time for which a task in quarantine is still retried.

    `memory`: bytes per account, and those of `RESIDENT`, `OTHER` and `CLIENT_QUEUES`. Empty if an older release told
    other names. `memory_limits`: the limit of each account that has one, in bytes. `calls`: calls of user functions
    that have lasted for at least a second."""

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
    memory_limits: Mapping[str, int] = field(default_factory=dict)
    globals: GlobalRow | None = None
    databases: Mapping[int, DatabaseRow] = field(default_factory=dict)
    calls: tuple[CallRow, ...] = ()


@dataclass(frozen=True)
class TaskRow:
    """One copy of a task. `role`: active, restoring, ended, standby, warm-up, or promised (its present owner must
    release it first).

    `input_lag`: the records of its inputs that aren't committed yet. `behind`: the lag of a standby, or the records
    still to restore. `restored`: the records restored so far. `stores`: the stores that are being restored, from m1 on.
    `error`, `error_class`: the error of a task in quarantine (from m2 on), or of a task that has ended. `seconds_left`:
    the time for which a task in quarantine is still retried.
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
        """The progress of the restoration, from 0 to 1. None if the task isn't restored, or the progress isn't
        known."""
        if self.role != RESTORING or self.behind is None or self.restored is None:
            return None
        return _share(self.restored, self.behind)


@dataclass(frozen=True)
class Thread:
    """One member: a stream thread, the polling thread of an instance, or a whole instance. `error`: the reason why the
    leader has assigned nothing. `processing`: the processing threads that its metrics name. `commit_age_ms`: the age of
    the present commit interval, or 0 without one."""

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
    """One process. `unseen`: the reason why its metrics can't be read, or None. `memory`, `memory_limits`: as in
    `Scraped`; None if they aren't known. `globals`: None without global stores, or if they aren't known. `databases`:
    the state of each sub-topology, from m6 on. `calls`: calls of user functions that have lasted for at least a second.
    `worker`: which worker of how many it is, such as `2/4`; None if it isn't a worker."""

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
    memory_limits: Mapping[str, int] | None = None
    globals: GlobalRow | None = None
    databases: Mapping[int, DatabaseRow] = field(default_factory=dict)
    calls: tuple[CallRow, ...] = ()
    worker: str | None = None

    def restoring(self, subtopology: int) -> list[int]:
        """Returns the number of records still to restore, for each restoring task of the sub-topology."""
        rows = [row for thread in self.threads for row in thread.tasks if row.role == RESTORING]
        return [row.behind or 0 for row in rows if TaskId.parse(row.task).subtopology == subtopology]


@dataclass(frozen=True)
class ApplicationStatus:
    """The status of the whole application. `reasons`: the reasons of the last rebalance, each with the number of
    members that gave it, the rarest first. `notes`: texts about values that aren't known now, with the reason."""

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
    """Returns the members of a stable group, or an empty list while the group rebalances. Raises `MilestonesError` if
    the group belongs to another program."""
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
    """Returns the input partitions of all assigned tasks."""
    return sorted({at for member in members for ats in member.got.partitions.values() for at in ats})


def application_status(
    application: str,
    group: DescribedGroup,
    members: Iterable[Member],
    lags: Mapping[TopicPartition, int],
    scraped: Mapping[str, Scraped | str],
    notes: Iterable[str] = (),
) -> ApplicationStatus:
    """Make the status. `lags`: the lag of each input partition. `scraped`: for each process id the values of its
    metrics, or the reason why they can't be read."""
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
        tags=given_tags(first.said.client_tags),
        worker=first.said.client_tags.get(WORKER_TAG),
        endpoint=first.said.endpoint,
        state=seen.state if seen else None,
        version=seen.version if seen else None,
        unseen=scraped if isinstance(scraped, str) else "metrics_port isn't set" if seen is None else None,
        threads=tuple(_thread(member, lags, seen, origin) for member in members),
        memory=seen.memory if seen and seen.memory else None,
        memory_limits=seen.memory_limits if seen and seen.memory else None,
        globals=seen.globals if seen else None,
        databases=seen.databases if seen else {},
        calls=seen.calls if seen else (),
    )


def _name(application: str, member: Member) -> str:
    """Returns the instance's name: the client id that the user chose, or the beginning of the process id."""
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
    """Returns the processing threads that belong to a polling thread or stream thread. `polls`: the match of that
    thread's name."""
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
    """Returns the client id and the number of the stream thread in a processing thread's name. From m4 on the number is
    None."""
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
    """Returns the whole status as values for JSON. Lags count records. `rebalanced_ms` is in ms since the epoch.
    `progress` is from 0 to 1. `memory` is in bytes. The keys of `databases` are the numbers of the sub-topologies, as
    text."""
    plain = asdict(shown)
    plain["reasons"] = dict(shown.reasons)
    for raw, instance in zip(plain["instances"], shown.instances, strict=True):
        raw["databases"] = {str(number): database for number, database in raw["databases"].items()}
        for thread, known in zip(raw["threads"], instance.threads, strict=True):
            thread["tasks"] = [asdict(row) | {"progress": row.progress} for row in known.tasks]
    return plain
