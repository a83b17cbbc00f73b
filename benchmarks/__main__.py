"""`python -m benchmarks`."""

from __future__ import annotations

import signal
import sys

from benchmarks.cli import main

if __name__ == "__main__":
    # As Ctrl-C: else the processes of a run would outlive it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
