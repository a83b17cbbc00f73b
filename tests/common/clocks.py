"""Clocks of machines that are suspended, and whose wall clock is put."""

from __future__ import annotations

from milestones.common.testing import StepClock


class Machine(StepClock):
    """`put` moves the wall clock alone: by a suspension, a time service, a person."""

    def __init__(self) -> None:
        super().__init__()
        self._put_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self._put_ms

    def put(self, ms: int) -> None:
        self._put_ms += ms
