"""The names of times in the metadata of committed offsets, and what times share where they have no room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milestones.common.state.cells import UNKNOWN, Cells
from milestones.common.state.times import NAME_BYTES, gathered, is_time, observed_time, time_name
from milestones.common.task.metadata import COMMIT_PREFIX
from milestones.common.windowed import FOREVER

NAMES = st.sets(st.text(max_size=3).map(time_name), max_size=40)


@given(st.text())
def test_a_name_is_short_whatever_it_is_of_and_none_that_a_store_may_have(of: str) -> None:
    name = time_name(of)
    assert len(name.encode()) == NAME_BYTES
    assert is_time(name)
    assert name == time_name(of)


def test_no_other_entry_is_taken_for_a_time() -> None:
    assert not any(map(is_time, (f"{COMMIT_PREFIX}app-1", "KSTREAM-AGGREGATE-STATE-STORE-0000000001", "counts")))


@given(NAMES, st.integers(0, 50))
def test_each_time_is_in_one_entry_and_there_are_no_more_than_may_be(names: set[str], most: int) -> None:
    entries = gathered(names, most)
    assert len(entries) <= most
    assert sorted(name for group in entries.values() for name in group) == (sorted(names) if most else [])
    if len(names) <= most:
        assert all(group == [entry] for entry, group in entries.items())


def of_task(values: dict[str, int], most: int, committed: dict[str, int] | None = None) -> Cells:
    """The cells of a task that has the times of these names, and has seen these times."""
    cells = Cells([])
    cells.know(committed or {})
    for name, value in values.items():
        cell = cells.time(name)
        if value != UNKNOWN:
            cell.back(value)
    cells.make_room(most)
    return cells


@given(st.dictionaries(st.integers(0, 99), st.just(UNKNOWN) | st.integers(0, 9), max_size=40), st.integers(0, 50))
def test_in_another_process_a_time_begins_where_it_was_or_where_room_is_short_not_later(
    seen: dict[int, int], most: int
) -> None:
    values = {time_name(str(number)): time for number, time in seen.items()}
    first = of_task(values, most)
    kept = first.to_keep(first.values())
    second = of_task(dict.fromkeys(values, UNKNOWN), most, kept)
    begun = {name: second.time(name).value for name in values}
    if len(values) <= most:
        assert begun == values
    else:
        assert all(UNKNOWN <= begun[name] <= values[name] for name in values)
        groups = gathered(values, most).values()
        assert all(begun[name] == min(values[one] for one in group) for group in groups for name in group)


@given(NAMES.filter(len), st.integers(1, 50))
def test_the_names_that_are_kept_are_the_same_whatever_the_times(names: set[str], most: int) -> None:
    """Metadata that fits when a task starts fits at each commit."""
    low, high = of_task(dict.fromkeys(names, 0), most), of_task(dict.fromkeys(names, 10**15), most)
    assert low.to_keep(low.values()).keys() == high.to_keep(high.values()).keys()


def test_operators_of_another_topology_find_no_time_in_a_shared_entry() -> None:
    before = of_task({time_name(str(number)): 100 for number in range(9)}, 3)
    kept = before.to_keep(before.values())
    after = of_task({time_name(str(number)): UNKNOWN for number in range(10)}, 3, kept)
    assert {after.time(time_name(str(number))).value for number in range(10)} == {UNKNOWN}


def test_that_nothing_waits_isnt_kept_and_spoils_no_shared_entry() -> None:
    first, second = sorted((time_name("first"), time_name("observed")))
    alone = of_task({first: FOREVER, second: 7}, 2)
    assert alone.to_keep(alone.values()) == {second: 7}
    shared = of_task({first: FOREVER, second: 7}, 1)
    assert list(shared.to_keep(shared.values()).values()) == [7]


def test_a_time_begins_with_what_else_is_known_of_it_and_a_roll_back_doesnt_return_before_that() -> None:
    cells = Cells([])
    name = observed_time("counts")
    cells.know({name: 50})
    assert cells.time(name, 40).value == 50
    assert cells.time(name, 60).value == 60
    cells.back({})
    assert cells.time(name).value == 60
