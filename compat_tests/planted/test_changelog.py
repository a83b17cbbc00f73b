"""Faults planted in stores and changelogs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.oracles.changelog import (
    StoreDump,
    changelog_equals_table,
    counts_at_least,
    fold,
    somebody_has_it_all,
    store_equals_changelog,
    store_is_complete,
)
from compat_tests.oracles.findings import kinds
from compat_tests.oracles.flows import expected
from compat_tests.oracles.outputs import least, table
from compat_tests.oracles.rows import Place
from compat_tests.planted.samples import changelog, counts, dump, inputs

LOG = changelog()
END = len(LOG) + 1  # a control record at the tail


def test_a_store_that_holds_its_changelog_passes_at_any_offset() -> None:
    for below in range(len(LOG) + 1):
        assert store_equals_changelog(dump(LOG, below), LOG, END) == []
    assert store_equals_changelog(replace(dump(LOG), offset=END), LOG, END) == []
    assert store_is_complete(dump(LOG), LOG) == []


def test_an_aborted_write_in_a_store_active_or_standby_is_named_as_such() -> None:
    committed, aborted = [row for row in LOG if row.offset != 5], [LOG[5]]
    for below in (6, len(LOG)):
        read_uncommitted, right = dump(LOG[:6]), dump([*LOG[:5]])
        standby = replace(right, offset=below, entries=read_uncommitted.entries)
        upto = [row for row in committed if row.offset < 6]
        assert kinds(store_equals_changelog(standby, upto, END, aborted)) == {"uncommitted"}
        assert store_equals_changelog(replace(right, offset=below), upto, END, aborted) == []
    new = LOG[0]._replace(key=b"new", offset=END)
    added = replace(dump(LOG), entries={**dump(LOG).entries, **dump([new]).entries})
    assert kinds(store_equals_changelog(added, LOG, END + 1, [new])) == {"uncommitted"}


def test_a_task_whose_store_no_disk_has_whole_is_found() -> None:
    place, half = Place("log", 0), dump(LOG, 5)
    assert somebody_has_it_all(place, [half, dump(LOG)], LOG) == []
    assert somebody_has_it_all(place, [], []) == []
    assert kinds(somebody_has_it_all(place, [half, half], LOG)) == {"behind"}
    assert kinds(somebody_has_it_all(place, [], LOG)) == {"nowhere"}


RIGHT = dump(LOG)
LOST_KEY = dict(list(RIGHT.entries.items())[1:])
OLD = {key: b"\0" * 8 + value[8:] for key, value in RIGHT.entries.items()}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(replace(dump(LOG, 6), offset=len(LOG)), {"stale", "extra"}, id="stale values"),
        pytest.param(replace(dump(LOG, len(LOG) - 1), offset=4), {"stale"}, id="an uncommitted write"),
        pytest.param(replace(dump(LOG, len(LOG) - 1), offset=len(LOG)), {"extra"}, id="a lost deletion"),
        pytest.param(replace(RIGHT, entries=LOST_KEY), {"missing"}, id="a lost key"),
        pytest.param(replace(RIGHT, entries=OLD), {"stale"}, id="wrong timestamps"),
        pytest.param(replace(RIGHT, offset=END + 1), {"ahead"}, id="more than its changelog"),
        pytest.param(replace(RIGHT, offset=None), {"no-offset"}, id="entries without an offset"),
    ],
)
def test_each_fault_of_a_store_is_found(found: StoreDump, expected: set[str]) -> None:
    assert kinds(store_equals_changelog(found, LOG, END)) == expected


def test_a_store_that_was_closed_before_its_last_commit_was_applied_is_found() -> None:
    assert kinds(store_is_complete(dump(LOG, len(LOG) - 1), LOG)) == {"behind"}


def test_a_changelog_that_lacks_or_repeats_a_write_is_found() -> None:
    rows, made = inputs(), counts(inputs())
    log = [row._replace(topic="log") for row in made]
    right = table(COUNT, rows, made)
    assert changelog_equals_table(log, right) == []
    last = max(log, key=lambda row: row.timestamp)
    assert kinds(changelog_equals_table([row for row in log if row is not last], right)) == {"stale"}
    gone = [row for row in log if row.key != last.key]
    assert kinds(changelog_equals_table(gone, right)) == {"missing"}
    foreign = log[0]._replace(key=b"foreign")
    assert kinds(changelog_equals_table([*log, foreign], right)) == {"extra"}


def test_folding_keeps_the_last_value_and_drops_what_was_deleted() -> None:
    assert fold(LOG[:-1]).keys() - fold(LOG).keys() == {LOG[-1].key}


def test_a_changelog_that_forgets_an_input_is_found_however_much_is_counted_twice() -> None:
    right, log = least(COUNT, expected(COUNT, inputs())), counts(inputs())
    assert counts_at_least(log, right) == []
    assert counts_at_least([*log, log[-1]._replace(value=(100).to_bytes(8))], right) == []
    assert kinds(counts_at_least(log[:-1], right)) == {"too-low"}
    assert kinds(counts_at_least([row for row in log if row.key != log[0].key], right)) == {"too-low"}
