"""A `RecordLog` keeps the changelog's records from the writes on, and counts their memory until they are committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milestones.common.records import KEY, VALUE
from milestones.common.state.commit_log import RECORD_BYTES, RecordLog
from milestones.common.state.engines.memory_engine import MemoryEngines
from milestones.common.state.layers import Staging, StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches


class InWork:
    headers = None


class Noting:
    """A `RecordLog` whose changelog keys are local keys without their first byte."""

    def __init__(self) -> None:
        self.touched: list[Staging] = []
        layers = StoreLayers(MemoryEngines().open(Path()).open("store"), self.touched, ReadCache(ReadCaches()))
        self.log = RecordLog(layers, self.touched, InWork(), "changelog", 3, lambda local: local[1:])

    def write(self, *keys: bytes, value: bytes | None = b"value") -> None:
        for key in keys:
            self.log.note(key, value, 7)
        for staging in self.touched:
            staging.merge()
        self.touched.clear()

    def logged(self) -> list[tuple[bytes | None, bytes | None]]:
        records: Iterator[Any] = self.log.records(None, None)  # type: ignore[arg-type]  # it needs neither
        return [(record[KEY], record[VALUE]) for record in records]


@pytest.fixture
def noting() -> Noting:
    return Noting()


def test_notes_count_with_the_keys_that_were_made_for_the_changelog(noting: Noting) -> None:
    noting.write(b"s" + b"k" * 1_000, b"sk")
    assert noting.log.memory_bytes() == 2 * RECORD_BYTES + 1_001


def test_notes_count_until_their_commit_is_made(noting: Noting) -> None:
    noting.write(b"s12345678")
    noting.log.freeze()
    noting.write(b"s1234")
    assert noting.log.memory_bytes() == 2 * RECORD_BYTES + 8 + 4
    noting.log.applied()
    assert noting.log.memory_bytes() == RECORD_BYTES + 4


def test_notes_of_a_failed_commit_count_and_are_logged_with_the_next_one(noting: Noting) -> None:
    noting.write(b"sfirst")
    noting.log.freeze()
    noting.write(b"ssecond", value=None)
    noting.log.thaw()
    assert noting.log.memory_bytes() == 2 * RECORD_BYTES + 5 + 6
    noting.log.freeze()
    assert noting.logged() == [(b"first", b"value"), (b"second", None)]
    noting.log.applied()
    assert noting.log.memory_bytes() == 0


def test_a_roll_back_forgets_all_notes(noting: Noting) -> None:
    noting.write(b"sfirst")
    noting.log.freeze()
    noting.write(b"ssecond")
    noting.log.abort()
    assert noting.log.memory_bytes() == 0
    noting.log.freeze()
    assert noting.logged() == []


def test_a_note_of_a_failing_record_is_dropped(noting: Noting) -> None:
    noting.log.note(b"sfails", b"value", 7)
    noting.log.drop_scope()
    noting.touched.clear()
    noting.log.freeze()
    assert noting.logged() == []
