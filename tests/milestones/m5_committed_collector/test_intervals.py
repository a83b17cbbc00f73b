"""`TaskIntervals` beside a list: whatever is added, cut, handed over, sent again, left out and confirmed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from milestones.common.records import NODE, Emitted, Output, TaskId, output_of
from milestones.common.task.boundary import PendingCommit
from milestones.m5_committed_collector.intervals import TaskIntervals
from milestones.m5_committed_collector.upserts import collapsed
from tests.outputs import emitted

UPSERTS = frozenset({"upsert"})
TASK = TaskId(0, 0)


class FakeTask:
    """What `TaskIntervals` asks of a task."""

    id, epoch, kept = TASK, 0, 0

    def __init__(self) -> None:
        self.subtopology = SimpleNamespace(nodes=())

    def set_retained_output_bytes(self, count: int) -> None:
        self.kept = count


def intervals() -> TaskIntervals:
    made: Any = TaskIntervals(FakeTask())  # type: ignore[arg-type]
    made._waiting._upserts = UPSERTS
    return made  # type: ignore[no-any-return]


def output(number: int, *, upsert: bool = False, topic: str = "out") -> Emitted:
    """`upsert`: for one of three keys."""
    key = f"k{number % 3}" if upsert else f"k{number}"
    node = "upsert" if upsert else "plain"
    return emitted("latest" if upsert else topic, str(number).encode(), key=key.encode(), partition=-1, node=node)


def boundary(outputs: list[Emitted], changelog: list[Emitted]) -> PendingCommit:
    return PendingCommit(TASK, 0, 1, outputs, {}, {}, lambda: iter(changelog))


class Model:
    """The same as lists. `sent`: what was handed over of the present try, by interval."""

    def __init__(self) -> None:
        self.flowing: list[Emitted] = []
        self.waiting: list[Emitted] = []
        self.cut: list[Emitted] | None = None
        self.changelog: list[Emitted] = []
        self.sent: list[Emitted] = []

    def add(self, outputs: list[Emitted]) -> None:
        self.flowing += [one for one in outputs if one[NODE] != "upsert"]
        self.waiting += [one for one in outputs if one[NODE] == "upsert"]

    def cut_at(self, last: list[Emitted], changelog: list[Emitted]) -> None:
        self.add(last)
        self.cut = [*self.flowing, *collapsed(self.waiting, UPSERTS)]
        self.flowing, self.waiting, self.changelog = [], [], changelog

    @property
    def all(self) -> list[Emitted]:
        """What there is to be sent of the cut interval, in order."""
        return [*(self.cut or ()), *self.changelog]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.booleans(), max_size=4)),
        st.tuples(st.just("cut"), st.lists(st.booleans(), max_size=3)),
        st.tuples(st.just("push"), st.integers(0, 3)),
        st.tuples(st.just("flow"), st.integers(1, 3)),
        st.tuples(st.just("mark_unsent"), st.none()),
        st.tuples(st.just("leave out"), st.integers(0, 5)),
        st.tuples(st.just("confirm"), st.none()),
    ),
    max_size=40,
)


class Beside:
    """Takes the same steps with both."""

    def __init__(self) -> None:
        self.real, self.model, self.number = intervals(), Model(), 0

    def made(self, kinds: list[bool]) -> list[Emitted]:
        self.number += len(kinds)
        return [output(self.number - at, upsert=upsert) for at, upsert in enumerate(kinds)]

    def take(self, step: str, what: Any) -> None:
        getattr(self, step.replace(" ", "_"))(what)

    def add(self, kinds: list[bool]) -> None:
        outputs = self.made(kinds)
        self.real.add(outputs)
        self.model.add(outputs)

    def cut(self, kinds: list[bool]) -> None:
        if self.model.cut is None:
            last = self.made(kinds)
            changelog = [output(self.number + at, topic="changelog") for at in range(len(kinds))]
            self.real.cut_at(boundary(last, changelog))
            self.model.cut_at(last, changelog)

    def push(self, count: int) -> None:
        """Of the interval that was cut the producer takes at most so many of a chunk of three."""
        chunk = list(self.real.of_the_cut(3))
        if self.model.cut is None:
            assert not chunk
            return
        at = len(self.model.sent)
        assert chunk == self.model.all[at : at + len(chunk)]
        assert chunk or at >= len(self.model.all)
        self.real.handed_over(min(count, len(chunk)))
        self.model.sent += chunk[:count]

    def flow(self, count: int) -> None:
        """The open interval's, which the producer takes: before its own cut, or once the one before is handed over."""
        chunk = list(self.real.of_the_next(count))
        if self.model.cut is not None:
            assert not chunk or len(self.model.sent) >= len(self.model.cut)
            return
        at = len(self.model.sent)
        assert chunk == self.model.flowing[at : at + count]
        self.real.handed_over(len(chunk))
        self.model.sent += chunk

    def mark_unsent(self, _: None) -> None:
        self.real.mark_unsent()
        self.model.sent = []

    def leave_out(self, place: int) -> None:
        """One that was handed over, and is no changelog's; its transaction is made again."""
        outputs = self.model.flowing if self.model.cut is None else self.model.cut
        handed = [one for one in self.model.sent if one in outputs]
        if handed:
            refused = handed[place % len(handed)]
            self.real.leave_out(output_of(refused), [])
            outputs.remove(refused)
            self.mark_unsent(None)

    def confirm(self, _: None) -> None:
        """Once all of it is handed over."""
        if self.model.cut is not None and len(self.model.sent) == len(self.model.all):
            self.real.confirmed()
            self.model.cut, self.model.changelog, self.model.sent = None, [], []


@settings(deadline=None)
@given(STEPS)
def test_what_is_handed_over_is_what_a_simple_list_says(steps: list[tuple[str, Any]]) -> None:
    beside = Beside()
    for step, what in steps:
        beside.take(step, what)
    for _ in range(200):
        beside.push(3)
    beside.confirm(None)
    assert beside.model.cut is None
    assert list(beside.real.of_the_next(1_000)) == beside.model.flowing[len(beside.model.sent) :]


# -- single rules


def test_an_interval_that_was_cut_stays_as_it_is_however_often_it_is_cut_there() -> None:
    real, at = intervals(), boundary([output(1)], [])
    real.cut_at(at)
    real.add([output(2)])
    real.cut_at(at)
    assert real.of_the_cut(10) == [output(1)]


def test_a_changelog_is_the_same_when_it_is_sent_again_in_the_midst_of_a_chunk() -> None:
    real, log = intervals(), [output(number, topic="changelog") for number in range(5)]
    real.cut_at(boundary([], log))
    assert real.of_the_cut(3) == log[:3]
    real.handed_over(2)
    assert real.of_the_cut(3) == log[2:3]
    real.mark_unsent()
    sent: list[Emitted] = []
    while chunk := list(real.of_the_cut(2)):
        sent += chunk
        real.handed_over(len(chunk))
    assert sent == log


def test_no_key_of_an_upsert_sink_is_collapsed_over_a_cut() -> None:
    real = intervals()
    real.add([output(0, upsert=True), output(3, upsert=True)])
    assert real.cut_at(boundary([], [])) == 1
    real.add([output(6, upsert=True)])
    assert list(real.of_the_cut(10)) == [output(3, upsert=True)]
    real.handed_over(1)
    real.confirmed()
    assert real.cut_at(boundary([], [])) == 0
    assert list(real.of_the_cut(10)) == [output(6, upsert=True)]


def test_letters_go_with_their_interval_and_are_forgotten_with_it() -> None:
    real, letter = intervals(), Output("letters", 0, b"k", b"v", 1, None, None)  # type: ignore[arg-type]
    real.add([output(1)])
    real.leave_out(output_of(output(1)), [letter])
    assert list(real.take_letters()) == [], "they are sent when they are made"
    real.cut_at(boundary([], []))
    real.mark_unsent()
    assert list(real.take_letters()) == [letter]
    assert list(real.take_letters()) == []
    real.confirmed()
    real.mark_unsent()
    assert list(real.take_letters()) == []
    assert not real


def test_of_two_outputs_with_the_same_content_that_one_is_left_out_which_was_refused() -> None:
    real, outputs = intervals(), [emitted("out", timestamp=timestamp) for timestamp in (1, 2)]
    real.add(outputs)
    real.leave_out(output_of(outputs[1]), [])
    assert real.of_the_next(10) == outputs[:1]


def test_a_report_without_partition_time_and_headers_finds_its_output() -> None:
    real, earlier = intervals(), emitted("out", b"0", key=b"k1")
    real.add([earlier, output(1), output(2)])
    real.handed_over(3)
    real.leave_out(Output("out", 5, b"k1", b"1", 99, [], ""), [])
    real.mark_unsent()
    assert real.of_the_next(10) == [earlier, output(2)]
