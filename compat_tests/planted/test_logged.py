"""Faults planted in changelogs, record by record."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.oracles.findings import kinds
from compat_tests.oracles.flows import Entry
from compat_tests.oracles.logged import each_was_a_state, once_per_commit, once_per_transaction
from compat_tests.oracles.outputs import states
from compat_tests.oracles.rows import Place, Row
from compat_tests.planted.samples import PARTITIONS, counts, inputs, placed

ALL = placed([row._replace(topic="log", headers=()) for row in counts(inputs())])
STATES = states(COUNT, inputs(), counts(inputs()))


def last_of_each(rows: Sequence[Row]) -> list[Row]:
    """What a commit of all of it logs, key by key."""
    return placed([*{row.key: row for row in rows}.values()])


def test_a_changelog_of_every_state_passes_and_one_of_some_of_them() -> None:
    assert each_was_a_state(ALL, STATES) == []
    for step in range(1, 8):
        assert each_was_a_state(placed(ALL[::step]), STATES) == []
    assert each_was_a_state(last_of_each(ALL), STATES) == []
    gone = {b"k0": [Entry(5, b"a"), None, Entry(5, b"a")]}
    rows = [Row("log", 0, at, b"k0", value, 5) for at, value in enumerate((b"a", None, b"a"))]
    assert each_was_a_state([*rows, rows[0]._replace(offset=3, key=None)], gone) == []


WRONG = {
    "another value": [*ALL[:-1], ALL[-1]._replace(value=b"wrong")],
    "another time": [*ALL[:-1], ALL[-1]._replace(timestamp=1)],
    "a deletion that wasn't": [*ALL[:-1], ALL[-1]._replace(value=None)],
    "an old state": placed([*ALL, ALL[0]]),
    "a foreign key": placed([*ALL, ALL[0]._replace(key=b"foreign")]),
    "a state again": placed([ALL[0], ALL[0], *ALL[1:]]),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_its_key_never_was_is_found(fault: str) -> None:
    assert kinds(each_was_a_state(WRONG[fault], STATES)) == {"never-was"}


def test_a_state_may_be_there_again_where_a_commit_may_have_failed_and_no_earlier_one() -> None:
    assert each_was_a_state(placed([ALL[0], ALL[0], *ALL[1:]]), STATES, again=True) == []
    assert kinds(each_was_a_state(placed([*ALL, ALL[0]]), STATES, again=True)) == {"never-was"}


def in_transactions(*commits: Sequence[Row]) -> list[Row]:
    """With a control record behind each commit, in each partition."""
    ends, found = dict.fromkeys(range(PARTITIONS), 0), []
    for rows in commits:
        for row in rows:
            found.append(row._replace(offset=ends[row.partition]))
            ends[row.partition] += 1
        ends = {partition: end + 1 for partition, end in ends.items()}
    return found


def test_a_key_may_be_in_each_transaction_once() -> None:
    first, second = last_of_each(ALL[:20]), last_of_each(ALL)
    assert once_per_transaction(in_transactions(first, second)) == []
    assert kinds(once_per_transaction(in_transactions([*first, *second]))) == {"logged-twice"}
    assert kinds(once_per_transaction(in_transactions(first, [*second, second[0]]))) == {"logged-twice"}


def test_a_key_may_be_in_a_changelog_as_often_as_its_task_has_committed() -> None:
    log = placed([*last_of_each(ALL[:20]), *last_of_each(ALL)])
    commits = [(Place("in", partition), number) for number in range(2) for partition in range(PARTITIONS)]
    assert once_per_commit(log, commits) == []
    assert kinds(once_per_commit(log, commits[:PARTITIONS])) == {"logged-twice"}
    assert once_per_commit(log, commits[:PARTITIONS], failed=1) == []
    assert kinds(once_per_commit(placed([*log, log[0]]), commits)) == {"logged-twice"}
