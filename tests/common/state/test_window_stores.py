"""Window stores: what is kept, in which order, and for how long; beside a model, in lives of a task."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import MilestonesError
from milestones.common.records import TopicPartition
from milestones.common.state.cells import Cells
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.kinds import changelog_settings
from milestones.common.state.stores.sequences import HIGHEST, LAST_SEQUENCE, Sequences
from milestones.common.windowed import FOREVER
from tests.common.task.harness import Harness, forward, processing

MINUTE = 60_000
TEXT = serdes.STRING


class FailedError(Exception):
    pass


def spec(**options: Any) -> StoreSpec:
    defaults = {"kind": "window", "retention_ms": 2 * MINUTE, "window_ms": 10, "key_serde": TEXT, "value_serde": TEXT}
    return StoreSpec("store", **{**defaults, **options})


class Life:
    """A store of a task: calls, records that fail, commits, roll-backs and restarts."""

    def __init__(self, of: StoreSpec) -> None:
        self._spec = of
        self._metadata: Mapping[TopicPartition, str] = {}
        self._begin()

    def _begin(self, state: Any = None) -> None:
        self.harness = Harness(processing(forward, [self._spec]), transactional_id="tx")
        self.harness.state = state or self.harness.state
        self.harness.start(self._metadata)

    def call(self, name: str, *arguments: Any) -> Any:
        def call() -> Any:
            found = getattr(self.harness.task.store("store"), name)(*arguments)
            return list(found) if isinstance(found, Iterator) else found

        self.harness.go_on()
        return self.harness.task.call(call)

    def failing(self, name: str, *arguments: Any) -> None:
        """A call in a record that fails afterwards."""

        def call() -> None:
            getattr(self.harness.task.store("store"), name)(*arguments)
            raise FailedError

        self.harness.go_on()
        with pytest.raises(FailedError):
            self.harness.task.call(call)

    def commit(self) -> None:
        self._metadata = self.harness.commit().metadata

    def roll_back(self) -> None:
        self.harness.task.roll_back()

    def restart(self) -> None:
        """What wasn't committed is lost."""
        self._begin(self.harness.state)


def filled(*rows: tuple[str, Any, int], **options: Any) -> Life:
    life = Life(spec(**options))
    for row in rows:
        life.call("put", *row)
    return life


# -- one row after the other


def test_duplicates_of_a_key_and_a_start_are_kept_in_their_order() -> None:
    life = filled(("a", "1", 5), ("a", "2", 5), ("a", "0", 4), duplicates=True)
    assert life.call("fetch", "a", 0, 9) == [(4, "0"), (5, "1"), (5, "2")]
    assert life.call("put", "a", None, 5)
    assert len(life.call("fetch", "a", 5, 5)) == 2


def test_of_duplicates_the_one_of_a_window_is_what_was_put_last_of_all() -> None:
    life = filled(("a", "1", 5), ("a", "2", 5), duplicates=True)
    assert life.call("fetch", "a", 5) == "2"
    life.call("put", "b", None, 5)
    assert life.call("fetch", "a", 5) == "2"
    life.failing("put", "a", "3", 5)
    assert life.call("fetch", "a", 5) == "2"
    life.call("put", "a", "0", 4)
    assert [life.call("fetch", "a", start) for start in (4, 5)] == ["0", None]


def test_sequence_numbers_go_on_after_a_roll_back_where_the_commit_was() -> None:
    life = filled(("a", "1", 5), duplicates=True)
    life.commit()
    life.call("put", "a", "2", 5)
    life.roll_back()
    life.call("put", "a", "3", 5)
    assert life.call("fetch", "a", 5, 5) == [(5, "1"), (5, "3")]
    assert [key.hex()[-8:] for key in life.harness.engine("store")] == ["00000001"]


def test_no_value_takes_the_place_of_one_of_before_a_restart() -> None:
    life = filled(("a", "1", 5), ("a", "2", 5), duplicates=True)
    life.commit()
    life.call("put", "a", "lost", 5)
    life.restart()
    assert life.call("fetch", "a", 5) is None, "none was put in this process"
    for value in "34":
        life.call("put", "a", value, 5)
    assert life.call("fetch", "a", 5, 5) == [(5, "1"), (5, "2"), (5, "3"), (5, "4")]
    life.commit()
    assert [key.hex()[-8:] for key in life.harness.engine("store")] == [f"0000000{number}" for number in range(1, 5)]


@pytest.mark.parametrize("commits", [False, True], ids=["before its first commit", "after one"])
def test_two_stores_of_a_task_keep_every_value_over_a_restart_and_a_roll_back(commits: bool) -> None:
    """The loop starts a task again after a roll-back, with the committed metadata of then."""
    specs = [replace(spec(duplicates=True), name=name) for name in ("left", "right")]

    def put(harness: Harness, *values: str) -> None:
        for value in values:
            harness.go_on()
            harness.task.call(lambda value=value: harness.task.store(value.rstrip("0123456789")).put("a", value, 5))

    one, two = (Harness(processing(forward, specs), transactional_id="tx") for _ in range(2))
    put(one.start(), "left1", "right1", "right2", "right3")
    metadata = one.commit().metadata
    two.state = one.state
    two.start(metadata)
    if commits:
        put(two, "left2")
        metadata = two.commit().metadata
    put(two, "left3", "right4")
    two.task.roll_back()
    two.task.start(dict.fromkeys(two.task.partitions, 0), metadata)
    put(two, "left3", "right4")
    found = {
        name: [value for _, value in two.task.call(lambda name=name: [*two.task.store(name).fetch("a", 5, 5)])]
        for name in ("left", "right")
    }
    assert found == {
        "left": ["left1", *(["left2"] if commits else []), "left3"], "right": ["right1", "right2", "right3", "right4"],
    }  # fmt: skip


def test_a_row_that_is_gone_is_neither_read_nor_written() -> None:
    life = filled(("a", "old", 0), ("a", "new", 10 * MINUTE))
    assert life.call("put", "b", "late", MINUTE) is False
    assert life.call("all") == [(("a", 10 * MINUTE, 10 * MINUTE + 10), "new")]
    assert life.call("fetch", "a", 0) is None


def test_a_record_that_fails_takes_the_stores_time_back() -> None:
    life = filled(("a", "1", 0))
    life.failing("put", "a", "2", 100 * MINUTE)
    assert life.call("fetch", "a", 0) == "1"


@pytest.mark.timeout(20)
def test_rows_that_lie_decades_apart_are_found_at_once() -> None:
    now = 1_700_000_000_000
    life = filled(("a", "1", now), ("b", "2", now + MINUTE))
    life.commit()
    life.restart()
    assert [value for _, value in life.call("all")] == ["1", "2"]
    assert [value for _, value in life.call("backward_all")] == ["2", "1"]
    life.failing("put", "a", "3", 10 * now)
    assert [value for _, value in life.call("fetch", "a", 0, FOREVER - 1)] == ["1"]


def test_hundreds_of_rows_of_a_key_are_all_found_among_those_of_keys_that_begin_like_it() -> None:
    life = Life(spec(retention_ms=10 * MINUTE, duplicates=True))
    for start in range(400):
        for key in ("a", "a\0", "a" * 9, ""):
            life.call("put", key, f"{key}{start}", start * 100)
        if start == 300:
            life.commit()
    rows = [(start * 100, f"a{start}") for start in range(400)]
    assert life.call("fetch", "a", 0, FOREVER - 1) == rows
    assert life.call("backward_fetch", "a", 0, FOREVER - 1) == rows[::-1]
    assert life.call("fetch", "a", 500, 39_000) == rows[5:391]
    assert life.call("backward_fetch", "a", 500, 39_000) == rows[5:391][::-1]


def test_a_changelog_has_no_limit_of_age_which_a_broker_would_measure_by_its_own_clock() -> None:
    kept = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert kept.items() <= changelog_settings(spec(), {}).items()


# -- beside a model


class Model:
    """Rows by key, start and sequence, the highest start so far, and what the last commit had of both."""

    def __init__(self, of: StoreSpec) -> None:
        self._spec = of
        self.rows: dict[tuple[str, int, int], str] = {}
        self.observed, self.sequence = -1, 0
        self._committed = self._all()

    def _all(self) -> tuple[Any, ...]:
        return dict(self.rows), self.observed, self.sequence

    def put(self, key: str, value: str | None, start: int) -> bool:
        duplicates, segment = self._spec.duplicates, self._spec.segment_ms
        if duplicates:
            self.sequence += 1
            if value is None:
                return True
        self.observed = max(self.observed, start)
        if start // segment < max(0, self.observed - self._spec.retention_ms) // segment:
            return False
        row = (key, start, self.sequence)
        if value is None:
            self.rows.pop(row, None)
        else:
            self.rows[row] = value
        return True

    def found(self, keys: tuple[str, str] | None, first: int, last: int) -> list[tuple[str, int, str]]:
        first, segment = max(first, self.observed - self._spec.retention_ms + 1), self._spec.segment_ms
        rows = [row for row in self.rows if first <= row[1] <= last and (keys is None or keys[0] <= row[0] <= keys[1])]
        in_memory = not self._spec.persistent  # in the order of time, not of its segments
        rows.sort(
            key=lambda row: (
                row[1] if in_memory else row[1] // segment, row[0].encode() + row[1].to_bytes(8, "big"), row[2]
            )
        )
        return [(key, start, self.rows[key, start, sequence]) for key, start, sequence in rows]

    def commit(self) -> None:
        segment = self._spec.segment_ms
        gone = max(0, self.observed - self._spec.retention_ms) // segment
        self.rows = {row: value for row, value in self.rows.items() if row[1] // segment >= gone}
        self._committed = self._all()

    def roll_back(self) -> None:
        rows, self.observed, self.sequence = self._committed
        self.rows = dict(rows)

    def restart(self) -> None:
        """The committed offsets have the time."""
        self.roll_back()


KEYS = ("a", "ab", "b", "")


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_store_gives_what_a_simple_model_gives_in_any_life(seed: int, duplicates: bool) -> None:
    chance = random.Random(seed)
    of = spec(duplicates=duplicates, retention_ms=chance.choice([10, MINUTE, 3 * MINUTE]), persistent=bool(seed % 2))
    life, model, now = Life(of), Model(of), 0
    for number in range(150):
        now += chance.choice([0, 1, 20_000, 50_000]) if chance.random() < 0.97 else 20 * MINUTE
        start = max(0, now - chance.choice([0, 0, 5, 30_000, 100_000, 400_000]))
        key, value = chance.choice(KEYS), None if chance.random() < 0.2 else f"v{number}"
        match chance.choice(["put"] * 8 + ["fail", "commit", "roll_back", "restart"]):
            case "put":
                assert life.call("put", key, value, start) == model.put(key, value, start)
            case "fail":
                life.failing("put", key, value, start)
            case event:
                getattr(life, event)()
                getattr(model, event)()
        first, last = sorted((max(0, now - chance.randrange(300_000)), chance.choice([start, now, FOREVER - 1])))
        least, most = sorted(chance.sample(KEYS, 2))
        one, several = model.found((key, key), first, last), model.found((least, most), first, last)
        assert life.call("fetch", key, first, last) == [(start, value) for _, start, value in one]
        assert life.call("backward_fetch", key, first, last) == [(start, value) for _, start, value in reversed(one)]
        shown = [((key, start, start + 10), value) for key, start, value in several]
        assert life.call("fetch_range", least, most, first, last) == shown
        assert life.call("backward_fetch_range", least, most, first, last) == shown[::-1]
        assert [value for _, value in life.call("all")] == [row[-1] for row in model.found(None, 0, FOREVER - 1)]


def test_stores_of_one_task_go_on_above_what_any_of_them_has_used() -> None:
    """Kafka takes little metadata: one number has room there, for all of them."""
    cells = Cells([])
    left, right = Sequences("left", cells), Sequences("right", cells)
    assert [left.following("v") for _ in range(3)] == [1, 2, 3]
    assert right.following("v") == 1
    for cell in ("store left sequence", "store right sequence", HIGHEST):
        cells.cell(cell, 0).merge()
    kept = cells.to_keep(cells.values())
    assert list(kept.values()) == [3]
    elsewhere = Cells([])
    elsewhere.know(kept)
    left, right = Sequences("left", elsewhere), Sequences("right", elsewhere)
    assert (right.following("v"), left.following("v"), left.following("v")) == (4, 4, 5)


def test_a_store_goes_on_after_a_roll_back_where_it_was_whatever_the_other_one_has_used() -> None:
    cells = Cells([])
    left, right = Sequences("left", cells), Sequences("right", cells)
    for _ in range(10):
        right.following("v")
    assert [left.following("v") for _ in range(3)] == [1, 2, 3]
    for cell in ("store left sequence", "store right sequence", HIGHEST):
        cells.cell(cell, 0).merge()
    committed = cells.values()
    left.following("rolled back")
    cells.back(committed)
    cells.know(cells.to_keep(committed))
    left = Sequences("left", cells)
    assert left.last() == 3
    assert left.following("again") == 4


def test_a_task_that_comes_back_goes_on_above_what_its_other_owner_has_used() -> None:
    cells = Cells([])
    Sequences("store", cells).following("v")
    cells.know({HIGHEST: 70})
    assert Sequences("store", cells).following("v") == 71


def test_numbers_begin_anew_after_the_last_one_that_a_key_has_room_for() -> None:
    cells = Cells([])
    cells.know({HIGHEST: LAST_SEQUENCE - 1})
    sequences = Sequences("store", cells)
    assert [sequences.following("v") for _ in range(3)] == [LAST_SEQUENCE, 0, 1]
    assert sequences.last() == 1


@pytest.mark.parametrize("kind", ["window", "timestamped-window"])
@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("start", [-5, 1 << 70])
def test_a_window_that_no_key_can_have_is_refused_whatever_was_put_before(
    start: int, duplicates: bool, kind: str
) -> None:
    life = Life(spec(kind=kind, duplicates=duplicates and kind == "window"))
    value = "v" if kind == "window" else ValueAndTimestamp("v", 1)
    for _ in range(2):
        with pytest.raises(MilestonesError, match="store store of task 0_0"):
            life.call("put", "abcdefgh", value, start)
        life.call("put", "a", value, 5)
    assert len(life.call("fetch", "a", 0, 10)) == (2 if duplicates and kind == "window" else 1)


def test_a_value_that_was_serialised_before_its_put_is_fetched_also_where_another_one_was_remembered() -> None:
    life = filled(("a", "1", 5))
    assert life.call("fetch", "a", 5) == "1"
    assert life.call("put_encoded", "a", b"2", 5)
    assert life.call("fetch", "a", 5) == "2"


def test_rows_that_no_read_has_asked_for_in_a_while_are_found_by_a_join() -> None:
    life = filled(("a", "1", 5), duplicates=True)
    views = life.harness.task.store("store")._view_cache.views
    life.call("rows_between", "a", 0, 10)
    views.turn(5)
    assert not views.young
    assert life.call("rows_between", "a", 0, 10) == [(5, "1")]
