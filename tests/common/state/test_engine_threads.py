"""What several threads may do in one engine at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from milestones.common.errors import StateError
from milestones.common.state.engine import Engine, Engines
from milestones.common.state.engines import rocks_namespace
from tests.common.state.interleaving import at_every_place

THREADS, ROUNDS = 6, 15


def side_by_side(work: Callable[[int], None]) -> None:
    """`work` of each number, each on a thread of its own, all beginning at once. Raises what one of them raises."""
    start = threading.Barrier(THREADS)

    def begin(number: int) -> None:
        start.wait(60)
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(begin, number) for number in range(THREADS)]:
            done.result()


def entries(number: int, turn: int) -> dict[bytes, bytes | None]:
    return {b"%d-%03d" % (number, key): b"%d" % turn for key in range(100)}


def come_and_go(engine: Engine, number: int) -> None:
    """Two namespaces of a thread: one stays, the other is dropped and made anew in each turn."""
    kept, passing = f"kept-{number}", f"passing-{number}"
    stays = engine.open(kept)
    for turn in range(ROUNDS):
        comes = engine.open(passing)
        assert (list(comes.scan(None, None)), comes.offset()) == ([], None)
        engine.apply({kept: entries(number, turn), passing: entries(number, turn)}, {kept: turn, passing: turn})
        for namespace in (stays, comes):
            assert dict(namespace.scan(None, None)) == entries(number, turn)
            assert (namespace.get(b"%d-007" % number), namespace.offset()) == (b"%d" % turn, turn)
        engine.drop(passing)


def test_threads_open_apply_and_drop_namespaces_of_one_engine_and_none_disturbs_another(
    any_engines: Engines, tmp_path: Path
) -> None:
    engine = any_engines.open(tmp_path / "engine")
    over = threading.Event()
    failed: list[Exception] = []

    def observe() -> None:
        try:
            while not over.is_set():
                engine.statistics()
                engine.memory()
        except Exception as error:
            failed.append(error)

    observer = threading.Thread(target=observe)
    observer.start()
    try:
        side_by_side(lambda number: come_and_go(engine, number))
    finally:
        over.set()
        observer.join()
    assert failed == []
    if any_engines.name != "memory":
        engine.close()
        engine = any_engines.open(tmp_path / "engine")
    for number in range(THREADS):
        kept = engine.open(f"kept-{number}")
        assert (dict(kept.scan(None, None)), kept.offset()) == (entries(number, ROUNDS - 1), ROUNDS - 1)
        passing = engine.open(f"passing-{number}")
        assert (list(passing.scan(None, None)), passing.offset()) == ([], None)
    engine.close()


def test_threads_that_open_a_namespace_at_once_get_the_same_one(any_engines: Engines, tmp_path: Path) -> None:
    engine = any_engines.open(tmp_path / "engine")
    for turn in range(5):
        opened: list[object] = []
        side_by_side(lambda _, name=f"one-{turn}", opened=opened: opened.append(engine.open(name)))  # type: ignore[misc]
        assert len(set(map(id, opened))) == 1
    engine.close()
    if any_engines.name != "memory":
        engine = any_engines.open(tmp_path / "engine")
        assert len(engine._namespaces.families) == 5  # type: ignore[attr-defined]
        engine.close()


def observe_to_the_end(engine: Engine, asked: threading.Event) -> str:
    """How the engine refuses to be asked, in the end."""
    try:
        while True:
            engine.memory()
            engine.statistics()
            asked.set()
    except StateError as error:
        return str(error)


def test_an_engine_that_is_closed_beside_an_observer_ends_neither(any_engines: Engines, tmp_path: Path) -> None:
    for turn in range(5):
        engine = any_engines.open(tmp_path / f"engine-{turn}")
        for number in range(3):
            engine.open(f"store-{number}")
        asked = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            refused = pool.submit(observe_to_the_end, engine, asked)
            assert asked.wait(60)
            engine.close()
            assert "closed" in refused.result(60)


A, B = (b"a", b"1"), (b"b", b"1")
BESIDE: dict[str, tuple[Callable[[Engine], object], bytes, list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = {
    "a write": (lambda engine: engine.apply({"s": {b"a": b"2"}}, {"s": 2}), b"a", [A, B], [(b"a", b"2"), B]),
    "a write where nothing was": (lambda engine: engine.apply({"s": {b"c": b"2"}}, {"s": 2}), b"c", [], [(b"c", b"2")]),
    "an expiry": (lambda engine: engine.expire("s", [(b"", b"b")]), b"a", [A, B], [B]),
}
"""By its name a change, and what a read from that key on finds before it and after it."""


@pytest.mark.parametrize("read_before", [True, False])
@pytest.mark.parametrize("case", BESIDE)
def test_what_is_read_after_a_write_is_the_write_s_wherever_it_met_a_read(
    disk_engines: Engines, tmp_path: Path, case: str, read_before: bool
) -> None:
    change, start, before, then = BESIDE[case]
    engine = disk_engines.open(tmp_path / "engine")

    def prepare() -> tuple[Callable[[], tuple[list[tuple[bytes, bytes]], ...]], Callable[[], object]]:
        engine.drop("s")
        engine.open("s")
        engine.apply({"s": dict([A, B])}, {"s": 1})
        if read_before:
            assert engine.open("s").scan_bounded(start, b"z", 5) == before
        changed: list[bool] = []

        def read() -> tuple[list[tuple[bytes, bytes]], ...]:
            beside = engine.open("s").scan_bounded(start, b"z", 5)
            sys.settrace(None)  # what follows is after both
            if not changed:
                change(engine)
            return beside, engine.open("s").scan_bounded(start, b"z", 5)

        return read, lambda: (changed.append(True), change(engine))

    for beside, after in at_every_place(rocks_namespace, prepare):
        assert beside in (before, then)
        assert after == then
    engine.close()
