"""What a run shows of itself."""

from __future__ import annotations

from milestones.common.records import TaskId
from milestones.pipeline.hosting.ranges import RangeEnd, RangeOutcome
from milestones.pipeline.progress import KEPT, Progress, Round, round_of

A = TaskId(0, 0)


def test_a_round_adds_up_what_its_tasks_did() -> None:
    begun = Round(1, (0,), 2, 100, 0.0)
    outcomes = [
        RangeOutcome(A, RangeEnd.DONE, 60, 5, 2, dropped=4, punctuations=1),
        RangeOutcome(A, RangeEnd.STALE, 0),
        RangeOutcome(A, RangeEnd.DONE, 30, 0, 1),
    ]
    done = round_of(begun, outcomes, 3.0, None)
    assert (done.records, done.restored, done.commits, done.stale) == (90, 5, 3, 1)
    assert (done.dropped, done.punctuations) == (4, 1)
    assert done.records_per_second == 30


def test_progress_counts_all_rounds_and_remembers_the_last_ones() -> None:
    progress = Progress(lag=50)
    for number in range(KEPT + 5):
        progress = progress.after(Round(number, (0,), 1, 1, 1.0, records=1, error="lost" if number == 3 else None))
    assert (progress.jobs, progress.records, progress.failed_jobs, progress.lag) == (KEPT + 5, KEPT + 5, 1, 0)
    assert [len(progress.rounds), progress.rounds[0].number] == [KEPT, 5]
