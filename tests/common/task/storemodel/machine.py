"""The store model: random lives of two tasks of one store, side by side, against plain dicts.

*Guarantees*: a run is what hypothesis decides; what it found lies in `WrongStoreError`.
*Assumes*: a derived class says which `engines` there are and where the `home` of state is.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from milestones.common import serdes
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engine import Engines
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.storage import StateManager
from milestones.common.state.write_behind import WaitingCommits
from milestones.common.testing import StepClock
from tests.common.task.storemodel.calls import KINDS, VALUES, Draw
from tests.common.task.storemodel.lives import Life
from tests.common.task.storemodel.setting import STORE, How, need
from tests.shared_memory import roomy

WHO = st.sampled_from([0, 0, 0, 1])
TODO = st.builds(lambda seed, count: Draw(seed).calls(count), st.integers(0, 2**32), st.integers(0, 8))
THEN = st.sampled_from(["", "send", "flush", "commit", "commit"])

EITHER = (False, True)
SETTINGS: Mapping[str, Sequence[Any]] = {
    "kind": sorted(KINDS), "values": sorted(VALUES), "logged": [True, True, True, False], "cache": [0, 0, 700, 10**6],
    "remembered": [0, 700, 5_000, 1 << 20], "exactly_once": EITHER, "skipping": EITHER, "listening": EITHER,
    "old_values": EITHER, "at_commit": EITHER,
}  # fmt: skip
"""What a life's settings are drawn from."""


def drawn(name: str) -> st.SearchStrategy[Any]:
    """A value of this setting, of those that the machine has."""
    return st.runner().flatmap(lambda machine: st.sampled_from({**SETTINGS, **machine.only}[name]))


class StoreMachine(RuleBasedStateMachine):
    """`persistent`: the stores are on disk, by `engines`, in the form of `manager`; commits wait as `waiting` says.
    `only`: what some settings are drawn from, where lives of these are looked for."""

    engines: Engines
    persistent: bool
    waiting: tuple[int, int] = 0, 0
    """Bytes, and ms."""
    manager: Callable[[StateDirectory, Engines, str], StateManager] = LocalStateManager
    only: Mapping[str, Sequence[Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="store-model-", dir=roomy()))
        self.clock = StepClock(1_000_000)
        manager = type(self).manager
        self.state = manager(StateDirectory(self.home, "app", self.clock), self.engines, "test")
        self.behind = WaitingCommits(*self.waiting)
        self.lives: dict[int, Life] = {}

    @initialize(**{name: drawn(name) for name in SETTINGS})
    def begin(self, kind: str, values: str, logged: bool, cache: int, remembered: int, **how: Any) -> None:
        cache = 0 if how["at_commit"] else cache  # where stores log at a commit, none has a cache
        reference = KINDS[kind](VALUES[values])
        spec = StoreSpec(
            STORE, kind, persistent=self.persistent, logged=logged, cached=cache > 0, key_serde=serdes.BYTES,
            value_serde=reference.values.serde,
        )  # fmt: skip
        self.how = How(reference, spec, caches=RecordCaches(cache), read_caches=ReadCaches(remembered), **how)

    def life(self, who: int) -> Life:
        if who not in self.lives:
            self.lives[who] = Life(who, self.how, self.state, self.clock, self.behind)
        return self.lives[who]

    # Each step begins with calls of the store: hypothesis leaves some steps out of an example.

    @rule(who=WHO, todo=TODO, timestamp=st.integers(1, 9), then=THEN)
    def record(self, who: int, todo: list[Any], timestamp: int, then: str) -> None:
        life = self.life(who)
        life.record(todo, timestamp)
        if then:
            getattr(life, then)()

    @rule(who=WHO, todo=TODO, by_clock=st.booleans())
    def without_record(self, who: int, todo: list[Any], by_clock: bool) -> None:
        """A punctuation, or a call from outside."""
        life = self.life(who)
        (life.punctuate if by_clock else life.call)(todo)

    @rule(who=WHO, todo=TODO, meanwhile=TODO, how=st.sampled_from(["confirm", "apply", "fail"]))
    def commit(self, who: int, todo: list[Any], meanwhile: list[Any], how: str) -> None:
        """With a record between its two ends. A commit that fails is thawed, or, exactly once, rolled back."""
        life = self.life(who)
        life.record(todo, 5)
        if life.pending is None:
            life.freeze()
        life.record(meanwhile, 6)
        if life.pending is None:
            return
        if how == "fail":
            (life.roll_back if self.how.exactly_once else life.thaw)()
            return
        life.confirm()
        if how == "apply":
            life.apply()

    @rule(who=WHO, todo=TODO)
    def roll_back(self, who: int, todo: list[Any]) -> None:
        self.life(who).record(todo, 5)
        self.life(who).roll_back()

    @rule(
        who=WHO, todo=TODO, clean=st.booleans(), wiped=st.booleans(), interrupted=st.booleans(),
        killed=st.booleans(), batch=st.integers(1, 30),
    )  # fmt: skip
    def restart(self, who: int, todo: list[Any], **how: Any) -> None:
        self.life(who).record(todo, 5)
        self.life(who).restart(**how)

    @rule(
        who=WHO, todo=TODO, seed=st.integers(0, 2**32), batch=st.integers(1, 30), batches=st.integers(0, 3),
        closed=st.booleans(),
    )  # fmt: skip
    def recycle(self, who: int, todo: list[Any], seed: int, **how: Any) -> None:
        self.life(who).record(todo, 5)
        self.life(who).recycle([(key, number) for key, number, _ in Draw(seed).entries()], **how)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else the error of the step is the one to show
                for life in self.lives.values():
                    life.end()
                left = self.how.caches.taken, self.how.read_caches.memory_bytes()
                need(left == (0, 0), f"caches of closed stores have {left}")
        finally:
            for life in self.lives.values():
                life.task.close()
            self.state.release()
            shutil.rmtree(self.home)
