"""Every kind of store in a task that logs at commits, beside the same task that logs each write, on a disk: what user
code reads, what is sent, what lies in the engines, and what a restoration and a standby make of the changelogs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from milestones import (
    JoinWindows,
    SessionWindows,
    StoreSpec,
    StreamsBuilder,
    TimeWindows,
    ValueTimestampHeaders,
    Windowed,
    serdes,
)
from milestones.common.records import VALUE, Emitted, Output, Record
from milestones.common.state.commit_log import NOTHING, CommitLog, HistoryLog, RecordLog, TimedLog
from milestones.common.state.engine import Namespace
from milestones.common.state.stores.kinds import KINDS, kind_of
from milestones.common.topology import Topology
from milestones.common.windowed import END_AND_START
from tests.common.task.global_kinds import CASES, Case, put_timestamped, read_timestamped
from tests.common.task.harness import processing
from tests.common.task.log_lives import Life

TEXT: dict[str, Any] = {"key": serdes.STRING, "value": serdes.STRING}
LEAPS = [1, 3, 11, 400, 30_000, 61_000]
BEGIN = 200_000


def text_of(key: Any) -> str:
    return f"{key.key}@{key.start}" if isinstance(key, Windowed) else str(key)


# -- programs


def user_code(case: Case) -> Callable[[], Topology]:
    """A processor writes each record into the store, and sends all that it reads then; a bad record fails behind
    that."""

    def process(context: Any, record: Record) -> None:
        store = context.get_state_store(case.spec.name)
        case.write(store, record)
        context.forward(record.with_value(str(sorted(case.read(store).items(), key=str))))
        if record.value == "bad":
            raise RuntimeError("user code")

    return lambda: processing(process, [case.spec])


def put_with_its_headers(store: Any, record: Record) -> None:
    store.put(record.key, record.value and ValueTimestampHeaders(record.value, record.timestamp, record.headers))


def windowed(windows: TimeWindows | SessionWindows, emit: Any = "on_update", **suppress: Any) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", **TEXT).group_by_key()
    table = grouped.windowed_by(windows, emit=emit).count("counts")
    if suppress:
        table = table.suppress(**suppress)
    table.to_stream(lambda key, _: text_of(key)).to("out", key=serdes.STRING, value=serdes.LONG)
    return builder.build()


def joined() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.stream("in", **TEXT), builder.stream("other", **TEXT)
    left.outer_join(right, lambda one, other: f"{one}+{other}", within=JoinWindows(400, grace=100)).to("out", **TEXT)
    return builder.build()


def joined_late() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("other", "rows", history=1_000_000, **TEXT)
    left = builder.stream("in", **TEXT)
    left.join(table, lambda one, other: f"{one}+{other}", grace=40_000).to("out", **TEXT)
    return builder.build()


def tables() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.table("in", **TEXT), builder.table("other", **TEXT)
    left.outer_join(right, lambda one, other: f"{one}+{other}", store="joined").to_stream().to("out", **TEXT)
    return builder.build()


WITH_ITS_HEADERS = next(case for case in CASES if case.kind == "timestamped-key-value-with-headers")
PROGRAMS: dict[str, Callable[[], Topology]] = {
    **{case.kind: user_code(case) for case in CASES},
    "rows with the headers of their records": user_code(
        Case(WITH_ITS_HEADERS.spec, put_with_its_headers, WITH_ITS_HEADERS.model, WITH_ITS_HEADERS.read)
    ),
    "changelog records with headers": user_code(
        Case(
            StoreSpec("s", "timestamped-key-value", logs_headers=True, key_serde=serdes.STRING,
                      value_serde=serdes.STRING),
            put_timestamped, CASES[1].model, read_timestamped,
        )
    ),
    "windows that close": lambda: windowed(TimeWindows(500, grace=100), "on_close"),
    "sessions": lambda: windowed(SessionWindows(31_000, grace=60_000)),
    "sessions that close": lambda: windowed(SessionWindows(500, grace=100), "on_close"),
    "suppress": lambda: windowed(TimeWindows(500, grace=100), until="window_closes"),
    "streams that are joined": joined,
    "a stream that waits for a table's rows": joined_late,
    "tables that are joined": tables,
}  # fmt: skip


def test_every_kind_of_store_is_among_the_programs() -> None:
    kinds = {spec.kind for program in PROGRAMS.values() for sub in program().resolve("app") for spec in sub.stores}
    assert kinds == KINDS.keys()


# -- the comparison


READS = {case.kind: case.read for case in CASES}


def seen(spec: StoreSpec, store: Any, namespace: Namespace) -> Any:
    """All that user code sees of a store; of one that it has no calls for, the rows."""
    if spec.duplicates:
        return list(store.all())
    return READS[spec.kind](store) if spec.kind in READS else dict(namespace.scan(None, None))


class Both:
    """A task that logs each write, and one that logs at commits: whatever happens, happens to both."""

    def __init__(self, topology: Topology, home: Path, *, exactly_once: bool) -> None:
        self.full, self.thin = (
            Life(topology, home / name, seen, at_commit=name == "thin", exactly_once=exactly_once)
            for name in ("full", "thin")
        )
        stores = self.full.sub.stores
        self.sessions = {spec.name for spec in stores if spec.kind == "session" and spec.of_dsl}
        self._held = {store: set[bytes | None]() for store in self.full.sub.changelogs}
        """The keys that have a row, by the thin changelogs."""
        self.histories = {spec.name for spec in stores if kind_of(spec).history or spec.logs_headers}
        self._failed = self._rolled_back = False

    def process(self, *record: Any) -> None:
        full, thin = self.full.process(*record), self.thin.process(*record)
        assert thin == full, record
        assert not any(self.thin.sent.values()) or self._failed, "it logs before a commit"

    def commit(self) -> None:
        full, thin = self.full.commit(), self.thin.commit()
        for store in full.keys() | thin.keys():
            if not self._rolled_back:
                self._compare(store, full.get(store, []), thin.get(store, []))
        self._failed = self._rolled_back = False
        self._held = {store: held(records) for store, records in self.thin.changelogs.items()}
        assert self.thin.seen() == self.full.seen()

    def _compare(self, store: str, full: list[Output], thin: list[Output]) -> None:
        """What the changelog has got. Behind a commit that failed a key, or a history, is there again."""
        if store in self.sessions:  # deletions of rows that came and went needn't be logged
            had = self._held[store]
            full, thin = (
                [each for each in last_of_each(records) if each.value is not None or each.key in had]
                for records in (full, thin)
            )
        if store not in self.histories:
            assert last_of_each(thin) == last_of_each(full)
            assert self._failed or len(thin) == len(last_of_each(thin)), "a key is logged twice"
        else:
            assert self._failed or thin == full

    def thaw(self) -> None:
        self.full.thaw()
        self.thin.thaw()
        self._failed = True

    def roll_back(self) -> None:
        """At least once, what was sent stays in the changelogs, which end alike from the next commit on."""
        self.full.roll_back()
        self.thin.roll_back()
        self._rolled_back = self._failed = True

    def restart(self, batch: int, *, wiped: bool) -> None:
        for life in (self.full, self.thin):
            life.restart(batch, wiped=wiped)
        assert self.thin.seen() == self.full.seen()

    def followed(self, batch: int) -> None:
        assert self.thin.followed(batch) == self.full.followed(batch)

    def close(self) -> None:
        self.full.close()
        self.thin.close()


def held(records: Sequence[Output | None]) -> set[bytes | None]:
    last = {each.key: each for each in records if each is not None}
    return {key for key, each in last.items() if each.value is not None}


def last_of_each(records: Sequence[Output]) -> list[Output]:
    return sorted({each.key: each for each in records}.values(), key=lambda each: each.key or b"")


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Topology:
    return PROGRAMS[request.param]()


@pytest.fixture(params=[True, False], ids=["exactly once", "at least once"])
def both(request: pytest.FixtureRequest, program: Topology, tmp_path: Path) -> Iterator[Both]:
    made = Both(program, tmp_path, exactly_once=request.param)
    yield made
    made.close()


def live(both: Both, seed: int) -> None:
    """At least once, a history keeps versions that were rolled back, so that only commits fail there."""
    chance, now = random.Random(seed), BEGIN
    topics, exactly_once = both.full.sub.source_topics, both.full.exactly_once
    for _ in range(25):
        for _ in range(chance.randrange(6)):
            now += chance.choice(LEAPS)
            at = max(7, now - chance.choice([0, 0, 0, 2, 450, 40_000, 150_000]))
            value = chance.choice(["1", "2", "3", None, "bad"])
            both.process(chance.choice(sorted(topics)), chance.choice("abcde"), value, at, [("n", b"%d" % now)])
        match chance.randrange(10):
            case 0 if exactly_once or not both.histories:
                both.roll_back()
            case 0 | 1 if not exactly_once:
                both.thaw()
            case 1 | 2:
                both.commit()
                both.restart(chance.randrange(1, 9), wiped=chance.random() < 0.5)
            case 3:
                both.commit()
                both.followed(chance.randrange(1, 9))
            case 4 | 5 | 6:
                both.commit()
    both.commit()
    both.restart(7, wiped=True)
    both.followed(3)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_task_that_logs_at_commits_is_as_one_that_logs_each_write(both: Both, seed: int) -> None:
    live(both, seed)


def _forgets_times(log: CommitLog, key: bytes, value: bytes | None, *_: Any) -> None:
    """Deletions are logged without their times."""
    if value is None:
        log._join()
        log._noted_scope[key] = NOTHING


def _loses_what_failed(log: CommitLog) -> None:
    """What a commit that failed had is not logged by the next one."""
    log.applied()


def _first_key_only(log: CommitLog) -> Iterator[tuple[bytes, bytes | None]]:
    """A commit logs one key."""
    yield from islice((log._layers.frozen() or {}).items(), 1)


def _first_record_only(log: RecordLog, *of: Any) -> Iterator[Emitted]:
    """A commit logs one write of a store whose rows have no times."""
    yield from islice(RECORDS(log, *of), 1)


def _records_without_deletions(log: RecordLog, *of: Any) -> Iterator[Emitted]:
    """What was deleted stays in the changelog, as if all rows came and went within a commit."""
    yield from [emitted for emitted in RECORDS(log, *of) if emitted[VALUE] is not None]


def _without_the_last(log: TimedLog, *of: Any) -> Iterator[Emitted]:
    """Of the rows with times, a commit doesn't log the last one."""
    made = [*TIMED(log, *of)]
    yield from made[: max(1, len(made) - 1)]


def _last_of_a_history(log: HistoryLog) -> None:
    """A history logs of each key the last write only."""
    log._frozen, log._emitted = [*{each[2]: each for each in log._emitted}.values()], []
    log._noted_frozen, log._noted = log._noted, {}


RECORDS, TIMED = RecordLog.records, TimedLog.records
FAULTS: dict[str, tuple[type, str, Callable[..., Any], str]] = {
    "times": (CommitLog, "note", _forgets_times, "timestamped-key-value"),
    "thaw": (CommitLog, "thaw", _loses_what_failed, "timestamped-key-value"),
    "keys": (CommitLog, "_collapsed", _first_key_only, "timestamped-window"),
    "rows with times": (TimedLog, "records", _without_the_last, "timestamped-window"),
    "records": (RecordLog, "records", _first_record_only, "session"),
    "deletions": (RecordLog, "records", _records_without_deletions, "session"),
    "deletions of sessions": (RecordLog, "records", _records_without_deletions, "sessions"),
    "history": (HistoryLog, "freeze", _last_of_a_history, "lru"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_finds(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, broken, program = FAULTS[fault]
    monkeypatch.setattr(owner, name, broken)
    both = Both(PROGRAMS[program](), tmp_path, exactly_once=False)
    with pytest.raises(AssertionError):
        live(both, seed=1)
    both.close()


# -- rows that come and go


@pytest.fixture(params=[True, False], ids=["exactly once", "at least once"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Life]:
    made = Life(PROGRAMS["sessions"](), tmp_path, seen, at_commit=True, exactly_once=request.param)
    yield made
    made.close()


def grown(life: Life, *times: int) -> None:
    """The one session of a key grows with each record."""
    for time in times:
        life.process("in", "a", "1", BEGIN + time, None)


def bounds(records: Sequence[Output]) -> list[tuple[int, int, bool]]:
    """(start, end, True if it is there) of the sessions in changelog records, from the beginning on."""
    found = []
    for each in records:
        assert each.key is not None
        end, start = END_AND_START.unpack(each.key[-END_AND_START.size :])
        found.append((start - BEGIN, end - BEGIN, each.value is not None))
    return found


def logged(life: Life) -> list[tuple[int, int, bool]]:
    (records,) = life.commit().values() or ([],)
    return bounds(records)


def test_a_session_that_comes_and_goes_within_a_commit_is_logged_only_at_least_once(sessions: Life) -> None:
    grown(sessions, 0, 10, 20)
    gone = [] if sessions.exactly_once else [(0, 0, False), (0, 10, False)]
    assert logged(sessions) == [(0, 20, True), *gone]


def test_a_session_of_an_earlier_commit_has_its_deletion_logged(sessions: Life) -> None:
    grown(sessions, 0, 10)
    sessions.commit()
    grown(sessions, 20)
    assert logged(sessions) == [(0, 20, True), (0, 10, False)]


def test_a_session_that_a_commit_has_is_deleted_by_the_next_one_also_if_it_goes_before_the_first_is_made(
    sessions: Life,
) -> None:
    grown(sessions, 0)
    commit = sessions._freeze()
    grown(sessions, 10)
    assert bounds(sessions.sent["counts"]) == [(0, 0, True)]
    sessions.task.applied(commit, {"counts": 1})
    sessions.sent.clear()
    assert logged(sessions) == [(0, 10, True), (0, 0, False)]


def test_after_a_commit_that_failed_at_least_once_each_deletion_is_logged(tmp_path: Path) -> None:
    life = Life(PROGRAMS["sessions"](), tmp_path, seen, at_commit=True, exactly_once=False)
    grown(life, 0)
    life.thaw()
    grown(life, 10)
    life.commit()
    assert bounds([each for each in life.changelogs["counts"] if each]) == [(0, 0, True), (0, 10, True), (0, 0, False)]
    life.close()


def test_after_a_roll_back_the_changelog_has_no_session_that_came_and_went(sessions: Life) -> None:
    grown(sessions, 0)
    sessions.roll_back()
    grown(sessions, 0, 10, 20)
    sessions.commit()
    assert [key[-16:] for key in held(sessions.changelogs["counts"]) if key] == [END_AND_START.pack(BEGIN + 20, BEGIN)]
