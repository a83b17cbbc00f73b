"""The tables of the transaction's register, from the code: `python -m docs.transaction` writes them to `commits.md`.

*Guarantees*: the page says what the register does; a test compares them.
*Assumes*: the page has the two marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from milestones.baseline.failed_commit import ANSWERS as TO_M4
from milestones.m5_committed_collector.failed_commit import ANSWERS as FROM_M5
from milestones.parts.transaction import Answers, CommitAction, CommitEvent, CommitStage
from milestones.stream_thread.commits.transaction_register import ANSWERS

PAGE = Path(__file__).with_name("commits.md")
BEGIN, END = "<!-- made by `python -m docs.transaction` -->", "<!-- end of what is made -->"


def _columns() -> list[list[CommitStage]]:
    """The stages, those next to each other in one column that answer every event alike."""
    columns: list[list[CommitStage]] = []
    for stage in CommitStage:
        if columns and _answers_of(columns[-1][0]) == _answers_of(stage):
            columns[-1].append(stage)
        else:
            columns.append([stage])
    return columns


def _answers_of(stage: CommitStage) -> list[CommitAction | None]:
    return [answers.get((stage, event)) for answers in (ANSWERS, TO_M4, FROM_M5) for event in CommitEvent]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _row(event: CommitEvent, label: str, answers: Answers, columns: list[list[CommitStage]]) -> str:
    found = [answers.get((stages[0], event)) for stages in columns]
    return _line(label, *("–" if action is None else f"`{action.name}`" for action in found))


def _lines() -> Iterator[str]:
    columns = _columns()
    yield _line("event", *("<br>".join(f"`{stage.name}`" for stage in stages) for stages in columns))
    yield "|---" * (len(columns) + 1) + "|"
    for event in CommitEvent:
        if all(key not in TO_M4 for key in ((stage, event) for stage in CommitStage)):
            yield _row(event, f"`{event.name}`", ANSWERS, columns)
        else:
            yield _row(event, f"`{event.name}`, to M4", {**ANSWERS, **TO_M4}, columns)
            yield _row(event, f"`{event.name}`, from M5", {**ANSWERS, **FROM_M5}, columns)
    for title, words in (("stage", CommitStage), ("event", CommitEvent), ("action", CommitAction)):
        yield from ("", _line(title, "meaning"), "|---|---|")
        for word in words:
            yield _line(f"`{word.name}`", word.value)


def text() -> str:
    """The tables, in Markdown."""
    return "\n".join(_lines())


def page() -> str:
    """The page with the tables of this code."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n\n{text()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
