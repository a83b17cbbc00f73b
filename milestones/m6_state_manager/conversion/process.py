"""The program of a conversion's helper process: it does the jobs that it reads from its standard input, one per line.

*Guarantees*: the process ends as soon as its input is closed, even in the middle of a job.
*Assumes*: a `ConversionHelper` starts it, and the runtime never imports it.
"""

from __future__ import annotations

import os
import sys
import threading
from queue import SimpleQueue

from milestones.m6_state_manager.conversion.helpers import answer, read
from milestones.m6_state_manager.conversion.layouts import Converter


def main() -> None:
    """Do jobs until the parent has ended."""
    lines: SimpleQueue[str] = SimpleQueue()

    def take() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=take, daemon=True).start()
    converter = Converter()
    while True:
        sys.stdout.write(answer(read(lines.get()), converter.convert))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
