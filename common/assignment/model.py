"""The messages between a member and the leader of its group: `Subscription` and `Assignment`.

*Guarantees*: values are frozen. Decoding an encoded value returns an equal value. The encoding is compact: tasks are
grouped by sub-topology, and defaults are left out. Unknown keys, which a newer version may have added, are ignored.
*Assumes*: partition `p` of a topic belongs to task `p` of a sub-topology, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import orjson

from milestones.common.records import TaskId, TopicPartition

VERSION = 2
"""The newest version of the user data. Version 2 adds `positions`, `promised`, `reason`, `endpoint` and `origin`."""
MIN_VERSION = 1
"""The oldest version that this code understands. For a group in which a member knows no newer version, this version is
written."""


SPARK = "spark"
"""The stage in subscriptions and manifests of a run on Spark. A member of this stage runs tasks, but has no place where
their state stays open."""


class UserDataError(ValueError):
    """User data of a member that can't be understood. The message says why, and what to do."""


@dataclass(frozen=True)
class Subscription:
    """One member as the leader sees it.

    `capacity`: the member's share of its process's capacity. `active` and `standby`: the tasks that the member has
    *now*. No other member gets one of the active tasks before this member joins without it. `generation`: the group's
    generation under which the member owns the tasks, -1 if none. `promised`: the promised tasks of the member's last
    assignment, repeated so that a move keeps its goal. `positions`: by task, the sum of the changelog offsets of the
    state that the process has. Open standbys, restoring active tasks and closed tasks on the disk have a position. A
    running task has none. `lags`: by task, the number of records that the state is behind. The member knows the lags of
    its open tasks. The leader computes the others. `reason`: why the member joins. `endpoint`: `host:port` of the
    member's metrics, for `milestones status`. `shutdown`: why the member asks the whole application to shut down
    (KIP-671). `version`: the newest version of the user data that the member knows, or the version that was read.
    `profile`: the `profile_of` of the sent subscription, which the leader returns in the assignment.
    """

    process_id: str
    stage: str
    capacity: int
    topics: tuple[str, ...]
    fingerprint: str
    version: int = VERSION
    instance_id: str | None = None
    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    promised: frozenset[TaskId] = frozenset()
    positions: Mapping[TaskId, int] = field(default_factory=dict)
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    client_tags: Mapping[str, str] = field(default_factory=dict)
    generation: int = -1
    reason: str = ""
    endpoint: str | None = None
    shutdown: str | None = None
    profile: str | None = None

    @property
    def keeps_copies(self) -> bool:
        """True if the member can have standbys and warm-ups."""
        return self.stage != SPARK


@dataclass(frozen=True)
class AssignmentOrigin:
    """The origin of an assignment: the generation, the member id of its leader, and the time (ms since the epoch)."""

    generation: int
    leader: str
    at_ms: int


@dataclass(frozen=True)
class Assignment:
    """The tasks that one member has until the next rebalance.

    `active`, `standby` and `warmup` are disjoint. `partitions` has the input partitions of each active task.
    `promised`: the tasks that the member will get when their owners have released them. The member's next subscription
    repeats them. `followup`: True if a member must release tasks and rejoin. `error`: the reason why nothing can run,
    such as a missing source topic. The reason is sent to every member that it concerns. `shutdown`: True if `error`
    means that a member asks the whole application to shut down. `profile`: the `Subscription.profile` for which the
    assignment was made. None if unknown. `origin`: who made the assignment, and when.
    """

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    warmup: frozenset[TaskId] = frozenset()
    partitions: Mapping[TaskId, tuple[TopicPartition, ...]] = field(default_factory=dict)
    followup: bool = False
    error: str | None = None
    profile: str | None = None
    shutdown: bool = False
    promised: frozenset[TaskId] = frozenset()
    origin: AssignmentOrigin | None = None


def profile_of(subscription: Subscription) -> str:
    """Return a short digest of a member's properties, without its tasks. When the digest changes, the member needs a
    new assignment."""
    s = subscription
    tags = sorted(s.client_tags.items())
    what = [s.version, s.process_id, s.stage, s.capacity, sorted(s.topics), s.fingerprint, tags]
    return sha256(orjson.dumps(what)).hexdigest()[:12]


def encode_subscription(subscription: Subscription, version: int = VERSION) -> bytes:
    """Return the user data of a JoinGroup. Fields that `version` doesn't know are left out. Topics and generation are
    left out, too, as Kafka has its own fields for them."""
    s = subscription
    if not MIN_VERSION <= version <= VERSION:
        raise ValueError(f"user data of version {version} can't be written, only {MIN_VERSION} to {VERSION}")
    if s.capacity < 1:
        raise ValueError(f"capacity is {s.capacity}: a member has at least one thread")
    return orjson.dumps({
        "v": version, "process": s.process_id, "stage": s.stage, "capacity": s.capacity,
        "topology": s.fingerprint, "profile": profile_of(s),
        **_present(active=_group(s.active), standby=_group(s.standby), tags=dict(s.client_tags),
                   lags=_group_counts(s.lags), instance=s.instance_id, shutdown=s.shutdown),
        **(_present(positions=_group_counts(s.positions), promised=_group(s.promised), reason=s.reason,
                      endpoint=s.endpoint)
           if version >= 2 else {}),
    })  # fmt: skip


def decode_subscription(data: bytes | None, topics: Iterable[str], generation: int = -1) -> Subscription:
    """Decode the result of `encode_subscription`. Raises `UserDataError` if the data comes from another program or from
    a version that is too old."""
    raw = _load(data)
    try:
        return Subscription(
            version=int(raw["v"]), process_id=str(raw["process"]), stage=str(raw["stage"]),
            capacity=max(int(raw["capacity"]), 1), topics=tuple(topics), fingerprint=str(raw["topology"]),
            instance_id=raw.get("instance"), active=_ungroup(raw.get("active")), standby=_ungroup(raw.get("standby")),
            promised=_ungroup(raw.get("promised")), positions=_ungroup_counts(raw.get("positions")),
            lags=_ungroup_counts(raw.get("lags")),
            client_tags=dict(raw.get("tags") or {}), generation=generation, reason=str(raw.get("reason") or ""),
            endpoint=raw.get("endpoint"), shutdown=raw.get("shutdown"), profile=raw.get("profile"),
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserDataError(f"its user data lacks or garbles {error}: is it a member of another program?") from error


def encode_assignment(assignment: Assignment) -> bytes:
    """Return the user data of a SyncGroup for one member. All versions have the same form."""
    a = assignment
    topics: dict[str, dict[str, list[int]]] = {}
    for task in sorted(a.partitions):
        for topic, partition in a.partitions[task]:
            topics.setdefault(str(task.subtopology), {}).setdefault(topic, []).append(partition)
    return orjson.dumps({
        "v": VERSION,
        **_present(active=_group(a.active), standby=_group(a.standby), warmup=_group(a.warmup), topics=topics,
                   promised=_group(a.promised), followup=a.followup, error=a.error, shutdown=a.shutdown,
                   profile=a.profile, origin=a.origin and [a.origin.generation, a.origin.leader, a.origin.at_ms]),
    })  # fmt: skip


def decode_assignment(data: bytes | None) -> Assignment:
    """Decode the result of `encode_assignment`. No data means an empty assignment. Raises `UserDataError` if the data
    is garbled."""
    if not data:
        return Assignment()
    raw = _load(data)
    try:
        partitions: dict[TaskId, tuple[TopicPartition, ...]] = {}
        for sub, topics in (raw.get("topics") or {}).items():
            for topic, numbers in topics.items():
                for number in numbers:
                    task = TaskId(int(sub), int(number))
                    partitions[task] = (*partitions.get(task, ()), TopicPartition(str(topic), int(number)))
        return Assignment(
            active=_ungroup(raw.get("active")), standby=_ungroup(raw.get("standby")),
            warmup=_ungroup(raw.get("warmup")), partitions=partitions, followup=bool(raw.get("followup")),
            error=raw.get("error"), shutdown=bool(raw.get("shutdown")), profile=raw.get("profile"),
            promised=_ungroup(raw.get("promised")), origin=_origin(raw.get("origin")),
        )  # fmt: skip
    except (AttributeError, TypeError, ValueError) as error:
        raise UserDataError(f"the leader's assignment is garbled: {error}") from error


def _origin(raw: list[Any] | None) -> AssignmentOrigin | None:
    if not raw:
        return None
    generation, leader, at_ms = raw[:3]
    return AssignmentOrigin(int(generation), str(leader), int(at_ms))


def refused(reason: str, subscription: Subscription | None = None) -> Assignment:
    """Return an assignment that contains only the reason why the member gets no tasks."""
    empty = Assignment(error=reason)
    return empty if subscription is None else replace(empty, profile=subscription.profile)


def _load(data: bytes | None) -> dict[str, Any]:
    try:
        raw = orjson.loads(data or b"")
        version = int(raw["v"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserDataError("its user data isn't ours: another program uses the same group id") from error
    if version < MIN_VERSION:
        raise UserDataError(
            f"it sends version {version} of the group's user data, this one understands {MIN_VERSION} and newer: "
            "upgrade that member through a release between the two, or stop it before this one starts"
        )
    return dict(raw)


def _present(**values: object) -> dict[str, object]:
    return {key: value for key, value in values.items() if value}


def _group(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for task in sorted(tasks):
        grouped.setdefault(str(task.subtopology), []).append(task.partition)
    return grouped


def _ungroup(raw: Mapping[str, list[int]] | None) -> frozenset[TaskId]:
    return frozenset(TaskId(int(sub), int(number)) for sub, numbers in (raw or {}).items() for number in numbers)


def _group_counts(counts: Mapping[TaskId, int]) -> dict[str, dict[str, int]]:
    grouped: dict[str, dict[str, int]] = {}
    for task in sorted(counts):
        grouped.setdefault(str(task.subtopology), {})[str(task.partition)] = counts[task]
    return grouped


def _ungroup_counts(raw: Mapping[str, Mapping[str, int]] | None) -> dict[TaskId, int]:
    return {
        TaskId(int(sub), int(number)): int(count)
        for sub, counts in (raw or {}).items()
        for number, count in counts.items()
    }
