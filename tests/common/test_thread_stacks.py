"""Where threads are can be asked at any time."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

import milestones
from milestones.common.thread_stacks import frames, in_user_code


def test_each_thread_has_its_innermost_frame() -> None:
    at, on = threading.Event(), threading.Event()

    def somewhere() -> None:
        at.set()
        on.wait()

    thread = threading.Thread(target=somewhere)
    thread.start()
    at.wait()
    frame = frames()[thread.ident or 0]
    callers = []
    while frame is not None:
        callers.append(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    on.set()
    thread.join()
    assert "somewhere" in callers


def test_no_garbage_is_collected_while_python_makes_the_answer() -> None:
    """What is collected may let another thread run: then both may stand for ever, and all others with them."""
    on = threading.Event()
    threads = [threading.Thread(target=on.wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    collected_in: list[CodeType] = []
    before = gc.get_threshold()

    def note(phase: str, info: dict[str, int]) -> None:
        collected_in.append(sys._getframe(1).f_code)

    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        for _ in range(20):
            frames()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
        on.set()
        for thread in threads:
            thread.join()
    assert frames.__code__ not in collected_in


@pytest.mark.parametrize("collects", [True, False])
def test_whether_garbage_is_collected_stays_as_it_was(collects: bool) -> None:
    (gc.enable if collects else gc.disable)()
    try:
        frames()
        assert gc.isenabled() is collects
    finally:
        gc.enable()


def test_a_folder_beside_this_package_whose_name_begins_alike_is_the_users() -> None:
    def frame(path: str, back: Any = None) -> Any:
        return SimpleNamespace(f_code=SimpleNamespace(co_filename=path), f_back=back)

    package = Path(milestones.__file__).parent
    ours = frame(f"{package}/common/task/runner.py")
    theirs = frame(f"{package}_app/words.py", ours)
    assert in_user_code(ours) is None
    assert in_user_code(theirs) is theirs
