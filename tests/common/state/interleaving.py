"""What another thread may do between any two steps of a call, done there: each place once, the same every time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def beside(module: ModuleType, call: Callable[[], T], meanwhile: Callable[[], object], place: int) -> tuple[T, bool]:
    """The result of `call`, with `meanwhile` done before the bytecode number `place` that it runs in `module`; and
    whether there is one."""
    left = place

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)
                meanwhile()
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(former)
    return result, left <= 0


def at_every_place(module: ModuleType, prepare: Callable[[], tuple[Callable[[], T], Callable[[], object]]]) -> list[T]:
    """The results of calls into `module`, each made anew together with what happens beside it, which happens one
    bytecode later each time."""
    results: list[T] = []
    while True:
        result, met = beside(module, *prepare(), len(results) + 1)
        if not met:
            assert len(results) > 5  # bytecodes: the call was traced
            return results
        results.append(result)
