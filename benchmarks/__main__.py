"""`python -m benchmarks`."""

from __future__ import annotations

import sys

from benchmarks.cli import main
from milestones.common.kafka.embedded.command import sigterm_interrupts

if __name__ == "__main__":
    with sigterm_interrupts():  # else the processes of a run would outlive it
        sys.exit(main())
