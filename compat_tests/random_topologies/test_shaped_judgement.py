"""Planted: windows that are lost, emitted twice, or come to something else. No broker."""

from __future__ import annotations

import pytest

from compat_tests.oracles.findings import kinds
from compat_tests.oracles.rows import Row
from compat_tests.random_topologies.plans import Path, Plan
from compat_tests.random_topologies.shaped_judgement import Circumstances, judge_shaped
from compat_tests.random_topologies.shapes import COUNT, LEAP_MS, LETTERS, MOST, Windows
from compat_tests.random_topologies.windows_by_definition import Output, WindowsOfATask

TUMBLING, CLOSING = Windows("tumbling", 10), Windows("tumbling", 10, on_close=True)
SESSIONS, SLIDING = Windows("session", 10, grace=50), Windows("sliding", 10, grace=50)
INPUTS = [
    Row("in0", 0, 0, b"k", b"a", 12),
    Row("in0", 0, 1, b"k", b"b", 15),
    Row("in0", 0, 2, b"k", b"c", 31),
    Row("in0", 0, 3, b"k", b"d", LEAP_MS),
]


def judged(windows: Windows, found: list[Output], end: str = COUNT, *, repeats: bool = False, zombies: bool = False,
           cached: bool = False) -> set[str]:  # fmt: skip
    plan = Plan((Path((), end, windows=windows),))
    how = Circumstances(lambda row: row.timestamp // LEAP_MS, repeats, cached, zombies)
    rows = [Row("out0", 0, at, *output) for at, output in enumerate(found)]
    return kinds(judge_shaped(plan, 0, INPUTS, rows, how))


def one(name: bytes, value: bytes | None, timestamp: int) -> Output:
    return Output(name, value, timestamp)


OPEN = one(b"k@%d/%d" % (LEAP_MS, LEAP_MS + 10), b"1", LEAP_MS)
FIRST, SECOND, THIRD = one(b"k@10/20", b"1", 12), one(b"k@10/20", b"2", 15), one(b"k@30/40", b"1", 31)


def test_each_update_in_its_order_is_right() -> None:
    assert judged(TUMBLING, [FIRST, SECOND, THIRD, OPEN]) == set()
    assert judged(TUMBLING, [SECOND, THIRD, OPEN], cached=True) == set()
    assert judged(TUMBLING, [FIRST, SECOND, FIRST, SECOND, THIRD, OPEN], repeats=True) == set()


def test_an_update_too_few_or_out_of_order_is_found() -> None:
    assert judged(TUMBLING, [SECOND, THIRD, OPEN]) == {"wrong-value"}
    assert judged(TUMBLING, [FIRST, SECOND, OPEN]) == {"lost", "wrong-value"}
    assert "wrong-value" in judged(TUMBLING, [FIRST, THIRD, OPEN], cached=True)
    assert judged(TUMBLING, [FIRST, SECOND, OPEN], zombies=True, repeats=True) == {"lost"}
    assert judged(TUMBLING, [FIRST, SECOND, THIRD, OPEN, one(b"k@50/60", b"1", 50)]) == {"unknown"}


def test_after_a_repetition_a_count_may_be_too_high_and_never_too_low() -> None:
    assert judged(TUMBLING, [FIRST, one(b"k@10/20", b"3", 15), THIRD, OPEN], repeats=True) == set()
    assert judged(TUMBLING, [FIRST, THIRD, OPEN], repeats=True) == {"wrong-value"}
    most = [one(b"k@10/20", b"b", 15), one(b"k@30/40", b"c", 31), OPEN._replace(value=b"d")]
    assert judged(TUMBLING, most, MOST, repeats=True) == set()
    letters = [most[0]._replace(value=b"aab"), *most[1:]]
    assert judged(TUMBLING, letters, LETTERS, repeats=True) == set()
    assert judged(TUMBLING, most, LETTERS, repeats=True) == {"wrong-value"}


def test_a_window_that_closes_is_emitted_once() -> None:
    assert judged(CLOSING, [SECOND, THIRD]) == judged(CLOSING, [SECOND, SECOND, THIRD], repeats=True) == set()
    assert judged(CLOSING, [SECOND]) == {"lost"}
    assert judged(CLOSING, [SECOND, THIRD, THIRD]) == {"duplicate"}
    assert judged(CLOSING, [SECOND, THIRD, OPEN]) == {"unknown"}
    assert judged(CLOSING, [FIRST, THIRD]) == {"wrong-value"}


# ---- the definitions


def updates(windows: Windows, *times: int) -> list[list[tuple[bytes, bytes | None]]]:
    task = WindowsOfATask(windows, COUNT)
    found = [task.take(b"k", b"v", timestamp) for timestamp in times]
    return [[(output.key or b"", output.value) for output in some] for some in found]


def test_a_record_between_two_sessions_makes_them_one() -> None:
    assert updates(SESSIONS, 100, 115, 108) == [
        [(b"k@100/100", b"1")],
        [(b"k@115/115", b"1")],
        [(b"k@100/100", None), (b"k@115/115", None), (b"k@100/115", b"3")],
    ]


def test_sliding_windows_begin_behind_a_record_or_end_with_one() -> None:
    assert updates(SLIDING, 100, 104) == [
        [(b"k@90/100", b"1")],
        [(b"k@94/104", b"2"), (b"k@101/111", b"1")],
    ]


@pytest.mark.parametrize("grace", [0, 5])
def test_a_window_takes_no_record_once_it_has_closed(grace: int) -> None:
    late = Windows("tumbling", 10, grace)
    assert updates(late, 12, 19 + grace, 13)[-1] == [(b"k@10/20", b"%d" % (3 if grace == 0 else 2))]
    assert updates(late, 12, 20 + grace, 13)[-1] == []
