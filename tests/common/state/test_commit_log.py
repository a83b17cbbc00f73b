"""A `RecordLog` notes the time of each write, makes the changelog's records of it and of the layers, and counts the
memory of its notes until they are committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milestones.common.records import KEY, VALUE, output_of
from milestones.common.state.commit_log import NOTE_BYTES, Place, RecordLog
from milestones.common.state.engines.memory_engine import MemoryEngines
from milestones.common.state.layers import Staging, StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches


class InWork:
    headers = None


class Noting:
    """A store with a `RecordLog`, whose changelog keys are local keys without their first byte."""

    def __init__(self, *, transactional: bool) -> None:
        self.touched: list[Staging] = []
        self.layers = StoreLayers(MemoryEngines().open(Path()).open("store"), self.touched, ReadCache(ReadCaches()))
        place = Place("changelog", 3, lambda local: local[1:])
        self.log = RecordLog(self.layers, self.touched, InWork(), place, transactional=transactional)

    def write(self, *keys: bytes, value: bytes | None = b"value", time: int = 7, new: bool = False) -> None:
        for key in keys:
            self.log.note(key, value, time)
            if new and value is not None:
                self.layers.put_new(key, value)
            else:
                self.layers.put(key, value)
        for staging in self.touched:
            staging.merge()
        self.touched.clear()

    def freeze(self) -> None:
        self.layers.freeze()
        self.log.freeze()

    def thaw(self) -> None:
        self.layers.thaw()
        self.log.thaw()

    def applied(self) -> None:
        self.layers.applied()
        self.log.applied()

    def logged(self) -> list[tuple[bytes | None, bytes | None]]:
        records: Iterator[Any] = self.log.records(None, None)  # type: ignore[arg-type]  # it needs neither
        return [(record[KEY], record[VALUE]) for record in records]


@pytest.fixture
def noting() -> Noting:
    return Noting(transactional=True)


def test_notes_count_without_the_keys_and_values_that_the_layers_count(noting: Noting) -> None:
    noting.write(b"s" + b"k" * 1_000, b"sk")
    assert noting.log.memory_bytes() == 2 * NOTE_BYTES


def test_notes_count_until_their_commit_is_made(noting: Noting) -> None:
    noting.write(b"s12345678")
    noting.freeze()
    noting.write(b"s1234")
    assert noting.log.memory_bytes() == 2 * NOTE_BYTES
    noting.applied()
    assert noting.log.memory_bytes() == NOTE_BYTES


def test_notes_of_a_failed_commit_count_and_are_logged_with_the_next_one(noting: Noting) -> None:
    noting.write(b"sfirst")
    noting.freeze()
    noting.write(b"ssecond", value=None)
    noting.thaw()
    assert noting.log.memory_bytes() == 2 * NOTE_BYTES
    noting.freeze()
    assert noting.logged() == [(b"first", b"value"), (b"second", None)]
    noting.applied()
    assert noting.log.memory_bytes() == 0


def test_a_roll_back_forgets_all_notes(noting: Noting) -> None:
    noting.write(b"sfirst")
    noting.freeze()
    noting.write(b"ssecond")
    noting.layers.abort()
    noting.log.abort()
    assert noting.log.memory_bytes() == 0
    noting.write(b"sthird")
    noting.freeze()
    assert noting.logged() == [(b"third", b"value")]


def test_a_record_has_the_time_of_the_last_write_that_did_not_fail(noting: Noting) -> None:
    noting.write(b"sa", time=1)
    noting.write(b"sa", time=2)
    noting.log.note(b"sa", b"failed", 3)
    noting.log.drop_scope()
    noting.touched.clear()
    noting.freeze()
    assert [output_of(record).timestamp for record in noting.log.records(None, None)] == [2]  # type: ignore[arg-type]


def test_a_new_row_that_is_deleted_before_its_commit_is_not_logged(noting: Noting) -> None:
    noting.write(b"snew", new=True)
    noting.write(b"snew", b"sold", value=None)
    noting.freeze()
    assert noting.logged() == [(b"old", None)]


def test_without_transactions_the_deletion_of_a_new_row_is_logged() -> None:
    noting = Noting(transactional=False)
    noting.write(b"snew", new=True)
    noting.write(b"snew", value=None)
    noting.freeze()
    assert noting.logged() == noting.logged() == [(b"new", None)]


def test_the_deletion_of_a_row_that_an_unfinished_commit_has_is_logged(noting: Noting) -> None:
    noting.write(b"snew", new=True)
    noting.freeze()
    noting.write(b"snew", value=None)
    assert noting.logged() == [(b"new", b"value")]
    noting.applied()
    noting.freeze()
    assert noting.logged() == [(b"new", None)]


def test_a_note_of_a_failing_record_is_dropped(noting: Noting) -> None:
    noting.log.note(b"sfails", b"value", 7)
    noting.log.drop_scope()
    noting.touched.clear()
    noting.freeze()
    assert noting.logged() == []
