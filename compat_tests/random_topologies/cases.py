"""A random case on a real broker, as data: a plan, an application's settings, and what happens to it.

*Guarantees*: a seed and a guarantee decide a case; `Case.parse(case.text()) == case`. Nothing in here starts anything.
*Assumes*: time is counted in batches of input, each some 10 ms: so the same case strikes at about the same moments.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

from compat_tests.random_topologies.plans import Path, Plan, PlanError, as_data, known_fields, need
from compat_tests.random_topologies.random_plans import punctual, random_plan
from milestones.common.testing.faults import POINTS

KINDS = {
    "kill": "`kill -9`, then started again `down` batches later",
    "restart": "a clean stop, then started again `down` batches later",
    "wipe": "a clean stop, its disk emptied, then started again `down` batches later",
    "join": "one more instance",
    "leave": "a clean stop for good",
    "pause": "SIGSTOP for `down` batches, within the session",
    "stall": "SIGSTOP until the group has given it up, then SIGCONT",
    "point": "a clean stop, then started with the fault `point` armed (as in MILESTONES_FAULT), and `down` batches",
    "broker": "the broker is killed and started again",
    "stand": "as `point`, but the process stands still there (SIGSTOP) until Kafka has ended what was open of it",
    "outage": "as `point`, but the process stands still there until the broker is killed and started again",
}
"""What a fault may be, with what happens to the instance number `who` (modulo those that run)."""

T = TypeVar("T")
BEYOND_TRANSACTION_MS = 13_000
"""More than a transaction's 5 s, and the 7 s that the embedded broker takes to look for one that is over. What is
rolled back in a process that lives must leave no trace; `kill -9` alone wouldn't show it: what wasn't flushed to disk
is gone with it."""
SLOW = ("stall", "broker", "stand", "outage")
"""Kinds that take ten seconds and more."""
AT_A_POINT = ("point", "stand", "outage")
OF_THE_BROKER = ("broker", "outage")

COMMITS = tuple(name for name in sorted(POINTS) if name.startswith("commit."))
"""The steps of a commit."""
LIVE = tuple(name for name in sorted(POINTS) if not name.startswith(("ids.", "static.")))
"""All points but those that only a start with other ids than before reaches."""
LONG_SESSION_MS = 60_000
"""A process that stands still for as long as a transaction may last is still a member."""


@dataclass(frozen=True)
class Fault:
    """Struck `after` batches behind the one before it; `calm`: once all that run have said that they do."""

    kind: str
    after: int = 0
    who: int = 0
    down: int = 0
    point: str = ""
    calm: bool = True


@dataclass(frozen=True)
class Case:
    """`batch`: records of one batch of input, over `keys` keys; `rest`: batches behind the last fault. `static`:
    the members are static ones. `cache`: bytes. `seed`: of the inputs. `standbys`, `lag`, `warmups`: what the config
    calls `num_standby_replicas`, `acceptable_recovery_lag` and `max_warmup_replicas`; `workers`:
    `num_processing_threads`; `session_ms`: of the members; `clean_ms`, `purge_ms`: `state_cleanup_delay_ms` and
    `repartition_purge_interval_ms`. `beside`: another stage: every second instance begins as it, and an instance that
    comes back is of the other one."""

    seed: int
    guarantee: str
    plan: Plan
    faults: tuple[Fault, ...] = ()
    instances: int = 1
    threads: int = 1
    batch: int = 20
    keys: int = 10
    rest: int = 10
    cache: int = 0
    static: bool = True
    commit_ms: int = 100
    standbys: int = 0
    lag: int = 10_000
    warmups: int = 2
    session_ms: int = 6_000
    workers: int = 1
    clean_ms: int = 600_000
    purge_ms: int = 30_000
    beside: str = ""

    def __post_init__(self) -> None:
        for fault in self.faults:
            need(fault.kind in KINDS, f"no fault {fault.kind!r}; there are {', '.join(KINDS)}")
            need((fault.kind in AT_A_POINT) == bool(fault.point), f"{fault}: a point, if and only if it is at one")

    def text(self) -> str:
        """As JSON, in one line."""
        return json.dumps(as_data(self))

    @classmethod
    def parse(cls, text: str) -> Case:
        given = known_fields(cls, json.loads(text))
        faults = tuple(Fault(**known_fields(Fault, fault)) for fault in given.get("faults", ()))
        return cls(**{**given, "plan": Plan.of(given["plan"]), "faults": faults})

    @property
    def repeats(self) -> bool:
        """Whether at least once may repeat something: a process dies, or is given up."""
        return any(fault.kind in ("kill", *SLOW) or ":kill:" in fault.point for fault in self.faults)

    @property
    def zombies(self) -> bool:
        """Whether one that was given up may come back. Behind a lost broker everybody may have been."""
        return any(fault.kind in SLOW for fault in self.faults)

    @property
    def outlasts(self) -> bool:
        """Whether a transaction may get too old although nobody dies: a process may be held for so long within one."""
        return any(f":sleep={BEYOND_TRANSACTION_MS}:" in fault.point for fault in self.faults)


def random_case(seed: int, guarantee: str, *, quick: bool = False, broker_faults: bool = True) -> Case:
    """The case of this seed. `quick`: without what takes long, so that it ends within some twenty seconds."""
    rng = random.Random(f"{seed}:{guarantee}")
    plan = punctual(random_plan(rng))
    cached = rng.random() < 0.3
    case = Case(
        seed=seed,
        guarantee=guarantee,
        plan=plan,
        instances=1 if quick else rng.choice([1, 1, 2, 2, 3]),
        threads=rng.choice([1, 1, 2, 3]),
        batch=rng.choice([1, 5, 20, 50, 100]),
        keys=rng.choice([1, 5, 50, 1_000]),
        rest=rng.randrange(30),
        cache=rng.choice([300, 10_000_000]) if cached else 0,
        static=quick or rng.random() < 0.6,
        commit_ms=rng.choice([10, 100, 100, 700]),
        standbys=rng.choice([0, 0, 1, 1, 2]),
        lag=rng.choice([0, 10, 200, 10_000]),
        warmups=rng.choice([1, 2, 10]),
    )
    kinds = [kind for kind in KINDS if not (kind in SLOW and quick) and (broker_faults or kind not in OF_THE_BROKER)]
    weights = [1 if kind in SLOW else {"kill": 4, "point": 8}.get(kind, 2) for kind in kinds]
    chosen = rng.choices(kinds, weights, k=1 if quick else rng.randint(1, 4))
    faults = [replace(_fault(rng, kind, quick), calm=rng.random() < 0.7) for kind in chosen]
    calls = rng.choice([0, min(50, 200 // case.batch)])  # some ten seconds in all, if one after the other
    case = replace(case, faults=tuple(faults), workers=rng.choice([1, 2, 3, 8]), plan=replace(plan, calls=calls))
    return replace(case, clean_ms=rng.choice([0, 200, 600_000]), purge_ms=rng.choice([0, 200, 30_000]))


def mixed(case: Case, beside: str) -> Case:
    """The case in a group of two stages."""
    return replace(case, beside=beside, instances=max(2, case.instances))


def cases_of_commits(seed: int, guarantee: str, times: int, *, broker_faults: bool = True) -> Iterator[Case]:
    """Each fault at each step of a commit, so often, each time over another random topology: all of them once, then all
    of them again."""
    kinds = [kind for kind in AT_A_POINT if broker_faults or kind not in OF_THE_BROKER]
    for number, (_, step, kind) in enumerate(product(range(times), COMMITS, kinds)):
        case = random_case(seed + number, guarantee, quick=True)
        nth = random.Random(f"{seed}:{number}").choice([1, 2, 4, 8])
        action, session_ms = ("kill", case.session_ms) if kind == "point" else ("stop", LONG_SESSION_MS)
        fault = Fault(kind, after=5, down=50, point=f"{step}:{action}:{nth}")
        yield replace(case, faults=(fault,), session_ms=session_ms, commit_ms=min(case.commit_ms, 100))


def _fault(rng: random.Random, kind: str, quick: bool) -> Fault:
    after, who, down = rng.randrange(120), rng.randrange(3), rng.choice([0, 0, 20, 80])
    match kind:
        case "kill" | "restart" | "wipe":
            return Fault(kind, after, who, down)
        case "pause":
            return Fault(kind, after, who, rng.randrange(1, 60))
        case "point":
            actions = ["kill"] * 5 + [f"sleep={ms}" for ms in (50, 500, 2_000)]
            action = rng.choice(actions if quick else [*actions, f"sleep={BEYOND_TRANSACTION_MS}"])
            name = rng.choice(COMMITS if rng.random() < 0.6 else LIVE)
            nth = rng.choice([1, 2, 4, 8, 16] if name in COMMITS else [1, 2])
            return Fault(kind, after, who, rng.randrange(50, 200), f"{name}:{action}:{nth}")
        case "stand" | "outage":
            return Fault(kind, after, who, 0, f"{rng.choice(COMMITS)}:stop:{rng.choice([1, 2, 4, 8, 16])}")
        case _:
            return Fault(kind, after, who)


def simpler(case: Case) -> list[Case]:
    """Smaller cases to try when this one fails, the boldest first."""
    faults, paths = case.faults, case.plan.paths
    found = [replace(case, faults=())] if len(faults) > 1 else []
    found += [replace(case, faults=_without(faults, at)) for at in range(len(faults))]
    found += [_with_paths(case, _without(paths, at)) for at in range(len(paths)) if len(paths) > 1]
    plainer = [_instead(paths, at, one) for at, path in enumerate(paths) for one in _plainer(path)]
    found += [_with_paths(case, some) for some in plainer if _works(some, case)]
    less: list[dict[str, Any]] = [{"instances": 1}, {"threads": 1}, {"cache": 0}, {"static": True}, {"commit_ms": 100}]
    less += [{"beside": ""}, {"clean_ms": 600_000}, {"purge_ms": 30_000}]
    less += [{"standbys": 0}, {"lag": 10_000}, {"warmups": 2}, {"workers": 1}, {"plan": replace(case.plan, calls=0)}]
    less += [{"batch": max(1, case.batch // 4)}, {"keys": max(1, case.keys // 5)}, {"rest": 0}]
    return found + [one for one in (replace(case, **change) for change in less) if one != case]


def _plainer(path: Path) -> list[Path]:
    again = [replace(path, again=0, more=())] if path.again else []
    more = [replace(path, more=())] if path.more else []
    alone = [replace(path, sources=path.sources[:1])] if len(path.sources) > 1 else []
    steps = [replace(path, steps=_without(path.steps, at)) for at in range(len(path.steps))]
    disk = [replace(path, in_memory=False)] if path.in_memory else []
    return again + more + alone + steps + disk


def _without(some: tuple[T, ...], at: int) -> tuple[T, ...]:
    return (*some[:at], *some[at + 1 :])


def _instead(some: tuple[T, ...], at: int, one: T) -> tuple[T, ...]:
    return (*some[:at], one, *some[at + 1 :])


def _with_paths(case: Case, paths: tuple[Path, ...]) -> Case:
    return replace(case, plan=replace(case.plan, paths=paths))


def _works(paths: tuple[Path, ...], case: Case) -> bool:
    """A path without its repartition may not: its sources have other partition counts."""
    try:
        _with_paths(case, paths)
    except PlanError:
        return False
    return True
