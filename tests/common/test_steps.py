"""What waits for answers, step by step."""

from __future__ import annotations

import pytest

from milestones.common.steps import AT_ONCE_MS, Steps, to_the_end, until_done


def counting(waited: list[int], error: Exception | None = None) -> Steps[str]:
    for _ in range(3):
        waited.append((yield))
    if error is not None:
        raise error
    return "done"


def test_all_steps_at_once_give_what_came_of_them() -> None:
    waited: list[int] = []
    assert to_the_end(counting(waited)) == "done"
    assert waited == [AT_ONCE_MS] * 3


def test_the_error_of_a_step_ends_them() -> None:
    with pytest.raises(KeyError, match="mine"):
        to_the_end(counting([], KeyError("mine")))


def test_what_is_driven_is_driven_until_it_has_a_result_be_it_an_empty_one() -> None:
    answers = iter([None, None, {}])
    assert until_done(lambda wait_ms: next(answers)) == {}
