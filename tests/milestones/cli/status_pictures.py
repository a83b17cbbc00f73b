"""What `milestones status` has seen of a group of two instances, as values; and what it prints of it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console, RenderableType

from milestones.cli.application_status import ApplicationStatus, Scraped, application_status, members_of
from milestones.cli.view import view
from milestones.common.assignment.model import Assignment, AssignmentOrigin, Subscription
from milestones.common.kafka.groups import DescribedGroup, DescribedMember
from milestones.common.kafka.membership.protocol import assignment_bytes, subscription_bytes
from milestones.common.records import TaskId, TopicPartition

A, B, C = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
IN = {task: (TopicPartition("in", task.partition),) for task in (A, B, C)}
LAGS = {IN[A][0]: 1_200, IN[B][0]: 0}
LEADER = "alpha-StreamThread-1-consumer-1"
ORIGIN = AssignmentOrigin(7, LEADER, 60_000)
PROCESS = "b99f1955-91bc-453f-99e5-3063024d55f1"


def described(client: str, process: str, got: Assignment, **said: Any) -> DescribedMember:
    name = f"{client}-consumer"
    subscription = Subscription(process, "baseline", 1, ("in",), "f", **said)
    return DescribedMember(
        f"{name}-1", name, "10.0.0.1", None, subscription_bytes(subscription, (), 2), assignment_bytes(got)
    )


def stable(*members: DescribedMember) -> DescribedGroup:
    return DescribedGroup("Stable", "consumer", "milestones-v2", members)


def running(*tasks: TaskId, **more: Any) -> Assignment:
    return Assignment(active=frozenset(tasks), partitions={task: IN[task] for task in tasks}, origin=ORIGIN, **more)


GROUP = stable(
    described("alpha-StreamThread-2", "p1", running(B, promised=frozenset({C})), reason="it starts"),
    described("alpha-StreamThread-1", "p1", running(A), reason="it starts"),
    described(
        f"words-{PROCESS}-StreamThread-1", PROCESS, Assignment(standby=frozenset({A}), warmup=frozenset({B})),
        reason="warm-up 0_1 has caught up", endpoint="127.0.0.1:9",
    ),
)  # fmt: skip


SEEN = Scraped(
    f"words-{PROCESS}", "RUNNING", "0.1.0", {f"words-{PROCESS}-StreamThread-1": "RUNNING"},
    standby_lags={A: 12, B: -1},
)  # fmt: skip


def shown(scraped: Mapping[str, Scraped | str], group: DescribedGroup = GROUP) -> ApplicationStatus:
    return application_status("words", group, members_of(group, "words"), LAGS, scraped)


def printed(what: ApplicationStatus, *, tasks: bool = True) -> list[str]:
    return lines_of(view(what, 72_000, tasks=tasks))


def lines_of(picture: RenderableType) -> list[str]:
    console = Console(file=io.StringIO(), width=120)
    console.print(picture)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
