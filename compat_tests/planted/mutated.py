"""An application under test on a broken runtime: `python -m compat_tests.planted.mutated MUTATION TOPOLOGY ...`.

*Guarantees*: apart from the mutation, the same as `compat_tests.apps`.
*Assumes*: nothing.
"""

from __future__ import annotations

import sys

from compat_tests.apps.__main__ import main
from compat_tests.planted.mutations import (
    MUTATIONS,
    commits,
    ends,
    fencing,
    group,
    joins,
    outputs,
    ranges,
    state,
    threads,
)

MODULES = (outputs, commits, state, ranges, group, ends, fencing, threads, joins)
"""What is imported so that the table is complete."""

NOTHING = "nothing"
"""The mutation that changes nothing: whatever is found with it, is no proof."""

if __name__ == "__main__":
    name = sys.argv.pop(1)
    if name != NOTHING:
        MUTATIONS[name]()
    sys.exit(main())
