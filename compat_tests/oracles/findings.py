"""What a check returns, and how findings become a failed test.

*Guarantees*: `hold` names every kind of finding with its count, and shows the first few of each.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

SHOWN = 5
"""Findings of one kind that are printed; the others are only counted."""


class Finding(NamedTuple):
    """One thing that is not as promised. `kind` is one word out of the tables in docs/compatibility.md."""

    kind: str
    text: str


Findings = list[Finding]


class PromiseBrokenError(AssertionError):
    """At least one promise doesn't hold. `findings` has all of them."""

    def __init__(self, findings: Findings) -> None:
        super().__init__(report(findings))
        self.findings = findings


def report(findings: Iterable[Finding]) -> str:
    """Findings by kind, as text."""
    by_kind: defaultdict[str, list[str]] = defaultdict(list)
    for kind, text in findings:
        by_kind[kind].append(text)
    lines = []
    for kind, texts in by_kind.items():
        lines.append(f"{kind} ({len(texts)})")
        lines += [f"    {text}" for text in texts[:SHOWN]]
        if len(texts) > SHOWN:
            lines.append(f"    ... and {len(texts) - SHOWN} more")
    return "\n".join(lines)


def hold(*checks: Iterable[Finding]) -> None:
    """Raise `PromiseBrokenError` when any check found anything."""
    findings = [finding for check in checks for finding in check]
    if findings:
        raise PromiseBrokenError(findings)


def kinds(findings: Iterable[Finding]) -> set[str]:
    """The kinds that occur."""
    return {finding.kind for finding in findings}
