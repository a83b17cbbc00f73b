"""Views of keys show what the layers have, whatever is written, dropped or rolled back; and they have a bound."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.state.layers import StoreLayers
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores import key_views, segmented_rows, session_rows
from milestones.common.state.stores.key_views import FEW, TOO_LONG, KeyViews, ViewCache
from milestones.common.state.stores.segmented_rows import SegmentedRows
from milestones.common.windowed import Windowed
from tests.common.state.interleaving import at_every_place
from tests.common.task.harness import Harness, forward, processing

MINUTE = 60_000
GAP = 1_000


def sessions(**options: Any) -> StoreSpec:
    texts = {"key_serde": serdes.STRING, "value_serde": serdes.STRING}
    return StoreSpec("store", **{"kind": "session", "retention_ms": 10 * MINUTE, **texts, **options})


def duplicates() -> StoreSpec:
    return sessions(kind="window", duplicates=True, window_ms=10)


class FailedError(Exception):
    pass


class Owner:
    """A task with one store, whose calls are made as those of records."""

    def __init__(self, spec: StoreSpec, remembered: int = 1 << 20) -> None:
        self.harness = Harness(processing(forward, [spec]), transactional_id="tx", read_cache_max_bytes=remembered)
        self.harness.start({})

    @property
    def store(self) -> Any:
        return self.harness.task.store("store")

    @property
    def cache(self) -> ViewCache:
        cache = self.store._view_cache
        assert isinstance(cache, ViewCache)
        return cache

    def call(self, call: Callable[[], Any]) -> Any:
        self.harness.go_on()
        return self.harness.task.call(call)

    def failing(self, key: str, time: int) -> None:
        """A record that fails after its session was put."""

        def fail() -> None:
            data, found = self.store.near(key, time - GAP, time + GAP)
            self.store.replace_rows(data, found, time, time, "never")
            raise FailedError

        self.harness.go_on()
        with pytest.raises(FailedError):
            self.harness.task.call(fail)

    def remove(self, session: Windowed[str]) -> None:
        self.call(lambda: self.store.remove(session))

    def session(self, key: str, time: int, value: str = "v") -> list[Windowed[str]]:
        """What the operator does with a record: merge the sessions near its time. Returns those that it has found."""

        def merge() -> list[Windowed[str]]:
            data, found = self.store.near(key, time - GAP, time + GAP)
            start = min([time, *(row[1] for row in found)])
            end = max([time, *(row[0] for row in found)])
            self.store.replace_rows(data, found, start, end, value, new=True)
            return [Windowed(key, row[1], row[0]) for row in found]

        return self.call(merge)  # type: ignore[no-any-return]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The heads of the keys whose rows are read from layers and engine."""
    made: list[bytes] = []
    read = StoreLayers.scan_bounded

    def counted(layers: StoreLayers, head: bytes, *tails: bytes) -> Any:
        made.append(head)
        return read(layers, head, *tails)

    monkeypatch.setattr(StoreLayers, "scan_bounded", counted)
    return made


# -- what isn't read


def test_no_key_is_read_from_the_layers_while_an_empty_store_fills(reads: list[bytes]) -> None:
    owner = Owner(sessions())
    for time in range(0, 20 * MINUTE, 500):
        owner.session(f"key-{time % 7}", time)
        if time % 7_000 == 0:
            owner.harness.commit()
    assert reads == []


def test_no_join_reads_the_layers_while_its_empty_store_fills(reads: list[bytes]) -> None:
    owner = Owner(duplicates())
    for time in range(0, 20 * MINUTE, 500):
        owner.call(lambda at=time: owner.store.rows_between(f"key-{at % 7}", max(0, at - 5_000), at))
        owner.call(lambda at=time: owner.store.put(f"key-{at % 7}", "v", at))
    assert reads == []


def test_after_a_roll_back_a_key_is_read_once_and_a_new_one_of_a_later_segment_never(reads: list[bytes]) -> None:
    owner = Owner(sessions())
    owner.session("old", MINUTE)
    owner.harness.commit()
    owner.session("rolled back", MINUTE + 1)
    owner.harness.task.roll_back()
    reads.clear()
    assert owner.session("rolled back", MINUTE + 2) == []
    assert len(owner.session("old", MINUTE + 2)) == 1
    assert len(owner.session("old", MINUTE + 3)) == 1
    known = len(reads)
    assert known > 0
    for number in range(100):
        later = 6 * MINUTE + number * GAP
        assert owner.session(f"new-{number}", later) == []
    assert len(reads) == known


# -- what isn't kept


def test_the_views_of_fifty_stores_stay_within_the_bound_of_the_instance() -> None:
    caches, rng = ReadCaches(400_000), random.Random(2)
    stores: list[ViewCache] = []
    for number in range(50):
        stores.append(ViewCache(caches, 12, values_too=bool(number % 2)))
        for time in range(300):
            cache = rng.choice(stores)
            views = cache.views or cache.begin_views(time)
            key = b"%d" % rng.randrange(100)
            row = [time, 0, b"12345678" + key + bytes(12), bytes(rng.choice([8, 5_000])), None]
            if views.write(key, row, time - 200):
                views.turn(time)
            for looked_at in range(rng.choice([0, 100])):  # looks move views to the younger generation
                views.find(b"%d" % looked_at)
            if rng.randrange(10) == 0 and views.set(b"%0100d" % time, TOO_LONG):
                views.turn(time)
            assert caches.memory_bytes() <= caches.max_bytes, f"{number + 1} stores"


def test_the_time_of_all_views_is_after_the_last_row_that_a_dropped_view_can_have() -> None:
    cache = ViewCache(ReadCaches(1 << 20), 12, values_too=False)
    views = cache.begin_views(5)
    views.write(b"key", [10, 0, bytes(20), b"value", None], 0)
    views.turn(10)
    assert (views.since, views.find(b"other")) == (5, None), "the view is still there"
    views.turn(30)
    assert (views.since, views.find(b"key")) == (11, None)


def rows(*times: int) -> list[list[Any]]:
    return [[time, 0, b"%020d" % time, b"value", None] for time in times]


def views_of(*times: int, share: int = 1 << 20) -> tuple[ViewCache, KeyViews]:
    """Views that have these rows of one key, and their cache."""
    cache = ViewCache(ReadCaches(share), 12, values_too=False)
    views = cache.begin_views(0)
    for row in rows(*times):
        views.write(b"key", row, 0)
    return cache, views


def test_views_that_fill_more_than_half_at_a_turn_are_dropped_with_their_times() -> None:
    _, views = views_of(share=4_000)
    for number in range(5):
        views.write(b"%d" % number, rows(number)[0], 0)
    views.turn(7)
    assert (views.all_bytes, views.find(b"0"), views.since) == (0, None, 8)


def test_a_view_without_its_expired_rows_begins_after_them() -> None:
    _, views = views_of(*range(FEW + 1))
    views.write(b"key", rows(40)[0], 12)
    view = views.young[b"key"]
    assert ([row[0] for row in view.rows], view.since) == ([12, 13, 14, 15, 16, 40], 12)


def test_a_row_takes_the_place_of_the_former_ones_only() -> None:
    _, views = views_of(5)
    views.replace(b"key", rows(3), rows(9)[0], 0)
    assert [row[0] for row in views.young[b"key"].rows] == [5, 9]


def test_a_key_to_which_too_many_rows_are_written_has_no_view() -> None:
    _, views = views_of(*range(key_views.MOST_ROWS))
    assert views.young[b"key"] is not TOO_LONG
    views.write(b"key", rows(1_000)[0], 0)
    assert views.young[b"key"] is TOO_LONG


def test_a_key_whose_rows_need_too_many_bytes_has_no_view() -> None:
    _, views = views_of(5, share=8_000)
    views.write(b"key", [6, 0, bytes(20), bytes(2_000), None], 0)
    assert (views.young[b"key"], views.bytes) == (TOO_LONG, key_views.VIEW_BYTES + len(b"key"))


def test_a_key_whose_one_row_grows_beyond_a_views_bytes_has_no_view() -> None:
    _, views = views_of(5, share=8_000)
    former = views.young[b"key"].rows
    views.replace(b"key", former, [6, 0, bytes(20), bytes(2_000), None], 0)
    assert (views.young[b"key"], views.bytes) == (TOO_LONG, key_views.VIEW_BYTES + len(b"key"))


def test_the_views_of_a_join_that_only_puts_stay_within_the_bound() -> None:
    owner = Owner(duplicates(), remembered=50_000)
    owner.call(lambda: owner.store.rows_between("key", 0, 10))
    for number in range(300):
        owner.call(lambda n=number: owner.store.put(f"key-{n}", "v", n))
        assert owner.cache.memory_bytes() <= 50_000


def test_the_bytes_of_both_generations_are_those_of_their_views() -> None:
    cache, rng = ViewCache(ReadCaches(200_000), 12, values_too=False), random.Random(3)
    views = cache.begin_views(0)
    for time in range(3_000):
        key, value = b"%d" % rng.randrange(60), rng.choice([None, b"v", bytes(900)])
        row = [time - rng.randrange(3), 0, bytes(20), value, None]
        if rng.random() < 0.3:
            full = views.replace(key, [row], None if value is None else row, time - 50)
        else:
            full = views.write(key, row, time - 50)
        if rng.random() < 0.05:
            views.forget(key)
        if full or rng.random() < 0.02:
            views.turn(time)
        every = {**views.young, **views._older}
        assert all(view.bytes == sum(map(key_views.bytes_of, view.rows)) for view in every.values())
        of_views = sum(key_views.VIEW_BYTES + len(key) + view.bytes for key, view in every.items())
        assert views.all_bytes == of_views, f"at {time}"


def test_the_bytes_that_are_counted_are_about_those_that_are_taken() -> None:
    caches = ReadCaches(1 << 30)
    cache = ViewCache(caches, 12, values_too=False)
    views = cache.begin_views(0)
    tracemalloc.start()
    for number in range(20_000):
        key = b"key-%08d" % (number // 4)
        place, time = b"12345678" + key + bytes(12), 10**12 + number
        views.write(key, [time, 0, place, bytes(90), bytes(90)], 0)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 * taken < caches.memory_bytes() < 1.5 * taken


def test_a_key_with_many_rows_is_read_by_the_range_that_is_asked_for() -> None:
    owner = Owner(duplicates())
    for time in range(1_000):
        owner.call(lambda at=time: owner.store.put("hot", str(at), at))
    found = owner.call(lambda: owner.store.rows_between("hot", 990, 2_000))
    assert found == [(at, str(at)) for at in range(990, 1_000)]
    views = owner.cache.views
    assert views is not None
    assert views.young[b"hot"] is TOO_LONG


def used(owner: Owner, keys: int, first: int, records: int) -> int:
    """Records of this many keys in turn, at one time. Returns how many of them found no views to use."""
    without = 0
    for number in range(first, first + records):
        owner.session(f"key-{number % keys}", MINUTE)
        without += owner.cache.views is None
    return without


def test_a_store_whose_views_are_dropped_before_they_are_used_does_without_them_for_a_while() -> None:
    owner = Owner(sessions(), remembered=200_000)
    assert used(owner, 2_000, 0, 6_000) > 2_000
    assert owner.session("key-7", MINUTE) == [Windowed("key-7", MINUTE, MINUTE)]


def test_a_store_that_did_without_views_has_them_when_fewer_keys_are_in_use() -> None:
    owner = Owner(sessions(), remembered=200_000)
    used(owner, 2_000, 0, 6_000)
    used(owner, 50, 6_000, 20_000)
    assert used(owner, 50, 26_000, 2_000) == 0


def test_a_store_whose_keys_fit_into_both_generations_keeps_its_views() -> None:
    owner = Owner(sessions(), remembered=200_000)
    assert used(owner, 200, 0, 4_000) == 0


def test_a_store_that_must_read_each_key_of_its_first_generation_keeps_its_views() -> None:
    owner = Owner(sessions(), remembered=200_000)
    used(owner, 200, 0, 200)
    owner.harness.commit()
    owner.cache.clear()
    assert used(owner, 200, 0, 1_000) == 0


def test_no_store_of_an_instance_that_remembers_nothing_has_views() -> None:
    owner = Owner(sessions(), remembered=0)
    owner.session("key", MINUTE)
    assert len(owner.session("key", MINUTE + 1)) == 1
    assert owner.store._view_cache is None


# -- whenever they are dropped


def live(seed: int, remembered: int) -> None:
    """Two stores get the same records. One has views, which are dropped at times; the other one has none."""
    rng = random.Random(seed)
    viewed, plain = Owner(sessions(), remembered), Owner(sessions(), 0)
    both, now = (viewed, plain), MINUTE
    for _ in range(300):
        now += rng.randrange(400)
        key, time = f"key-{rng.randrange(12 if seed % 2 else 3)}", max(0, now - rng.choice([0, 0, 0, 3_000, 700_000]))
        time -= time % 500
        assert viewed.session(key, time) == plain.session(key, time)
        event = rng.randrange(30)
        if event < 3:
            viewed.cache.clear()
        for each in both:
            if event in (4, 5, 6):
                each.harness.commit()
            elif event in (7, 8):
                each.harness.task.roll_back()
            elif event == 9:
                each.remove(Windowed(key, time, time))
            elif event in (10, 11):  # it comes, is committed, goes, comes and grows
                each.session(key, time + 9_000)
                each.harness.commit()
                each.remove(Windowed(key, time + 9_000, time + 9_000))
                each.session(key, time + 9_000)
                each.session(key, time + 9_500)
            elif event == 13:
                each.failing(key, time)


@pytest.mark.parametrize("remembered", [2_000, 20_000, 1 << 20])
@pytest.mark.parametrize("seed", range(6))
def test_sessions_are_found_as_without_views_whatever_is_dropped(seed: int, remembered: int) -> None:
    live(seed, remembered)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a failing record's view stays": lambda patch: patch.setattr(KeyViews, "forget", lambda *_: None),
    "new views are complete from the beginning": lambda patch: patch.setattr(
        SegmentedRows, "_begin_views", lambda _, cache: cache.begin_views(0)
    ),
    "a turn doesn't raise the time": lambda patch: patch.setattr(KeyViews, "turn", _turn_without_time),
    "every put is of a new row": lambda patch: patch.setattr(StoreLayers, "put_new", _always_new),
    "a deletion isn't noted": lambda patch: patch.setattr(KeyViews, "replace", _without_deletions),
    "a removed session stays in its view": lambda patch: patch.setattr(SegmentedRows, "_note_place", lambda *_: None),
}


def _turn_without_time(views: KeyViews, _: int) -> None:
    views._older, views._older_bytes, views.young, views.bytes = views.young, views.bytes, {}, 0


def _always_new(layers: StoreLayers, key: bytes, value: bytes) -> None:
    layers._overlay.fresh.add(key)
    layers.put(key, value)


def _without_deletions(views: KeyViews, key: bytes, _: Any, row: Any, earliest: int) -> bool:
    return row is not None and views.write(key, row, earliest)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_that_is_broken_in_this_way_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    with pytest.raises(AssertionError):  # noqa: PT012 - any of these lives
        for seed in range(20):
            for remembered in (2_000, 20_000, 1 << 20):
                live(seed, remembered)


def test_a_session_that_has_expired_but_is_still_there_is_not_taken_for_a_new_one() -> None:
    owner, gone = Owner(sessions()), 6 * MINUTE
    owner.session("key", gone)
    owner.harness.commit()
    owner.session("other", gone + 10 * MINUTE)  # then `key`'s session has expired, but not all of its segment

    def comes_and_goes() -> None:
        data, found = owner.store.near("key", gone - GAP, gone + GAP)
        assert found == []
        owner.store.replace_rows(data, found, gone, gone, "late", new=True)
        owner.store.remove(Windowed("key", gone, gone))

    owner.call(comes_and_goes)
    owner.harness.commit()
    assert not [place for place in owner.harness.engine("store") if b"key" in place]


@pytest.mark.parametrize("module", [key_views, segmented_rows, session_rows])
def test_another_thread_may_drop_the_views_between_any_two_steps_of_a_call(module: ModuleType) -> None:
    def prepare() -> tuple[Callable[[], Any], Callable[[], object]]:
        owner = Owner(sessions())
        for time in (MINUTE, MINUTE + 5_000, MINUTE + 9_000):
            owner.session("key", time)
        owner.session("other", MINUTE)

        def records() -> list[Any]:
            found = [owner.session("key", MINUTE + 5_500), owner.session("new", MINUTE + 5_500)]
            return [*found, owner.session("key", MINUTE + 6_000), owner.session("new", MINUTE + 5_600)]

        return records, owner.cache.clear

    found = at_every_place(module, prepare)
    first = [Windowed("key", MINUTE + 5_000, MINUTE + 5_000)]
    grown = [Windowed("key", MINUTE + 5_000, MINUTE + 5_500)]
    right = [first, [], grown, [Windowed("new", MINUTE + 5_500, MINUTE + 5_500)]]
    assert [at for at, one in enumerate(found, 1) if one != right] == []
