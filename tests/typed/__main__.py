"""Looks at what type checkers know of the public API: `python -m tests.typed`, part of `tox -e lint`.

*Guarantees*: exit code 1 when a checker finds another type than `inferred.py` says, in an example too; when it sees no
error in a setting that `settings.py` says is wrong, or an error in one that is right; when an example needs `Any`; when
less than `LEAST_COMPLETE` of the exported symbols have known types.
*Assumes*: mypy and basedpyright are installed (the extra `lint`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LEAST_COMPLETE = 95.0
"""Percent, as `pyright --verifytypes` counts."""

ROOT = Path(__file__).parents[2]
PROGRAMS = [Path(__file__).with_name(name) for name in ("inferred.py", "settings.py")]
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if path.name != "console.py"]
"""All but the tool that sends and shows records by hand."""


def main() -> int:
    """The exit code."""
    checked = [*PROGRAMS, *EXAMPLES]
    failed = [
        command[0]
        for command in (["mypy", "--strict"], ["basedpyright", "--level", "error"])
        if subprocess.run([sys.executable, "-m", *command, *map(str, checked)], cwd=ROOT, check=False).returncode
    ]
    failed += [f"Any in {path.name}" for path in EXAMPLES if re.search(r"import .*\bAny\b", path.read_text())]
    complete = completeness()
    print(f"{complete:.1f} % of the exported symbols have known types")
    if complete < LEAST_COMPLETE:
        failed.append(f"less than {LEAST_COMPLETE} % are known")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def completeness() -> float:
    """The share of exported symbols with a known type, in percent."""
    command = [sys.executable, "-m", "basedpyright", "--verifytypes", "milestones", "--ignoreexternal"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = re.search(r"Type completeness score: ([\d.]+)%", said)
    if found is None:
        raise SystemExit(f"basedpyright says no score:\n{said[-2000:]}")
    return float(found[1])


if __name__ == "__main__":
    sys.exit(main())
