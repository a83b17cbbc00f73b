"""A simulated group for tests of assignors: members that do what they are told, state that gets restored, time.

*Guarantees*: deterministic. `rebalance` checks the promises of docs/assignment.md that hold at every moment.
*Assumes*: restoring is instantaneous, but happens only in `pass_time`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from milestones.common.assignment.handover import assign
from milestones.common.assignment.lags import with_lags
from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Assignor, Rules
from milestones.common.records import TaskId, TopicPartition


def plan_of(sizes: Iterable[int], stateful: Iterable[int] = (), fingerprint: str = "same") -> TaskPlan:
    """Sub-topologies of these sizes; those whose number is in `stateful` have a changelog."""
    tasks = {TaskId(sub, p): (TopicPartition(f"t{sub}", p),) for sub, size in enumerate(sizes) for p in range(size)}
    keeps = set(stateful)
    return TaskPlan(
        tasks=tasks,
        changelogs={t: (TopicPartition(f"c{t.subtopology}", t.partition),) for t in tasks if t.subtopology in keeps},
        repartition_counts={},
        changelog_counts={},
        missing_topics=frozenset(),
        problems=(),
        fingerprint=fingerprint,
    )


def member(
    process: str = "p", capacity: int = 1, active: frozenset[TaskId] = frozenset(), **other: object
) -> Subscription:
    what = {"topics": (), "fingerprint": "same", "stage": "baseline", **other}
    return Subscription(process_id=process, capacity=capacity, active=active, **what)  # type: ignore[arg-type]


@dataclass
class Member:
    process: str
    capacity: int
    tags: Mapping[str, str] = field(default_factory=dict)
    active: frozenset[TaskId] = frozenset()
    opened: frozenset[TaskId] = frozenset()
    warming: frozenset[TaskId] = frozenset()
    promised: frozenset[TaskId] = frozenset()
    stage: str = "baseline"


class Cluster:
    """`ends` by stateful task; `disk` has the positions by process, `restoring` the actives that aren't running yet."""

    def __init__(self, plan: TaskPlan, rules: Rules, assignor: Assignor | str = "high_availability") -> None:
        self.plan, self.rules, self.assignor = plan, rules, assignor
        self.members: dict[str, Member] = {}
        self.ends = dict.fromkeys(sorted(plan.stateful), 0)
        self.disk: dict[str, dict[TaskId, int]] = defaultdict(dict)
        self.restoring: set[TaskId] = set()
        self.lags_known = True

    # ---- what happens to it ----

    def join(
        self, name: str, process: str, capacity: int = 1, tags: Mapping[str, str] | None = None, stage: str = "baseline"
    ) -> None:
        self.members[name] = Member(process, capacity, tags or {}, stage=stage)

    def drop(self, name: str) -> None:
        """Killed: what it ran keeps its last position, if it had one."""
        self.restoring -= self.members.pop(name).active

    def grow(self, records: int) -> None:
        """Every task that runs writes so much."""
        for name, m in self.members.items():
            for task in m.active & self.ends.keys() - self.restoring:
                self.ends[task] += records
                self.disk[self.members[name].process][task] = self.ends[task]

    def pass_time(self, slow: Iterable[TaskId] = ()) -> None:
        """Everything that is open gets all there is, but warm-ups of the `slow` tasks."""
        late = set(slow)
        for m in self.members.values():
            for task in m.active | m.opened:
                if task in self.ends and not (task in m.warming and task in late):
                    self.disk[m.process][task] = self.ends[task]
        self.restoring.clear()

    # ---- rebalances ----

    def subscriptions(self) -> dict[str, Subscription]:
        found: dict[str, Subscription] = {}
        first = {m.process: name for name, m in sorted(self.members.items(), reverse=True)}
        for name, m in self.members.items():
            mates = [other for other in self.members.values() if other.process == m.process]
            elsewhere = frozenset[TaskId]().union(*(other.active | other.opened for other in mates if other is not m))
            running = m.active - self.restoring
            positions = {
                task: position
                for task, position in self.disk[m.process].items()
                if task not in running
                and task not in elsewhere
                and (task in m.opened or task in m.active or first[m.process] == name)
            }
            found[name] = member(
                m.process,
                m.capacity,
                m.active,
                standby=m.opened,
                positions=positions,
                client_tags=m.tags,
                promised=m.promised,
                stage=m.stage,
            )
        return found

    def ask(self) -> tuple[Mapping[str, Subscription], dict[str, Assignment]]:
        said = self.subscriptions()
        members = with_lags(said, self.ends if self.lags_known else {})
        return members, assign(members, self.plan, self.rules, self.assignor)

    def rebalance(self) -> bool:
        """One round; whether it changed anything, or another is due."""
        members, result = self.ask()
        check_round(members, self, result)
        changed = False
        owners = {task: name for name, m in self.members.items() for task in m.active}
        for name, a in result.items():
            m = self.members[name]
            opened = a.standby | a.warmup
            changed |= a.followup or (m.active, m.opened, m.warming) != (a.active, opened, a.warmup)
            self.restoring -= m.active - a.active
            for task in a.active - m.active:
                assert task not in owners, f"{task} is given to {name} while {owners[task]} runs it"
                if self.disk[m.process].get(task, 0) < self.ends.get(task, 0):
                    self.restoring.add(task)
            for task in opened | (a.active & self.ends.keys()):
                self.disk[m.process].setdefault(task, 0)
            m.active, m.opened, m.warming, m.promised = a.active, opened, a.warmup, a.promised
        return changed

    # ---- what there is ----

    def caught_up(self, task: TaskId) -> set[str]:
        """The processes that are."""
        limit = self.rules.acceptable_recovery_lag
        return {
            p
            for p in {m.process for m in self.members.values()}
            if self.ends[task] - self.disk[p].get(task, 0) <= limit
        }

    def home(self) -> dict[TaskId, str]:
        return {task: m.process for m in self.members.values() for task in m.active}

    def table(self) -> str:
        """By process and member: what it runs, *warms up*, (keeps as a standby)."""
        lines = []
        for name, m in sorted(self.members.items(), key=lambda item: (item[1].process, item[0])):
            words = [f"{t}" for t in sorted(m.active)]
            words += [f"*{t}*" for t in sorted(m.warming)] + [f"({t})" for t in sorted(m.opened - m.warming)]
            lines.append(f"{m.process:>6} {name:>6} x{m.capacity}  {' '.join(words)}")
        return "\n".join(lines)


def groups_of(plan: TaskPlan) -> list[set[TaskId]]:
    """The sets of tasks each of which is shared evenly."""
    groups = [set(plan.tasks), set(plan.stateful), plan.tasks.keys() - plan.stateful]
    return groups + [{t for t in plan.tasks if t.subtopology == s} for s in {t.subtopology for t in plan.tasks}]


def check_round(members: Mapping[str, Subscription], cluster: Cluster, result: Mapping[str, Assignment]) -> None:
    """What holds in every round."""
    plan, rules = cluster.plan, cluster.rules
    assert result.keys() == members.keys()
    assert all(a.error is None for a in result.values())
    given = Counter(task for a in result.values() for task in a.active)
    assert all(count == 1 for count in given.values()), "a task is active twice"
    owned = {task: name for name, m in members.items() for task in m.active if task in plan.tasks}
    for task in plan.tasks.keys() - given.keys():
        assert task in owned, f"nobody gets {task}"
        assert all(a.followup for a in result.values())
    extra = 0
    copies: dict[TaskId, set[str]] = defaultdict(set)
    for name, a in result.items():
        process = members[name].process_id
        assert a.partitions == {task: plan.tasks[task] for task in a.active}
        assert not a.standby & a.warmup
        assert not a.active & (a.standby | a.warmup)
        assert a.standby | a.warmup <= plan.stateful
        for task in a.standby | a.warmup:
            assert process not in copies[task], f"{task} is twice on {process}"
            copies[task].add(process)
    keepers = {m.process_id for m in members.values() if m.keeps_copies}
    elsewhere = {m.process_id for m in members.values()} - keepers
    assert not elsewhere & set().union(*copies.values()), "a copy is where none can be kept"
    wanted = min(rules.num_standby_replicas, max(0, len(keepers) - 1))
    most = min(rules.num_standby_replicas, len(keepers)) if elsewhere else wanted
    for task in plan.stateful:
        running = {members[name].process_id for name, a in result.items() if task in a.active}
        assert not running & copies[task], f"a copy of {task} is where it runs"
        assert len(copies[task]) >= wanted, f"{task} has {len(copies[task])} standbys"
        held = 0 if running else 1  # what the new owner keeps open until the old one has released it
        extra += max(0, len(copies[task]) - most - held)
    _check_members(members, plan, result)
    if cluster.assignor == "high_availability":
        assert extra <= rules.max_warmup_replicas, f"{extra} warm-ups"
        if cluster.lags_known:
            _check_caught_up(members, cluster, result)


def _check_members(members: Mapping[str, Subscription], plan: TaskPlan, result: Mapping[str, Assignment]) -> None:
    """Each process's tasks, those to come included, are balanced over its members."""
    groups = groups_of(plan)
    for process in {m.process_id for m in members.values()}:
        mates = [name for name, m in members.items() if m.process_id == process]
        for group in groups if len(mates) > 1 else ():
            loads = [len((result[n].active | result[n].promised) & group) / members[n].capacity for n in mates]
            assert max(loads) - min(loads) <= 1 + 1e-9, f"members of {process} have {loads}"


def _check_caught_up(members: Mapping[str, Subscription], cluster: Cluster, result: Mapping[str, Assignment]) -> None:
    """Never placed, or moved, where the state isn't, while it is elsewhere."""
    home = cluster.home()
    processes = {m.process_id for m in members.values()}
    for name, a in result.items():
        process = members[name].process_id
        for task in a.active & cluster.ends.keys() if members[name].keeps_copies else ():
            caught = cluster.caught_up(task)
            assert not caught or process in caught, f"{task} runs on {process}, but caught up are {caught}"
            lags = {p: cluster.ends[task] - cluster.disk[p].get(task, 0) for p in processes}
            if not caught and task not in home:
                assert lags[process] == min(lags.values()), f"{task} runs on {process}, lags are {lags}"


def loads_of(cluster: Cluster, tasks: Iterable[TaskId], *, process: str | None = None) -> list[float]:
    """Tasks per unit of capacity: of each process, or of each member of one."""
    wanted = set(tasks)
    load: dict[str, int] = defaultdict(int)
    capacity: dict[str, int] = defaultdict(int)
    for name, m in cluster.members.items():
        if process in (None, m.process):
            key = m.process if process is None else name
            load[key] += len(m.active & wanted)
            capacity[key] += m.capacity
    return [load[key] / capacity[key] for key in load]


def check_balance(cluster: Cluster) -> None:
    for group in groups_of(cluster.plan):
        for process in (None, *{m.process for m in cluster.members.values()}):
            loads = loads_of(cluster, group, process=process)
            assert max(loads) - min(loads) <= 1 + 1e-9, (process, loads)


def settle(cluster: Cluster) -> None:
    """Rebalance, and let everything catch up, until nothing changes."""
    for _ in range(200):
        if not cluster.rebalance() and not any(m.warming for m in cluster.members.values()):
            check_balance(cluster)
            return
        cluster.pass_time()
    raise AssertionError("it doesn't converge")
