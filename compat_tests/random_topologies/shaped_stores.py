"""The stores behind windows and joins: which ones a path has, and each of them on every disk against its changelog.

*Guarantees*: names, kinds and retentions are written down here once more, apart from the runtime's.
*Assumes*: as `judge_store`.
"""

from __future__ import annotations

from collections.abc import Mapping

from compat_tests.harness.judge import judge_store
from compat_tests.harness.world import World
from compat_tests.oracles.changelog import TIMED, Form, end_of, start_of
from compat_tests.oracles.findings import Findings
from compat_tests.random_topologies.plans import Path
from compat_tests.random_topologies.shapes import SESSION, SLIDING, STREAMS, TABLES, TO_TABLE, Join, Windows


def judge_stores(world: World, path: Path, number: int) -> Findings:
    """All stores of one path that lie on disks."""
    found = stores_on_disk(path, number).items()
    return [finding for store, form in found for finding in judge_store(world, store, None, form=form)]


def stores_on_disk(path: Path, number: int) -> Mapping[str, Form]:
    """By name."""
    if path.windows is not None:
        return {} if path.in_memory else {f"store{number}": _of_windows(path.windows)}
    assert path.join is not None
    if path.end == STREAMS:
        return {} if path.in_memory else _of_streams(path.join, f"join{number}")
    right = {f"right{number}": TIMED} if path.end == TABLES else {}
    if path.in_memory:
        return right
    left = {f"left{number}": TIMED} if path.end == TABLES else {}
    return {**right, **left, f"store{number}": TIMED}


def logged_stores(path: Path, number: int) -> list[str]:
    """The names of all stores with a changelog, in memory or not."""
    if path.windows is not None or path.end == TO_TABLE:
        return [f"store{number}"]
    assert path.join is not None
    if path.end == STREAMS:
        return [*_of_streams(path.join, f"join{number}")]
    return [f"left{number}", f"right{number}", f"store{number}"]


def _of_windows(windows: Windows) -> Form:
    if windows.kind == SESSION:
        return Form(False, end_of, windows.size + windows.grace)
    needed_ms = 2 * windows.size if windows.kind == SLIDING else windows.size
    return Form(True, start_of, needed_ms + windows.grace)


def _of_streams(join: Join, name: str) -> Mapping[str, Form]:
    records = Form(False, start_of, max(1, join.before + join.after + join.grace))
    this = f"{name}{'-outer' if join.right_alone else ''}-this-join-store"
    other = f"{name}{'-outer' if join.left_alone else ''}-other-join-store"
    waiting = f"{name}-{'outer' if join.right_alone else 'left'}-shared-join-store"
    return {this: records, other: records, **({waiting: Form(timed=False, history=True)} if join.left_alone else {})}
