"""Window and session stores beside a dict, in random lives: records that fail, commits, roll-backs, restorations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from milestones.common import serdes
from milestones.common.errors import SerializationError, StateError, StateFormatError, TopologyError
from milestones.common.records import Headers, Output, TaskId, TopicPartition, output_of
from milestones.common.state.cells import Cells
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches, TaskCaches
from milestones.common.state.spec import StoreKind, StoreSpec, is_trimmed
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.kinds import changelog_settings
from milestones.common.state.stores.session_store import SessionStore
from milestones.common.state.stores.stores_with_headers import AggregationWithHeaders, ValueTimestampHeaders
from milestones.common.state.stores.window_stores import TimestampedWindowStore, WindowStore
from milestones.common.task.scope import RecordInWork, RecordScope
from milestones.common.task.task_stores import TaskStores
from milestones.common.topology.nodes import SubTopology
from milestones.common.windowed import FOREVER, Windowed

TASK = TaskId(0, 0)
SIZE_MS, RETENTION_MS = 40_000, 150_000
SEGMENT_MS = RETENTION_MS // 2
KEYS = ["", "a", "a\x00", "ab", "b", "\x7f" * 9]


@dataclass
class Message:
    """A changelog record as the client gives it."""

    output: Output

    def key(self) -> bytes | None:
        return self.output.key

    def value(self) -> bytes | None:
        return self.output.value

    def timestamp(self) -> tuple[int, int]:
        return 1, self.output.timestamp

    def headers(self) -> Headers | None:
        return self.output.headers


def spec_of(kind: StoreKind, **more: Any) -> StoreSpec:
    return StoreSpec(
        "s", kind, key_serde=serdes.STRING, value_serde=serdes.STRING, retention_ms=RETENTION_MS,
        window_ms=0 if kind.startswith("session") else SIZE_MS, **more,
    )  # fmt: skip


LOGS = pytest.mark.parametrize("at_commit", [False, True], ids=["logs each write", "logs at commits"])


class Life:
    """A store of one task, its changelog, and the rows that it must have: by (key bytes, times), newest value.
    `at_commit`: it logs at a commit."""

    def __init__(self, spec: StoreSpec, at_commit: bool = False) -> None:
        self.spec, self.at_commit = spec, at_commit
        self.changelog: list[Output] = []
        self.rows: dict[tuple[str, int, int], tuple[str, int]] = {}
        self.committed = dict(self.rows)
        self.observed = self.committed_observed = -1
        self.committed_memory: Any = {}
        self.puts = 0
        self.begin(MemoryTaskStorage(TASK, [spec]))

    def begin(self, storage: MemoryTaskStorage, kept: Mapping[str, int] | None = None) -> None:
        """`kept`: what the committed offsets carry."""
        self.scope, self.record = RecordScope(), RecordInWork()
        self.cells = Cells(self.scope.touched)
        self.cells.know(kept or {})
        sub = cast(SubTopology, SimpleNamespace(stores=(self.spec,), changelogs={"s": "log"}))
        caches = TaskCaches(RecordCaches(0))
        self.stores = TaskStores(
            TASK, sub, lambda: storage, self.scope, ReadCaches(), caches, self.cells, logs_at_commit=self.at_commit
        )
        self.stores.open()
        self.storage = storage
        self.open_to_user_code()

    def open_to_user_code(self) -> None:
        self.stores.make_typed(self.record, cached=False)
        self.stores.open_to_user_code()

    @property
    def store(self) -> Any:
        return self.stores.typed("s")

    # -- what happens to it

    def done(self) -> None:
        outputs: list[Any] = []
        self.scope.merge(outputs)
        assert not (outputs and self.at_commit)
        self.changelog += [output_of(output) for output in outputs]

    def freeze(self) -> None:
        self.stores.freeze()
        logged = [output_of(output) for output in self.stores.log_frozen()]
        assert logged == [output_of(output) for output in self.stores.log_frozen()], "its log is another one each time"
        self.changelog += logged

    def abort_logged(self) -> None:
        """At least once: what a changelog has got stays in it; of a store that logs at commits, one that failed."""
        self.scope.drop()
        if self.at_commit:
            self.freeze()
        self.stores.abort(logged=True)
        self.cells.back(self.committed_memory)

    def commit(self) -> None:
        memory = self.cells.values()
        self.freeze()
        self.cells.note_committed(memory)
        self.stores.applied({"s": len(self.changelog)})
        self.committed, self.committed_observed, self.committed_memory = dict(self.rows), self.observed, memory
        self.logged = len(self.changelog)

    def gone(self) -> dict[TopicPartition, int]:
        return self.stores.gone(self.committed_memory)

    def roll_back(self) -> None:
        """Exactly once: the records of the transaction are no more."""
        self.scope.drop()
        self.stores.abort(logged=False)
        self.cells.back(self.committed_memory)
        del self.changelog[getattr(self, "logged", 0) :]
        self.rows, self.observed = dict(self.committed), self.committed_observed
        self.open_to_user_code()

    def roll_back_logged(self, now: int = 5) -> None:
        """At least once: the changelog keeps what was rolled back, and gets more."""
        self.abort_logged()
        self.stores.make_typed(self.record, cached=False)
        self.stores.log_again(now)
        self.done()
        self.stores.open_to_user_code()

    def go_on(self) -> None:
        """In another process or task, with the store that is there."""
        self.roll_back()
        storage = self.stores.release()
        assert isinstance(storage, MemoryTaskStorage)
        self.begin(storage)
        self.committed_memory = {}

    def begin_from_changelog(self, *, keeps: bool = False) -> None:
        """`keeps`: the committed offsets carry what they can."""
        self.roll_back()
        self.stores.close()
        kept = self.cells.to_keep(self.committed_memory) if keeps else None
        self.begin(MemoryTaskStorage(TASK, [self.spec]), kept)
        for at in range(0, len(self.changelog), 7):
            batch = self.changelog[at : at + 7]
            self.stores.restore("s", map(Message, batch), at + len(batch))
        self.open_to_user_code()

    def restore(self) -> None:
        """From the changelog, on an empty disk, in another process."""
        self.begin_from_changelog(keeps=True)
        place, time = (slice(-16, -8), 2) if self.spec.kind.startswith("session") else (slice(-12, -4), 1)
        logged = max((int.from_bytes((output.key or b"")[place], "big") for output in self.changelog), default=-1)
        first = max(0, (logged - RETENTION_MS) // SEGMENT_MS)
        self.rows = {row: value for row, value in self.rows.items() if row[time] // SEGMENT_MS >= first}
        self.committed, self.committed_memory = dict(self.rows), self.cells.values()

    # -- what it must have

    def may_put(self, time: int) -> bool:
        self.observed = max(self.observed, time)
        return time // SEGMENT_MS >= max(0, (self.observed - RETENTION_MS) // SEGMENT_MS)

    def visible(self, wanted: Callable[[str, int, int], bool], time: int) -> list[tuple[tuple[str, int, int], Any]]:
        """Rows in the order of a scan; `time`: the place of a row's time in its key."""
        found = [
            (row, value)
            for row, value in self.rows.items()
            if row[time] > self.observed - RETENTION_MS and wanted(*row)
        ]
        return sorted(found, key=lambda one: (one[0][time] // SEGMENT_MS, one[0][0].encode() + tail(one[0], time)))


def tail(row: tuple[str, int, int], time: int) -> bytes:
    """Of the changelog key."""
    _, first, second = row
    if time == 2:  # a session: end, then start
        return second.to_bytes(8, "big") + first.to_bytes(8, "big")
    return first.to_bytes(8, "big") + second.to_bytes(4, "big")


def play(life: Life, chance: random.Random, write: Callable[[], None], check: Callable[[], None]) -> None:
    for _ in range(60):
        before = dict(life.rows), life.observed
        for _ in range(chance.randrange(4)):
            write()
        check()
        if chance.random() < 0.2:
            life.scope.drop()
            life.stores.forget()
            life.rows, life.observed = before
        else:
            life.done()
        check()
        happens = chance.random()
        if happens < 0.25:
            life.commit()
        elif happens < 0.32:
            life.roll_back()
        elif happens < 0.36:
            life.restore()
        check()


def headers_for(value: str) -> Headers:
    """The headers of the row with this value, none of some."""
    return [] if "1" in value else [("value", value.encode()), ("é", None)]


def times(chance: random.Random, now: list[int]) -> int:
    """Mostly forward, sometimes back, at times far ahead."""
    now[0] += chance.choice([0, 1, 5_000, 20_000, 20_000, 90_000])
    return max(0, now[0] - chance.choice([0, 0, 0, 30_000, 160_000, 400_000]))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["window", "timestamped-window", "timestamped-window-with-headers"])
@pytest.mark.parametrize("duplicates", [False, True], ids=["", "duplicates"])
@LOGS
def test_a_window_store_does_what_a_dict_does(
    at_commit: bool, kind: StoreKind, duplicates: bool, seed: int
) -> None:
    if duplicates and kind != "window":
        return
    chance, now = random.Random(seed), [seed * 50_000]
    life = Life(spec_of(kind, duplicates=duplicates, closing=not duplicates), at_commit)
    timed = kind != "window"

    def shown(row: tuple[str, int]) -> Any:
        if kind == "timestamped-window-with-headers":
            return ValueTimestampHeaders(*row, headers_for(row[0]))
        return ValueAndTimestamp(*row) if timed else row[0]

    def write() -> None:
        key, start = chance.choice(KEYS), times(chance, now)
        life.record.timestamp = 7
        value = None if chance.random() < 0.15 else f"v{chance.randrange(9)}" * chance.choice([1, 200])
        life.store.put(key, None if value is None else shown((value, 9)), start)
        number = 0
        if (value is None and duplicates) or not life.may_put(start):
            return
        if duplicates:
            life.puts += 1  # of all lives: no value takes another one's place
            number = life.puts
        if value is None:
            life.rows.pop((key, start, number), None)
        else:
            life.rows[key, start, number] = value, 9

    def check() -> None:
        first = max(0, now[0] - chance.randrange(400_000))
        last = first + chance.randrange(200_000)
        store: WindowStore = life.store
        key = chance.choice(KEYS)
        mine = life.visible(lambda k, start, _: k == key and first <= start <= last, 1)
        found = [(start, shown(value)) for (_, start, _), value in mine]
        assert list(store.fetch(key, first, last)) == found
        assert list(store.backward_fetch(key, first, last)) == found[::-1]
        within = life.visible(lambda _, start, __: first <= start <= last, 1)
        rows = [(Windowed(k, start, start + SIZE_MS), shown(value)) for (k, start, _), value in within]
        assert list(store.fetch_all(first, last)) == rows
        assert list(store.backward_fetch_all(first, last)) == rows[::-1]
        low, high = sorted(chance.choices(KEYS, k=2), key=str.encode)
        some = [row for row in rows if low.encode() <= row[0].key.encode() <= high.encode()]
        assert list(store.fetch_range(low, high, first, last)) == some
        assert list(store.backward_fetch_range(low, high, first, last)) == some[::-1]
        every = life.visible(lambda *_: True, 1)
        assert [windowed[:2] for windowed, _ in store.all()] == [row[:2] for row, _ in every]
        assert [windowed[:2] for windowed, _ in store.backward_all()] == [row[:2] for row, _ in every[::-1]]
        if not duplicates:
            for row, value in every:
                assert store.fetch(row[0], row[1]) == shown(value)
            assert store.fetch("never", 0) is None
            by_time = sorted(within, key=lambda one: (one[0][1], one[0][0].encode()))
            seen = max(first, life.observed - RETENTION_MS + 1)
            closed = [(windowed[:2], value) for windowed, value in store.closed_between(seen, last)]
            assert closed == [((k, start), value if timed else value[0]) for (k, start, _), value in by_time]

    play(life, chance, write, check)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["session", "session-with-headers"])
@LOGS
def test_a_session_store_does_what_a_dict_does(at_commit: bool, kind: StoreKind, seed: int) -> None:
    chance, now = random.Random(seed), [seed * 50_000]
    life = Life(spec_of(kind, closing=True), at_commit)

    def shown(value: str) -> Any:
        return AggregationWithHeaders(value, headers_for(value)) if kind == "session-with-headers" else value

    def write() -> None:
        end = times(chance, now)
        session = Windowed(chance.choice(KEYS), max(0, end - chance.choice([0, 10, 60_000])), end)
        value = None if chance.random() < 0.2 else f"v{chance.randrange(9)}"
        if value is None and chance.random() < 0.5:
            life.store.remove(session)
        else:
            life.store.put(session, None if value is None else shown(value))
        if not life.may_put(end):
            return
        if value is None:
            life.rows.pop(session, None)
        else:
            life.rows[session.key, session.start, end] = value, 0

    def given(rows: Iterable[Any]) -> list[Any]:
        return [(Windowed(*row), shown(value)) for row, (value, _) in rows]

    def check() -> None:
        earliest = max(0, now[0] - chance.randrange(400_000))
        latest = earliest + chance.randrange(100_000)
        store: SessionStore = life.store
        key = chance.choice(KEYS)
        found = given(life.visible(lambda k, start, end: k == key and end >= earliest and start <= latest, 2))
        assert list(store.find_sessions(key, earliest, latest)) == found
        assert list(store.backward_find_sessions(key, earliest, latest)) == found[::-1]
        low, high = sorted(chance.choices(KEYS, k=2), key=str.encode)
        some = given(
            life.visible(
                lambda k, start, end: low.encode() <= k.encode() <= high.encode() and end >= earliest
                and start <= latest, 2,
            )
        )  # fmt: skip
        assert list(store.find_sessions_of_range(low, high, earliest, latest)) == some
        assert list(store.backward_find_sessions_of_range(low, high, earliest, latest)) == some[::-1]
        ending = given(life.visible(lambda _, __, end: earliest <= end <= latest, 2))
        assert list(store.find_sessions_by_end(earliest, latest)) == ending
        mine = given(life.visible(lambda k, *_: k == key, 2))
        assert list(store.fetch(key)) == mine
        assert list(store.backward_fetch(key)) == mine[::-1]
        every = given(life.visible(lambda *_: True, 2))
        assert list(store.fetch_range(None, None)) == every
        assert list(store.backward_fetch_range(None, None)) == every[::-1]
        for session, value in every:
            assert store.fetch_session(*session) == value
        assert store.fetch_session("never", 0, 1) is None
        closing = life.visible(lambda _, __, end: earliest <= end <= earliest + 50_000, 2)
        closed = [(Windowed(*row), value) for row, (value, _) in closing]
        by_end = sorted(closed, key=lambda one: (one[0].end, one[0].start, one[0].key.encode()))
        seen = max(earliest, life.observed - RETENTION_MS + 1)
        assert list(store.closed_between(seen, earliest + 50_000)) == by_end

    play(life, chance, write, check)


@pytest.mark.parametrize("kind", ["window", "session"])
def test_what_is_gone_leaves_the_storage_with_its_segment(kind: StoreKind) -> None:
    life = Life(spec_of(kind, closing=True))
    for number in range(100):
        time = number * SEGMENT_MS // 4
        if kind == "session":
            life.store.put(Windowed("k", time, time), "v")
        else:
            life.store.put("k", "v", time)
        life.done()
        life.commit()
        there = len(list(life.storage.namespace("s").scan(None, None)))
        assert there <= 2 * 4 * 4, "a row and its place in time, of retention and a segment, four a segment"


def test_a_restoration_of_much_more_than_the_retention_keeps_no_more_than_that() -> None:
    life = Life(spec_of("window"))
    life.commit()
    for number in range(100):
        life.store.put("k", "v", number * SEGMENT_MS // 4)
        life.done()
    life.commit()
    life.restore()
    assert len(list(life.storage.namespace("s").scan(None, None))) <= 4 * 4


@pytest.mark.parametrize("empty", ["clear", "discard"])
def test_a_store_that_was_emptied_keeps_what_its_new_changelog_has_however_old(empty: str) -> None:
    life, newer, now = Life(spec_of("window")), Life(spec_of("window")), 10 * RETENTION_MS
    for time in (0, now):
        life.store.put("k", "of a former changelog", time)
    life.done()
    newer.store.put("k", "v", 5)
    newer.done()
    life.stores.restore("s", map(Message, life.changelog), 2)
    life.stores.clear("s", "its topic was made again") if empty == "clear" else life.stores.discard("s")
    life.stores.restore("s", map(Message, newer.changelog), 1)
    assert len(list(life.storage.namespace("s").scan(None, None))) == 1
    life.stores.restore("s", map(Message, life.changelog), 3)
    assert len(list(life.storage.namespace("s").scan(None, None))) == 1, "what is gone by then is dropped again"


def test_a_write_of_what_is_gone_is_neither_logged_nor_staged() -> None:
    life = Life(spec_of("window"))
    life.store.put("k", "new", 10 * RETENTION_MS)
    life.store.put("k", "old", 0)
    life.done()
    assert [output.value for output in life.changelog] == [b"new"]
    assert life.store.fetch("k", 0) is None


def test_the_changelog_of_a_window_store_has_kafka_streams_bytes() -> None:
    life = Life(spec_of("timestamped-window"))
    life.store.put("k", ValueAndTimestamp("v", 5), 65_536)
    life.done()
    (output,) = life.changelog
    assert (output.key, output.value, output.timestamp) == (b"k" + (65_536).to_bytes(8, "big") + bytes(4), b"v", 5)


def test_the_changelog_of_a_session_store_has_kafka_streams_bytes() -> None:
    life = Life(spec_of("session"))
    life.record.timestamp = 12
    life.store.put(Windowed("k", 1, 2), "v")
    life.done()
    (output,) = life.changelog
    assert (output.key, output.value, output.timestamp) == (b"k" + bytes(7) + b"\x02" + bytes(7) + b"\x01", b"v", 12)


def test_no_broker_deletes_records_of_a_changelog_by_their_age_or_its_size() -> None:
    settings = changelog_settings(spec_of("window"), {})
    assert settings["cleanup.policy"] == "compact,delete"
    assert (settings["retention.ms"], settings["retention.bytes"]) == ("-1", "-1")


def test_what_is_gone_of_a_changelog_follows_the_store_s_time_as_it_was_committed() -> None:
    life = Life(spec_of("window"))
    life.store.put("k", "v", RETENTION_MS - 1)
    assert life.gone() == {}, "nothing is committed"
    life.done()
    life.commit()
    assert life.gone() == {}, "nothing is as old as that"
    life.store.put("k", "v", 1_420_070_400_000)
    life.done()
    assert life.gone() == {}
    life.commit()
    assert life.gone() == {TopicPartition("log", 0): 1_420_070_400_000 - RETENTION_MS}


def test_what_is_still_to_be_emitted_is_not_gone_of_a_changelog() -> None:
    life = Life(spec_of("window", closing=True))
    emitted = life.cells.kept("s")
    life.store.put("k", "v", 10 * RETENTION_MS)
    life.done()
    life.commit()
    assert life.gone() == {}, "nothing is emitted"
    emitted.set(2 * RETENTION_MS)
    life.done()
    life.commit()
    assert life.gone() == {TopicPartition("log", 0): 2 * RETENTION_MS - SIZE_MS}


@pytest.mark.parametrize(
    "spec",
    [
        StoreSpec("s"),
        StoreSpec("s", "versioned", retention_ms=5),
        replace(spec_of("window"), logged=False),
        replace(spec_of("window"), source_topic="in"),
    ],
)
def test_changelogs_of_other_stores_are_not_trimmed(spec: StoreSpec) -> None:
    """The last version of a key is needed for ever, and a source topic is the user's."""
    assert not is_trimmed(spec)


def test_a_retention_for_all_internal_topics_takes_no_window_from_a_changelog_but_one_for_the_store_may() -> None:
    of_all = {"retention.ms": "1", "retention.bytes": "1", "segment.bytes": "7"}
    settings = changelog_settings(spec_of("window"), of_all)
    assert [settings[name] for name in ("retention.ms", "retention.bytes", "segment.bytes")] == ["-1", "-1", "7"]
    of_store = replace(spec_of("window"), changelog_config={"retention.ms": "9"})
    assert changelog_settings(of_store, of_all)["retention.ms"] == "9"
    assert changelog_settings(StoreSpec("s"), of_all)["retention.ms"] == "1"


@pytest.mark.parametrize("kind", ["window", "timestamped-window", "session"])
def test_a_retention_shorter_than_the_window_is_refused(kind: StoreKind) -> None:
    with pytest.raises(TopologyError, match="retention of 5 ms is shorter than its windows of 9 ms"):
        StoreSpec("s", kind, retention_ms=5, window_ms=9)
    with pytest.raises(TopologyError, match="retention"):
        StoreSpec("s", kind)


def test_a_key_cannot_be_none() -> None:
    windows, sessions = Life(spec_of("window")).store, Life(spec_of("session")).store
    calls = [
        lambda: windows.put(None, "v", 1), lambda: windows.fetch(None, 1), lambda: windows.fetch(None, 1, 2),
        lambda: windows.backward_fetch(None, 1, 2), lambda: sessions.put(Windowed(None, 1, 2), "v"),
        lambda: sessions.fetch(None), lambda: sessions.find_sessions(None, 1, 2),
        lambda: sessions.fetch_session(None, 1, 2),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(SerializationError, match="key None"):
            call()


def test_a_closed_store_refuses_every_call() -> None:
    life = Life(spec_of("window"))
    store: WindowStore = life.store
    life.stores.close_to_user_code()
    for call in (store.all, lambda: store.fetch("k", 1), lambda: store.put("k", "v", 1)):
        with pytest.raises(StateError, match="isn't open"):
            call()


def test_a_timestamped_window_store_refuses_a_plain_value() -> None:
    store: TimestampedWindowStore = Life(spec_of("timestamped-window")).store
    with pytest.raises(SerializationError, match="keeps timestamps"):
        store.put("k", "v", 1)  # type: ignore[arg-type]


def test_a_window_without_a_size_has_no_end() -> None:
    life = Life(StoreSpec("s", "window", key_serde=serdes.STRING, value_serde=serdes.STRING, retention_ms=10**12))
    life.store.put("k", "v", 0)
    assert list(life.store.all()) == [(Windowed("k", 0, FOREVER), "v")]


def test_what_was_gone_is_gone_after_the_restoration_of_a_commit_without_answer() -> None:
    life = Life(spec_of("window", closing=True))
    for start in (1_751_000, 1_905_000):
        life.store.put("k", "v", start)
        life.done()
    remembered, shown = life.cells.values(), list(life.store.all())
    life.stores.abort(logged=False)
    life.cells.back(remembered)
    life.stores.restore("s", map(Message, life.changelog), len(life.changelog))
    life.open_to_user_code()
    assert list(life.store.all()) == shown == [(Windowed("k", 1_905_000, 1_905_000 + SIZE_MS), "v")]


@pytest.mark.parametrize("kind", ["window", "timestamped-window", "session", "session-with-headers"])
def test_a_changelog_of_another_kind_of_store_is_told_with_its_store(kind: StoreKind) -> None:
    life = Life(spec_of(kind))
    other = Message(Output("log", 0, b"a", b"v", 5, None, "s"))
    with pytest.raises(StateFormatError, match="store 's' of task 0_0: a record of its changelog before"):
        life.stores.restore("s", [other], 1)
    assert life.storage.offsets().get("s") is None
