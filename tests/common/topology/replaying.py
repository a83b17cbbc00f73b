"""Plays what a program in Java was given, and writes down what it leads to, as that program did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def replayed(lines: Sequence[str], inputs: Mapping[str, Any], outs: Mapping[str, Any]) -> list[str]:
    """Pipe the inputs in `lines`, which begin with "> ". Returns each with the outputs after it, a line per record."""
    written = []
    for line in lines:
        if not line.startswith("> "):
            continue
        topic, key, value, timestamp = (None if word == "-" else word for word in line[2:].split("\t"))
        inputs[topic or ""].pipe(key, value, timestamp=int(timestamp or 0))
        written.append(line)
        for name, out in outs.items():
            rows = [(name, *record[:3]) for record in out.read_records()]
            written += ["\t".join("-" if each is None else str(each) for each in row) for row in rows]
    return written
