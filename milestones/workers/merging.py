"""Makes one page of metrics of the pages of all workers.

*Guarantees*: a metric has one HELP and one TYPE line, and its samples follow them, those of all workers. Each sample
has the label `worker` with the worker's number.
*Assumes*: the pages are in Prometheus' text format, and were written by `prometheus_client`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
UP = "milestones_worker_up"


@dataclass
class _Family:
    comments: dict[str, str] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)


def merged(pages: Mapping[int, str | None]) -> str:
    """Return the merged page. `pages`: by the worker's number; None if the worker hasn't answered."""
    families: dict[str, _Family] = {}
    for worker, page in sorted(pages.items()):
        _read(page or "", worker, families)
    lines = [
        f"# HELP {UP} 1 if the worker has answered this scrape, 0 if not",
        f"# TYPE {UP} gauge",
        *(f'{UP}{{worker="{worker}"}} {0 if page is None else 1}' for worker, page in sorted(pages.items())),
    ]
    for family in families.values():
        lines += [*family.comments.values(), *family.samples]
    return "".join(f"{line}\n" for line in lines)


def _read(page: str, worker: int, families: dict[str, _Family]) -> None:
    family = _Family()
    for line in _lines(page):
        if line.startswith(("# HELP ", "# TYPE ")):
            _, kind, name, *_ = line.split(" ", 3)
            family = families.setdefault(name, _Family())
            family.comments.setdefault(kind, line)
        elif not line.startswith("#"):
            family.samples.append(_labelled(line, worker))


def _lines(page: str) -> Iterable[str]:
    """Return the lines. Only a line feed ends a line: a label's value may have other characters that end lines
    elsewhere."""
    return filter(None, page.split("\n"))


def _labelled(sample: str, worker: int) -> str:
    """Return the sample with the label `worker` in front of its labels."""
    match = _NAME.match(sample)
    name = match[0] if match else ""
    rest = sample[len(name) :]
    if not rest.startswith("{"):
        return f'{name}{{worker="{worker}"}}{rest}'
    others = rest[1:]
    return f'{name}{{worker="{worker}"{others if others.startswith("}") else f",{others}"}'
