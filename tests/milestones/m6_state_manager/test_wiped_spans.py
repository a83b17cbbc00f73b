"""What is deleted is remembered until its room is given back, within a bound."""

from __future__ import annotations

from typing import Any

from milestones.m6_state_manager.wiped_spans import MOST, WipedSpans


def test_each_span_is_taken_once_and_many_of_one_store_become_one() -> None:
    wiped, database = WipedSpans(), object()
    noted: Any = wiped
    noted.add(database, "sums", (b"a", b"b"))
    for number in range(10 * MOST):
        noted.add(database, "counts", (b"%06d" % number, b"%06d" % (number + 1)))
        assert len(wiped) <= MOST + 1
    taken = []
    while (span := wiped.take()) is not None:
        taken.append(span)
    spans = [span for _, store, span in taken if store == "counts"]
    assert (database, "sums", (b"a", b"b")) in taken
    assert min(first for first, _ in spans) == b"000000"
    assert max(beyond for _, beyond in spans) == b"%06d" % (10 * MOST)
    assert len(wiped) == 0


def test_nothing_is_left_to_do_at_the_end() -> None:
    wiped: Any = WipedSpans()
    wiped.add(object(), "counts", (b"a", b"b"))
    wiped.clear()
    assert wiped.take() is None
