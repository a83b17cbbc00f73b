from __future__ import annotations

from compat_tests.harness.log_tail import log_tail


def test_what_a_client_says_again_and_again_does_not_push_out_what_led_there() -> None:
    log = ["10:00 the tasks are given up", *(f"10:{n}:07 FAIL producer#producer-{n}: refused" for n in range(1, 60))]
    assert log_tail(log, most=2) == [
        "10:00 the tasks are given up",
        "10:59:07 FAIL producer#producer-59: refused (59 times)",
    ]


def test_a_line_that_is_said_again_stands_where_it_was_said_last() -> None:
    assert log_tail(["1 joins", "2 runs", "3 joins", "4 ends"]) == ["2 runs", "3 joins (2 times)", "4 ends"]


def test_the_last_lines_are_shown_and_long_ones_cut() -> None:
    assert log_tail(["a", "b" * 10, "c"], most=2, width=4) == ["bbbb...", "c"]


def test_an_empty_log_has_no_tail() -> None:
    assert log_tail([]) == []
