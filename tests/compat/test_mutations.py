"""Mutations of the runtime, put into a process that runs nothing."""

from __future__ import annotations

import subprocess
import sys

APPLY_ALL = """
from compat_tests.planted.mutated import MUTATIONS
for name, apply in MUTATIONS.items():
    try:
        apply()
    except Exception as error:
        print(f"{name}: {error!r}")
"""


def test_what_each_mutation_changes_is_there_and_takes_the_same_arguments() -> None:
    applied = subprocess.run([sys.executable, "-c", APPLY_ALL], capture_output=True, text=True, check=False)
    assert (applied.stdout, applied.stderr) == ("", "")
