"""The benchmark `standbys`: what it shows of what it saw."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from benchmarks.standbys.work import SHOWN, Moment, table


def shown(*moments: Moment) -> list[list[str]]:
    out = StringIO()
    Console(file=out, width=120).print(table("standbys", {"m1": {"one": moments}}))
    return [line.split() for line in out.getvalue().splitlines() if "one" in line]


def test_the_first_and_the_last_moment_are_shown_and_some_between() -> None:
    rows = shown(*(Moment(number / 10, 1_000 - number, 500 - number) for number in range(100)))
    assert len(rows) == SHOWN
    assert (rows[0], rows[-1]) == (["m1", "one", "0.0", "1,000", "500"], ["m1", "one", "9.9", "901", "401"])


def test_a_moment_that_is_as_the_one_before_is_not_shown() -> None:
    rows = shown(Moment(0.0, 9, 5), Moment(0.1, 9, 5), Moment(0.2, 4, 5))
    assert [row[2] for row in rows] == ["0.0", "0.2"]
