"""Measured runs, and the rows of a table that they make.

*Guarantees*: contenders take turns within one run of the benchmark, in an order that is shuffled anew for each round.
*Assumes*: nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from confluent_kafka import KafkaException

from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError

FAILURES = 2
"""So many times a contender may fail: once may be the machine's doing."""


@dataclass(frozen=True)
class Figure:
    """A number of a run. `compared`: the table also shows its ratio to that of `yardstick`, a contender's name, or of
    the work's where that is empty; `{}` in it is the row's own name up to its last comma."""

    name: str
    title: str
    digits: int = 0
    compared: bool = False
    yardstick: str = ""


class Work(Protocol):
    """What is measured. `count`, for one."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str:
        """What is measured, for people."""
        ...

    @property
    def figures(self) -> Sequence[Figure]: ...

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """What all runs share."""
        ...

    def measure(self, contender: Contender, guarantee: str) -> Mapping[str, float]:
        """One run: its figures by name. `BenchmarkError` when it doesn't count."""
        ...


@dataclass(frozen=True)
class Row:
    """All runs of one contender under one guarantee. `said`: why there aren't as many as there are rounds, if so."""

    work: str
    contender: str
    guarantee: str
    rounds: Sequence[Mapping[str, float]]
    said: str = ""

    def median(self, figure: str) -> float:
        """Of all rounds."""
        return median(figures[figure] for figures in self.rounds)

    def as_json(self) -> dict[str, Any]:
        """Medians by name, then what every round was."""
        medians = {figure: _rounded(self.median(figure)) for figure in (self.rounds[0] if self.rounds else ())}
        rounds = [{figure: _rounded(value) for figure, value in figures.items()} for figures in self.rounds]
        return {
            "work": self.work,
            "contender": self.contender,
            "guarantee": self.guarantee,
            **({"said": self.said} if self.said else {}),
            **medians,
            "rounds": rounds,
        }


def _rounded(value: float) -> float:
    """To as many digits as a measurement can have at most."""
    return float(f"{value:.6g}")


def run(
    work: Work,
    contenders: Sequence[Contender],
    guarantees: Sequence[str],
    rounds: int,
    seed: int,
    log: Callable[[str], None],
    spared: Callable[[Contender], bool] = lambda contender: contender.peer,
) -> list[Row]:
    """Measure; rows in the order of contenders and guarantees. A first run isn't counted: it warms the broker up. Of a
    contender that is `spared` the row says when and why it failed first; when it fails again, it takes no further part.
    Another's failure is an error."""
    names = [contender.name for contender in contenders]
    if len(set(names)) < len(names) or not names:
        raise BenchmarkError(f"every contender takes part once, and at least one: {', '.join(names) or 'none'}")
    entries = [(contender, guarantee) for contender in contenders for guarantee in contender.under(guarantees)]
    found = {(one.name, guarantee): list[Mapping[str, float]]() for one, guarantee in entries}
    said = {(one.name, guarantee): one.absent for one, guarantee in entries if one.absent}
    present = [entry for entry in entries if not entry[0].absent]
    failures = Counter[tuple[str, str]]()

    def measured(contender: Contender, guarantee: str, when: str) -> None:
        try:
            figures = work.measure(contender, guarantee)
        except (BenchmarkError, KafkaException) as error:
            if not spared(contender):
                raise
            failures[contender.name, guarantee] += 1
            why = str(error).removeprefix(f"{contender.name}, {guarantee}: ")
            said.setdefault((contender.name, guarantee), f"failed in {when}: {why}")
            log(f"{when}: {contender.name}, {guarantee}: failed: {why}")
            return
        found[contender.name, guarantee].append(figures)
        shown = ", ".join(f"{figures[f.name]:,.{f.digits}f} {f.title}" for f in work.figures)
        log(f"{when}: {contender.name}, {guarantee}: {shown}")

    work.prepare(list(dict.fromkeys(one for one, _ in present)))
    rng = random.Random(seed)
    if present:
        log(f"warming up the broker with {present[0][0].name}")
        measured(*present[0], "the run before the first round")
        found[present[0][0].name, present[0][1]].clear()
    for number in range(1, rounds + 1):
        for contender, guarantee in rng.sample(present, len(present)):
            if failures[contender.name, guarantee] < FAILURES:
                measured(contender, guarantee, f"round {number} of {rounds}")
    return [Row(work.name, *at, figures, said.get(at, "")) for at, figures in found.items()]
