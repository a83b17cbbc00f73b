"""One conversion in a process of its own: `python -m benchmarks.convert.once WAY STATE_DIR`.

It says `BEGUN` before it begins, and ends with exit code 0 once all is converted.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.convert.kills import BEGUN
from benchmarks.convert.work import convert_once

if __name__ == "__main__":
    convert_once(sys.argv[1], Path(sys.argv[2]), begins=lambda: print(BEGUN, flush=True))
