"""Planted: an operator, and an engine, that do something else than the interpreter. Random topologies find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import pytest

from compat_tests.oracles.rows import Row
from compat_tests.random_topologies import interpretation
from compat_tests.random_topologies.plans import Path, Plan
from compat_tests.random_topologies.test_in_the_driver import EXAMPLES, PLANS, check, is_thinned, try_some
from milestones import TimeWindows
from milestones.common.state.engines import rocksdict_engine
from milestones.common.state.stores.session_store import SessionStore
from milestones.common.topology.operators.table_joins import TableJoin
from milestones.common.topology.program import Process

NO_CACHE: dict[str, Any] = {"statestore_cache_max_bytes": 0}


def test_a_wrong_operator_is_found_in_the_smallest_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(interpretation.STEPS, "tag", lambda key, value: [(key, value)])

    def differs(plan: Plan) -> bool:
        try:
            check(plan, [Row("in0", 0, 0, b"a", b"b", 1)], NO_CACHE)
        except AssertionError:
            return True
        return False

    settings = hypothesis.settings(max_examples=500, database=None, derandomize=True, deadline=None)
    found = hypothesis.find(PLANS, differs, settings=settings)
    assert [(*path.steps, *path.more) for path in found.paths] == [("tag",)]


def test_an_upper_bound_that_is_freed_while_a_scan_goes_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = rocksdict_engine._RocksdictCursor.__init__

    def freeing(cursor: Any, *arguments: Any) -> None:
        opened(cursor, *arguments)
        del cursor._options

    monkeypatch.setattr(rocksdict_engine._RocksdictCursor, "__init__", freeing)
    rows = [Row("in0", 0, number, b"k%d" % (number % 5), b"v%d" % number, number) for number in range(200)]
    with pytest.raises(AssertionError):
        check(Plan((Path((), "slots"),)), rows, NO_CACHE)


def inclusive_ends(windows: TimeWindows, timestamp: int) -> range:
    """The starts of the windows of a time, with those that end then."""
    size_ms, advance_ms = windows.size_ms, windows.advance_ms
    first = max(0, -((size_ms - timestamp) // advance_ms) * advance_ms)
    return range(first, timestamp + 1, advance_ms)


def one_ms_more(kind: type[TimeWindows]) -> Callable[[Any], None]:
    made = kind.__post_init__

    def make(windows: TimeWindows) -> None:
        made(windows)
        object.__setattr__(windows, "grace_ms", windows.grace_ms + 1)

    return make


def without_tombstones(join: TableJoin, context: Any) -> Process:
    process = BIND_A_JOIN(join, context)

    def update(key: Any, change: Any, timestamp: int) -> None:
        if change[0] is not None:
            process(key, change, timestamp)

    return update


def only_the_first(store: Any, *where: Any) -> Any:
    key, found = NEAR_SESSIONS(store, *where)
    return key, found[:1]


BIND_A_JOIN, NEAR_SESSIONS = TableJoin.bind, SessionStore.near

PLANTED: dict[str, tuple[Any, str, Any]] = {
    "a window's end is inclusive": (TimeWindows, "starts", inclusive_ends),
    "grace is off by one": (TimeWindows, "__post_init__", one_ms_more(TimeWindows)),
    "a tombstone is lost in a join of tables": (TableJoin, "bind", without_tombstones),
    "a session isn't merged": (SessionStore, "near", only_the_first),
}
"""By what is wrong: the class, the name, and what is put in its place."""


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_of_windows_or_joins_is_found_by_the_topologies_of_the_short_selection(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(*PLANTED[fault])
    with pytest.raises(AssertionError):
        try_some(EXAMPLES["short"], seed=1)


def test_a_cache_may_thin_changes_out_but_not_swap_or_drop_the_last() -> None:
    one, two, three = ((b"k", bytes([number]), 1) for number in (1, 2, 3))
    assert is_thinned([one, three], [one, two, three])
    assert not is_thinned([two, one, three], [one, two, three])
    assert not is_thinned([one, two], [one, two, three])
    assert not is_thinned([one, three, three], [one, two, three])


def test_only_a_deletion_of_what_nobody_saw_may_stay_unseen() -> None:
    put, deleted = (b"k", b"v", 1), (b"k", None, 2)
    assert is_thinned([], [put, deleted])
    assert not is_thinned([put], [put, deleted])
    assert not is_thinned([], [deleted, put])
