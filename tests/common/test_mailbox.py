from __future__ import annotations

import threading

import pytest

from milestones.common.errors import StateError
from milestones.common.mailbox import Mailbox, MailboxClosedError, MailboxFullError


def test_items_come_out_in_the_order_they_went_in():
    box: Mailbox[int] = Mailbox(3)
    box.put(1, 0)
    assert box.try_put(2)
    assert [box.get(0), box.get(0), box.get(0)] == [1, 2, None]


def test_an_item_that_is_put_first_comes_out_first():
    box: Mailbox[int] = Mailbox(3)
    box.put(1, 0)
    box.put(2, 0)
    box.put(0, 0, first=True)
    assert box.drain() == [0, 1, 2]


def test_an_item_can_be_taken_back_while_it_waits():
    box: Mailbox[int] = Mailbox(2)
    box.put(1, 0)
    box.put(2, 0)
    assert box.take_back(1)
    assert not box.take_back(1)
    assert box.drain() == [2]


def test_a_full_mailbox_refuses():
    box: Mailbox[int] = Mailbox(1, "inbox")
    box.put(1, 0)
    assert not box.try_put(2)
    with pytest.raises(MailboxFullError, match="inbox"):
        box.put(2, 1)
    assert box.drain() == [1]
    assert box.drain() == []
    assert box.try_put(2)


def test_after_the_close_what_was_in_comes_out_and_then_the_owner_s_error():
    box: Mailbox[int] = Mailbox(2)
    box.put(1, 0)
    box.close(StateError("the disk is full"))
    with pytest.raises(StateError, match="disk"):
        box.put(2, 0)
    assert box.get(0) == 1
    for ask in (lambda: box.get(0), box.drain, lambda: box.try_put(3)):
        with pytest.raises(StateError, match="disk"):
            ask()


class FaultyDiskError(StateError):
    """As errors that say more than they are given."""

    def __init__(self, disk: str, *, of: int) -> None:
        super().__init__(f"disk {disk} of {of}")
        self.disk = disk


def died() -> BaseException:
    try:
        try:
            raise KeyError("row")
        except KeyError:
            raise FaultyDiskError("sda", of=2)  # noqa: B904 - the context is what is looked at
    except FaultyDiskError as error:
        return error


def test_each_thread_that_meets_a_dead_owner_has_an_error_of_its_own_and_the_owner_s_stays_as_it_was():
    box: Mailbox[int] = Mailbox(1)
    error = died()
    at, context = error.__traceback__, error.__context__
    box.close(error)
    met: list[BaseException] = []

    def ask() -> None:
        try:
            raise OSError("what this thread was in")
        except OSError:
            try:
                box.get(0)
            except StateError as own:
                met.append(own)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(own) for own in met}) == 20
    assert {(type(own), str(own), own.disk, own.__cause__) for own in met} == {
        (FaultyDiskError, "disk sda of 2", "sda", error)
    }
    assert (error.__traceback__, error.__context__) == (at, context)


def test_a_close_without_an_error_has_an_error_of_its_own_and_the_first_close_counts():
    box: Mailbox[int] = Mailbox(1, "inbox")
    box.close()
    box.close(StateError("late"))
    assert box.closed
    with pytest.raises(MailboxClosedError, match="inbox"):
        box.get(0)


@pytest.mark.parametrize("wake", [lambda box: box.put("hello", 0), lambda box: box.close()])
def test_a_waiting_reader_wakes_up_at_an_item_or_at_the_close(wake):
    box: Mailbox[str] = Mailbox(1)
    waiting = threading.Event()
    woken: list[bool] = []

    def reader() -> None:
        waiting.set()
        woken.append(box.wait(10_000))

    thread = threading.Thread(target=reader)
    thread.start()
    waiting.wait(10)
    wake(box)
    thread.join(10)
    assert woken == [True]


def test_a_waiting_writer_wakes_up_when_there_is_room():
    box: Mailbox[int] = Mailbox(1)
    box.put(1, 0)
    thread = threading.Thread(target=box.put, args=(2, 10_000))
    thread.start()
    assert box.get(10_000) == 1
    assert box.get(10_000) == 2
    thread.join(10)


def test_many_writers_and_readers_lose_nothing_and_double_nothing():
    box: Mailbox[int] = Mailbox(7)
    taken: list[list[int]] = [[], []]

    def write(start: int) -> None:
        for number in range(start, start + 200):
            box.put(number, 10_000)

    def read(into: list[int]) -> None:
        while len(into) < 300:
            item = box.get(10_000)
            assert item is not None
            into.append(item)

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 200, 400)]
    threads += [threading.Thread(target=read, args=(into,)) for into in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(taken[0] + taken[1]) == list(range(600))


def test_nobody_waits_for_nothing():
    box: Mailbox[int] = Mailbox(1)
    assert box.get(-5) is None
    assert not box.wait(0)
    with pytest.raises(ValueError, match="capacity"):
        Mailbox(0)
