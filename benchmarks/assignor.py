"""How long the leader's assignors take: 500 tasks on 50 members, in groups that begin, stand, grow and shrink.

*Guarantees*: needs neither broker nor disk. CPU time of this thread, so that other work on the machine counts little.
*Assumes*: members that do what they are told, and warm-ups that have caught up by the next rebalance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from rich.table import Table

from milestones.common.assignment.handover import ASSIGNORS, assign
from milestones.common.assignment.lags import with_lags
from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Rules
from milestones.common.records import TaskId, TopicPartition

SUBTOPOLOGIES, PARTITIONS, MEMBERS, ZONES = 5, 100, 50, 3
RECORDS = 1_000_000
ROUNDS = 5
TAGS = ("zone",)


@dataclass(frozen=True)
class Timing:
    """CPU time of one kind of rebalance, in ms: the median and the longest."""

    assignor: str
    standbys: int
    situation: str
    median_ms: float
    longest_ms: float


def timings(log: Callable[[str], None]) -> list[Timing]:
    """All of them, the assignors with 0 to 2 standbys."""
    result: list[Timing] = []
    for name in ASSIGNORS:
        for standbys in (0, 1, 2):
            log(f"{name}, {standbys} standbys")
            rules = Rules(num_standby_replicas=standbys, rack_aware_assignment_tags=TAGS)
            found: dict[str, list[float]] = {}
            for _ in range(ROUNDS):
                for situation, ms in _one_life(name, rules):
                    found.setdefault(situation, []).append(ms)
            result += [Timing(name, standbys, at, median(all_), max(all_)) for at, all_ in found.items()]
    return result


def table(rows: Iterable[Timing]) -> Table:
    shown = Table(title=f"{SUBTOPOLOGIES * PARTITIONS} tasks on {MEMBERS} members, CPU time of one rebalance")
    for heading in ("assignor", "standbys", "situation", "median ms", "longest ms"):
        shown.add_column(heading, justify="right" if heading.endswith(("ms", "standbys")) else "left")
    for row in rows:
        shown.add_row(row.assignor, str(row.standbys), row.situation, f"{row.median_ms:.0f}", f"{row.longest_ms:.0f}")
    return shown


def _plan() -> TaskPlan:
    tasks = {
        TaskId(sub, number): (TopicPartition(f"in-{sub}", number),)
        for sub in range(SUBTOPOLOGIES)
        for number in range(PARTITIONS)
    }
    changelogs = {task: (TopicPartition(f"log-{task.subtopology}", task.partition),) for task in tasks}
    return TaskPlan(
        tasks=tasks, changelogs={t: at for t, at in changelogs.items() if t.subtopology}, repartition_counts={},
        changelog_counts={}, missing_topics=frozenset(), problems=(), fingerprint="f",
    )  # fmt: skip


def _member(number: int) -> Subscription:
    tags = {"zone": str(number % ZONES)}
    return Subscription(f"p{number:02}", "baseline", 1 + number % 3, (), "f", client_tags=tags)


def _one_life(assignor: str, rules: Rules) -> Iterator[tuple[str, float]]:
    plan = _plan()
    ends = dict.fromkeys(plan.changelogs, RECORDS)
    members = {f"m{number:02}": _member(number) for number in range(MEMBERS)}

    def rebalance() -> float:
        nonlocal members
        started = time.thread_time()
        given = assign(with_lags(members, ends), plan, rules, assignor)
        elapsed = time.thread_time() - started
        members = {name: _obeyed(member, given[name]) for name, member in members.items()}
        return elapsed * 1000

    yield "cold start", rebalance()
    yield "nothing changed", rebalance()
    left = [members.pop(name) for name in ("m07", "m23")]
    yield "two members left", rebalance()
    rebalance()
    for member in left:
        back = replace(member, active=frozenset(), standby=frozenset(), promised=frozenset())
        members[f"again-{member.process_id}"] = back
    yield "two members came back", rebalance()
    yield "and have caught up", rebalance()


def _obeyed(member: Subscription, given: Assignment) -> Subscription:
    opened = given.standby | given.warmup
    return replace(
        member, active=given.active, standby=opened, promised=given.promised, positions=dict.fromkeys(opened, RECORDS)
    )
