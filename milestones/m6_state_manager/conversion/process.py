"""A helper process of a conversion: it does the jobs that come on its standard input, a line each.

*Guarantees*: it ends as soon as its input does, in the middle of a job, too.
*Assumes*: started by a `ConversionHelper`, and never imported by the runtime.
"""

from __future__ import annotations

import os
import sys
import threading
from queue import SimpleQueue

from milestones.m6_state_manager.conversion.helpers import answer, read
from milestones.m6_state_manager.conversion.layouts import Converter


def main() -> None:
    """Do the jobs, until the parent is gone."""
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
