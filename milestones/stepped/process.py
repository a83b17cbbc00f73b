"""`SteppedProcess`: one life of a stepped application, which a crash ends.

*Guarantees*: after the crash no call of this process changes Kafka or the disk. So code that runs while the crash
unwinds the stack, such as a `finally`, has no effect, as if the process had been killed.
*Assumes*: clients and stores call `check` before they change something.
"""

from __future__ import annotations

from typing import NoReturn


class ProcessCrashed(BaseException):  # not an Exception, so that no handler of the runtime answers it
    """Raised where the process crashes, and by each later call of the crashed process."""


class SteppedProcess:
    """One life of a stepped application. `crashed`: True from the crash on."""

    def __init__(self) -> None:
        self.crashed = False

    def check(self) -> None:
        """Raise `ProcessCrashed` after the crash."""
        if self.crashed:
            raise ProcessCrashed

    def crash(self) -> NoReturn:
        """Mark the process as crashed, and raise `ProcessCrashed`."""
        self.crashed = True
        raise ProcessCrashed
