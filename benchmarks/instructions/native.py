"""Compiles the benchmark's C files with the machine's compiler.

*Guarantees*: what is missing is named in the error.
*Assumes*: nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.errors import BenchmarkError

COMPILERS = ("cc", "gcc", "clang")


def compiler() -> str | None:
    """The machine's C compiler, None when there is none."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def compiled(source: Path, library: Path, *, needs: str, options: Sequence[str] = ()) -> None:
    """Make a shared library of a C file. `needs`: what the file includes, for the error."""
    found = compiler()
    if found is None:
        raise BenchmarkError(f"{source.name} can't be compiled: no C compiler ({', '.join(COMPILERS)}) is installed")
    command = [found, "-shared", "-fPIC", "-O1", *options, "-o", str(library), str(source)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise BenchmarkError(f"{source.name} can't be compiled; it needs {needs}\n{ran.stderr[:2000]}")
