"""Every public method of every kind of store does what a dict with times does, by the records of a task: in memory and
on disk, with a cache and without one, whatever its life is, and whatever user code does with the lists that it has
given and got. `test_store_model.py` has the key-value kinds.

As unit tests these are the same lives each time; `--hypothesis-profile soak` tries others, as many as the profile says.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreKind
from milestones.common.state.stores.kinds import KINDS
from tests.common.task.storemodel import calls
from tests.common.task.storemodel.bounded_lives import KindLife, planned
from tests.common.task.storemodel.bounded_models import ALL
from tests.common.task.storemodel.called_methods import count_calls
from tests.common.task.test_store_model import SOAK
from tests.common.topology.test_lives_of_times import AFTER_A_COMMIT, EVENTS, Life
from tests.shared_memory import roomy

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.timeout(36_000)]

EXAMPLES = {"in memory": 20, "on disk": 5}
CACHED: frozenset[StoreKind] = frozenset({
    "window", "timestamped-window", "timestamped-window-with-headers", "session", "session-with-headers",
})  # fmt: skip
KEEP_THE_DISK = (Life.roll_back, Life.die)


def lived(name: str, place: str, seed: int, *, count: int, exactly_once: bool, at_commit: bool, cached: bool) -> None:
    """One life, on which nothing was wrong."""
    named, rng = ALL[name], random.Random(seed)
    # No changelog says which entry of an LRU store was read last. At least once, none says what was rolled back: the
    # order of its writes is another one then, and so are the times of a versioned store's versions.
    reads = name != "lru" or rng.random() < 0.5
    moves = (exactly_once or name not in ("lru", "versioned")) and (name != "lru" or not reads)
    model = named.model()
    model.in_memory = place == "in memory"
    steps = planned(name, model, seed, count, reads=reads)
    with ExitStack() as stack:
        home = None
        if place == "on disk":
            home = Path(stack.enter_context(TemporaryDirectory(prefix="every-kind-", dir=roomy())))
        cached = cached and named.kind in CACHED and not at_commit and not named.more.get("duplicates")
        life = KindLife(
            named, steps, engines=open_engines("rocksdict"), home=home, cached=cached, exactly_once=exactly_once,
            logs_at_commit=at_commit,
        )  # fmt: skip
        stack.callback(life.close)

        def happens(*events: Callable[[Life], None]) -> None:
            possible = [event for event in events if moves or event in KEEP_THE_DISK]
            getattr(life, rng.choice(possible).__name__)()

        while not life.done:
            for _ in range(rng.randint(1, 4)):
                life.process()
            assert not life.wrong
            if rng.random() < 0.6:
                life.commit()
                if rng.random() < 0.4:
                    happens(*AFTER_A_COMMIT)
            if rng.random() < 0.3:
                happens(*EVENTS[exactly_once])
        assert not life.wrong


def chosen(soak: bool, place: str) -> settings:
    if soak:
        return settings(settings.get_profile(SOAK))
    return settings(
        max_examples=EXAMPLES[place], deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


@pytest.mark.parametrize("place", EXAMPLES)
@pytest.mark.parametrize("name", ALL)
def test_a_store_does_what_a_dict_with_times_does(name: str, place: str, pytestconfig: pytest.Config) -> None:
    @chosen(pytestconfig.getoption("hypothesis_profile", None) == SOAK, place)
    @given(
        seed=st.integers(0, 2**32), count=st.integers(20, 40), exactly_once=st.booleans(), at_commit=st.booleans(),
        cached=st.booleans(),
    )  # fmt: skip
    def lives(**how: Any) -> None:
        lived(name, place, **how)

    lives()


OF_THE_TASK = {
    "open", "close", "flush", "merge", "drop_scope", "pack", "packed", "unpacked_bytes", "part_of_keys",
    "is_written_by",
}  # fmt: skip
"""The task calls these, or the program that is compiled for it."""
OF_THE_CACHE = {"set_flush_listener"}
"""`test_caching.py` has these."""
BY_NOBODY = {
    (kind, name)
    for kind in ("timestamped-window", "timestamped-window-with-headers")
    for name in ("put_raw", "delete_raw", "put_encoded", "encode", "rows_between")
} | {("expiring-key-value", "delete_raw")}
"""What windows inherit from stores by key, and from plain ones of duplicates; and what no operator has."""


def test_every_public_method_of_every_kind_of_store_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {named.kind for named in ALL.values()} == KINDS.keys() - calls.KINDS.keys()
    kinds = {named.kind for named in ALL.values()}
    public, called = count_calls(monkeypatch, kinds, OF_THE_TASK | OF_THE_CACHE)
    for name in ALL:
        for seed in range(30):
            lived(name, "in memory", seed, count=20, exactly_once=True, at_commit=False, cached=False)
    assert public - called.keys() - BY_NOBODY == set()
