"""What operators and stores remember: with their record, with the boundary, with the committed offsets."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common.state.cells import UNKNOWN, Cells


class Task:
    """Records that are done or fail, commits and roll-backs, as a task has them."""

    def __init__(self) -> None:
        self.touched: list[Any] = []
        self.cells = Cells(self.touched)

    def done(self) -> None:
        for staging in self.touched:
            staging.merge()
        self.touched.clear()

    def failed(self) -> None:
        for staging in self.touched:
            staging.drop_scope()
        self.touched.clear()


def test_a_cell_begins_with_its_initial_value_and_is_the_same_for_the_next_program() -> None:
    cells = Task().cells
    cell = cells.cell("seen", 7)
    assert cell.value == 7
    assert cells.cell("seen", 0) is cell


def test_a_failed_record_takes_its_changes_back() -> None:
    task = Task()
    cell = task.cells.cell("seen", 0)
    cell.set(1)
    task.done()
    cell.set(2)
    cell.set(3)
    assert cell.value == 3
    task.failed()
    assert cell.value == 1


@pytest.mark.parametrize("end", ["done", "failed"])
def test_a_commit_has_the_values_of_its_boundary_not_those_of_the_record_in_work(end: str) -> None:
    task = Task()
    cell = task.cells.cell("seen", 0)
    cell.set(1)
    task.done()
    cell.set(2)
    committed = task.cells.values()
    getattr(task, end)()
    cell.set(3)
    task.done()
    task.cells.back(committed)
    assert cell.value == 1


def test_a_cell_that_is_younger_than_the_commit_begins_anew() -> None:
    task = Task()
    committed = task.cells.values()
    cell = task.cells.cell("seen", 5)
    cell.set(6)
    task.done()
    task.cells.back(committed)
    assert cell.value == 5


def test_a_kept_cell_begins_with_the_committed_number() -> None:
    cells = Task().cells
    cells.know({"store": 40, "other": 1})
    assert cells.kept("store").value == 40
    assert cells.kept("new").value == UNKNOWN


def test_only_kept_cells_that_have_a_number_go_into_the_committed_offsets() -> None:
    task = Task()
    task.cells.cell("seen", 0)
    task.cells.kept("never")
    task.cells.kept("store").set(9)
    task.done()
    assert task.cells.to_keep(task.cells.values()) == {"store": 9}
    assert task.cells.kept_names == {"store", "never"}


def test_a_commit_without_an_answer_that_was_made_after_all_is_followed() -> None:
    task = Task()
    cell = task.cells.kept("store")
    cell.set(9)
    task.done()
    task.cells.know({"store": 12})
    assert cell.value == 12
    task.cells.know({"store": 3})
    assert cell.value == 12


def test_a_number_that_is_not_above_its_own_is_no_other_process_s() -> None:
    cells = Cells([])
    cells.know({"sent": 5})
    cell = cells.kept("sent")
    cell.set(7)
    cell.merge()
    cells.know({"sent": 7})
    assert cells.others("sent") == 5
    cells.know({"sent": 9})
    assert (cells.others("sent"), cell.value) == (9, 9)
    cells.know({})
    assert cells.others("sent") == 9


def test_the_highest_number_of_several_cells_is_kept_as_it_is_at_the_boundary() -> None:
    task = Task()
    one, other = (task.cells.cell(name, 0) for name in ("one", "other"))
    for cell in (one, other, one):
        task.cells.keep_highest("highest", cell)

    def kept() -> dict[str, int]:
        return task.cells.to_keep(task.cells.values())

    assert kept() == {}, "nothing has a number"
    one.set(3)
    task.done()
    other.set(2)
    task.done()
    assert kept() == {"highest": 3}
    committed = task.cells.values()
    other.set(9)
    assert kept() == {"highest": 3}, "the record in work isn't part of a commit"
    task.failed()
    assert kept() == {"highest": 3}
    other.set(9)
    task.done()
    assert kept() == {"highest": 9}
    task.cells.back(committed)
    assert kept() == {"highest": 3}


def test_the_highest_number_is_never_below_a_committed_one() -> None:
    task = Task()
    task.cells.know({"highest": 40})
    cell = task.cells.cell("one", 0)
    task.cells.keep_highest("highest", cell)
    assert task.cells.to_keep(task.cells.values()) == {"highest": 40}
    task.cells.know({"highest": 50})
    assert task.cells.others("highest") == 50
    cell.set(5)
    task.done()
    assert task.cells.to_keep(task.cells.values()) == {"highest": 50}
    cell.set(51)
    task.done()
    task.cells.know({"highest": 51})
    assert task.cells.others("highest") == 50, "the number is of this process"
