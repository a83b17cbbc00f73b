"""What is deleted is remembered until its room is given back, within a bound."""

from __future__ import annotations

from typing import Any

from milestones.m6_state_manager.wiped_spans import MOST, Wiped, WipedSpans, notes_of


def taken(wiped: WipedSpans) -> list[Wiped]:
    """All of them."""
    found = []
    while (one := wiped.take()) is not None:
        found.append(one)
    return found


def test_each_span_is_taken_once_and_many_of_one_store_become_one() -> None:
    wiped, written = WipedSpans(), dict[bytes, bytes]()

    def note(store: str, first: bytes, beyond: bytes) -> None:
        notes = notes_of({store: (first, beyond)})
        written.update(notes)
        wiped.add(notes)

    note("sums", b"a", b"b")
    for number in range(10 * MOST):
        note("counts", b"%06d" % number, b"%06d" % (number + 1))
        assert len(wiped) <= MOST + 1
    found = taken(wiped)
    spans = [one.span for one in found if one.store == "counts"]
    assert [one.span for one in found if one.store == "sums"] == [(b"a", b"b")]
    assert min(first for first, _ in spans) == b"000000"
    assert max(beyond for _, beyond in spans) == b"%06d" % (10 * MOST)
    assert len(wiped) == 0
    assert sorted(key for one in found for key in one.keys) == sorted(written), "no note is lost sight of"


def test_a_note_is_removed_once_the_room_is_given_back_and_no_other_one_of_the_same_span_is() -> None:
    wiped: Any = WipedSpans()
    first, again = notes_of({"counts": (b"a", b"b")}), notes_of({"counts": (b"a", b"b")})
    wiped.add(first)
    (one,) = taken(wiped)
    assert wiped.done() == []
    wiped.add(again)
    wiped.given_back(one)
    assert wiped.done() == list(first)
    wiped.removed(wiped.done())
    assert wiped.done() == []
    assert [left.keys for left in taken(wiped)] == [list(again)]


def test_the_next_start_finds_what_the_notes_say() -> None:
    notes = notes_of({"counts": (b"a", b"\xff"), "sums": (b"", b"b")})
    found = {(one.store, one.span) for one in taken(WipedSpans(notes.items()))}
    assert found == {("counts", (b"a", b"\xff")), ("sums", (b"", b"b"))}
