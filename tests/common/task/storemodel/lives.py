"""A task with one store, from its first start on: what Kafka and the disk have of it, and what they must have.

*Guarantees*: the changelog is what the task has emitted, offsets that aborted records and markers take included.
*Assumes*: one thread. What happens between two records is called from outside; `within` is called in the middle of a
record, as from another thread that sends and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Message

from milestones.common import serdes
from milestones.common.errors import ProcessingError, StateError
from milestones.common.records import Output, Record, TaskId, TopicPartition, output_of
from milestones.common.state.read_cache import ReadCache
from milestones.common.state.storage import StateManager, TaskStorage
from milestones.common.state.write_behind import WaitingCommits, WriteBehindStorage
from milestones.common.task.standby import StandbyTask
from milestones.common.task.task import PendingCommit, Task, TaskSettings
from milestones.common.testing import StepClock
from milestones.common.topology import Processor, Topology
from milestones.common.topology.handlers import LogAndContinue, LogAndFail
from tests.common.task.storemodel.calls import Calls, Logged, Row, Rows, Scan
from tests.common.task.storemodel.setting import IN, STORE, Changelog, How, Pending, UserError, WrongStoreError, need

AT_ONCE = WaitingCommits(0, 0)
"""None waits."""
FIRST = "put_if_absent", b"made by init", 3, 7


def key_of(record: Logged) -> bytes:
    return record[0]


class Life:
    """The n-th task of an application, over all its starts.

    `rows`: at the last boundary. `committed`: what a restart finds, `_applied` entries of it are in the engine.
    `_unconfirmed`: what an open transaction has sent. `_logged`: what is to be sent. `seen`: what a cached store has
    told downstream, or has kept without telling it; `_unseen`: the keys that it is to tell of, in that order.
    """

    def __init__(
        self, number: int, how: How, state: StateManager, clock: StepClock, waiting: WaitingCommits = AT_ONCE
    ) -> None:
        self.how, self.id = how, TaskId(0, number)
        self._state, self._clock, self._waiting = state, clock, waiting
        self._opened: TaskStorage | None = None
        (self._sub,) = self._topology().resolve("app")
        self._in = TopicPartition(IN, number)
        self.changelog = Changelog()
        self._unconfirmed: list[Output] = []
        self._applied = 0
        self._logged: list[Logged] = []
        self.rows, self.committed, self.seen = Rows(), Rows(), Rows()
        self._unseen: dict[bytes, None] = {}
        self.pending: Pending | None = None
        self._fed = self._position = 0
        self._metadata: dict[TopicPartition, str] = {}
        self._todo: list[Any] = []
        self._failed = self._void = False
        self._echo: list[bytes | None] = []
        self.scans: list[Scan] = []
        self.wrong: list[str] = []
        self.start()

    # -- the application

    def _topology(self) -> Topology:
        life = self

        class Calling(Processor):
            def init(self, context: Any) -> None:
                super().init(context)
                self._store = context.get_state_store(STORE)
                if life.how.listening:
                    told = self._store.set_flush_listener(life.told, life.how.old_values)
                    life._expect_equal("set_flush_listener", told, life.how.cached)
                context.schedule(1, "wall-clock-time", self._tick)
                life.begin(self._store, context.current_system_time_ms())

            def process(self, record: Record) -> None:
                life.work(self._store, record.timestamp)

            def _tick(self, now: int) -> None:
                life.work(self._store, now)

        topology = Topology()
        topology.add_source("source", IN, key=serdes.STRING, value=serdes.STRING)
        topology.add_processor("worker", Calling, "source")
        topology.add_state_store(self.how.spec, "worker")
        return topology

    def begin(self, store: Any, now: int) -> None:
        """User code's init, once per program."""
        self._todo = [FIRST]
        self.work(store, now)

    def work(self, store: Any, now: int) -> None:
        """User code: the calls of `_todo`."""
        todo, epoch = self._todo, self.task.epoch
        calls = Calls(store, self.how.kind, dict(self.rows), now, self.scans, self.wrong, self._in_memory())
        for call in todo:
            if call[0] == "fail" and not self._failed:
                self._failed = True
                raise UserError
            if call[0] == "within":
                try:
                    self.within(call[1])
                except WrongStoreError as error:  # the task may take it for user code's, and skip the record
                    self.wrong.append(str(error))
                    raise
            elif call[0] == "echo":
                self._echo = [*call[1]]
            elif call[0] != "fail":
                calls.perform(call)
        if self.task.epoch == epoch:
            self.rows = calls.rows
            self._logged += calls.logged
            for key, *_ in calls.logged:
                self._wait(key)

    def told(self, key: bytes, new: Any, old: Any, timestamp: int) -> None:
        """The store's flush listener; it writes into the store itself when it was asked to (`echo`)."""
        row, read = self.rows.get(key), self.how.kind.read
        value = self._value(row)
        self._expect_equal(f"the listener's new value of {key!r}", new, value)
        before = self._value(self.seen.get(key)) if self.how.old_values else None
        self._expect_equal(f"the listener's old value of {key!r}", old, before)
        if row is not None:
            self._expect_equal(f"the listener's time of {key!r}", timestamp, row.timestamp)
        self._see(key)
        while self._unseen and next(iter(self._unseen)) != key:  # absent before and after: nobody is told
            del self._unseen[next(iter(self._unseen))]
        self._unseen.pop(key, None)
        if self._echo:
            store, other = self.task.store(STORE), self._echo.pop()
            other = key if other is None else other
            self._expect_equal(f"get({other!r}) of a listener", store.get(other), read(self.rows.get(other)))
            store.put(other, self.how.kind.given(4, 8))
            # Of a plain store this is a guess that nothing depends on: its own timestamps aren't kept.
            self.rows[other] = self.how.kind.row(4, 8, timestamp)
            if other in self._unseen:
                self._wait(other)
            else:
                self._see(other)  # the listener isn't told of its own

    def _wait(self, key: bytes) -> None:
        """The last write of a key decides when the listener is told."""
        self._unseen.pop(key, None)
        self._unseen[key] = None

    def _value(self, row: Row | None) -> Any:
        return None if row is None else self.how.kind.values.read(row.number)

    def _see(self, key: bytes) -> None:
        if key in self.rows:
            self.seen[key] = self.rows[key]
        else:
            self.seen.pop(key, None)

    def _expect_equal(self, what: str, have: Any, want: Any) -> None:
        if have != want:
            self.wrong.append(f"{what} is {have!r}, should be {want!r}")

    def _in_memory(self) -> int | None:
        """Entries of the engine of a store in memory, which are exactly known."""
        return None if self.how.spec.persistent else self._applied

    # -- records

    def record(self, todo: list[Any], timestamp: int) -> None:
        """A record whose processing is `todo`."""
        message = Message(
            topic=IN, partition=self.id.partition, offset=self._fed, key=b"", value=b"", timestamp=(1, timestamp)
        )
        self.task.input.add(self._in, [message])
        self._fed += 1
        self._try(todo, lambda: self.task.process(1, self._clock.monotonic_ms()))

    def punctuate(self, todo: list[Any]) -> None:
        self._clock.advance(5)
        self._try(todo, lambda: self.task.punctuate(self._clock.wall_ms()))

    def call(self, todo: list[Any]) -> None:
        """As the test driver calls stores."""
        todo = [call for call in todo if call[0] != "fail"]
        store = self.task.store(STORE)
        self._try(todo, lambda: self.task.call(lambda: self.work(store, self._clock.wall_ms())))

    def _try(self, todo: list[Any], process: Callable[[], object]) -> None:
        self._todo, self._failed = todo, False
        epoch = self.task.epoch
        try:
            process()
        except ProcessingError:
            need(self._failed and not self.how.skipping, "it was asked to skip")
            process()
        if self.task.epoch != epoch:
            self.roll_back()
        self.judge()
        store, read = self.task.store(STORE), self.how.kind.read
        for key in {call[1] for call in todo if len(call) > 1 and isinstance(call[1], bytes)}:
            self._expect_equal(f"get({key!r})", store.get(key), read(self.rows.get(key)))
        self.judge()

    def within(self, what: str) -> None:
        """What a thread that commits may do while another one is in the middle of a record."""
        if self._void:
            return  # a roll-back follows
        match what:
            case "freeze" if self.pending is None and not self.task.applying:
                commit = self.task.freeze_if_flushed()
                if commit is not None:
                    self._freeze(commit)
            case "confirm" if self.pending is not None:
                self.confirm()
            case "thaw" if self.pending is not None and not self.how.exactly_once:
                self.thaw()
            case "send":
                self.send()
            case "void":
                self.task.invalidate()
                self._void = True
            case "squeeze":  # as when another task of the instance gets its share
                ReadCache(self.how.read_caches).leave()

    # -- commits

    def send(self) -> None:
        """Outputs of finished records go to Kafka."""
        outputs = [output_of(output) for output in self.task.take_outputs()]
        if self.how.at_commit:
            need(not outputs, f"the changelog gets {outputs} before the commit")
        else:
            self._sent(outputs)

    def _sent(self, outputs: list[Output]) -> None:
        if self.how.exactly_once:
            self._unconfirmed += outputs
        else:
            self.changelog.add(outputs)
        want, self._logged = self._logged if self.how.spec.logged else [], []
        if self.how.at_commit:
            want = list({each[0]: each for each in want}.values())
        if not self.how.cached:
            have = [(each.key, each.value, each.timestamp, tuple(each.headers or ())) for each in outputs]
            again = have[: len(have) - len(want)]
            made = have[len(again) :]
            if self.how.at_commit:  # in no order of keys
                made, want = sorted(made, key=key_of), sorted(want, key=key_of)
            need(made == want, f"the changelog gets {have}, should get {want}")
            need(all(map(self._mends, again)), f"the changelog gets {again} again, the store has {self.committed}")

    def _mends(self, record: Logged) -> bool:
        """At least once: after a roll-back the changelog gets what the store has of the keys that it may have
        otherwise."""
        row = self.committed.get(record[0])
        value = None if row is None else self.how.kind.values.encoded(row.number)
        return not self.how.exactly_once and record[1] == value

    def freeze(self) -> None:
        self.apply()
        self.flush()
        commit = self.task.freeze_if_flushed()
        need(commit is not None, "something waits in caches behind a flush")
        self._freeze(commit)
        self.judge()

    def flush(self) -> None:
        self.task.flush()
        self.judge()

    def _freeze(self, commit: PendingCommit) -> None:
        logged = [*self._logged]
        self._sent([output_of(output) for output in commit.all_outputs()])
        need(not self.how.at_commit or commit.all_outputs() == commit.all_outputs(), "its log is another one each time")
        need(dict(commit.offsets) == {self._in: self.task.input.position(self._in)}, commit.offsets)
        offset = len(self.changelog) if len(self.changelog) > self.changelog.committed else None
        self.pending = Pending(commit, dict(self.rows), len(self._unconfirmed), offset, logged)

    def confirm(self) -> None:
        """Kafka has the commit; `apply` comes later."""
        pending, self.pending = self.pending, None
        offset = pending.offset
        if self.how.exactly_once:
            done, self._unconfirmed = self._unconfirmed[: pending.sent], self._unconfirmed[pending.sent :]
            self.changelog.add(done)
            offset = len(self.changelog) if done else None
            self.changelog.skip(1)
        self.changelog.committed = self.changelog.committed if offset is None else offset
        self.task.confirmed(pending.commit, {STORE: offset} if offset is not None and self.how.spec.logged else {})
        self.committed, self._position = pending.rows, pending.commit.offsets[self._in]
        self._metadata = dict(pending.commit.metadata)

    def commit(self) -> None:
        """A whole one."""
        if self.pending is None:
            self.freeze()
        self.confirm()
        self.apply()

    def apply(self) -> None:
        self.task.apply()
        self.judge_engine()

    def thaw(self) -> None:
        """Kafka didn't take the commit, the next one takes it along."""
        pending, self.pending = self.pending, None
        self.task.thaw(pending.commit)
        if self.how.at_commit:  # it is logged again, with what came later
            self._logged = pending.logged + self._logged

    def roll_back(self) -> None:
        """In place: the stores stay open, the program is another one."""
        self.task.roll_back()
        self._forget()
        self.task.start({self._in: self._position}, self._metadata)
        self._end_scans()
        need(self.task.input.position(self._in) == self._position, "the input isn't where it was committed")
        self.judge()
        self.judge_engine()

    def _forget(self) -> None:
        """What wasn't committed has never been; what was sent of it takes offsets all the same."""
        self.changelog.skip(len(self._unconfirmed))
        self._unconfirmed, self._logged, self.pending = [], [], None
        self._echo, self._void = [], False
        self._unseen.clear()
        self.rows, self.seen = dict(self.committed), dict(self.committed)
        self._fed = self._position

    # -- ends and beginnings

    def start(self, opened: TaskStorage | None = None, batch: int = 100) -> None:
        """Open the stores, or take those of a standby, restore them, begin."""

        def open_stores() -> TaskStorage:
            self._opened = opened or self._open()
            return self._opened

        handler = LogAndContinue() if self.how.skipping else LogAndFail()
        settings = TaskSettings(
            application_id="app", clock=self._clock, partitions_of=lambda _: 2, record_caches=self.how.caches,
            read_caches=self.how.read_caches, processing_handler=handler,
            transactional_id="app-1" if self.how.exactly_once else "", logs_at_commit=self.how.at_commit,
        )  # fmt: skip
        self.task = Task(self.id, self._sub, [self._in], settings, open_stores)
        self.task.open()
        self._restore(self.task, batch)
        self.task.start({self._in: self._position}, self._metadata)
        self.judge()
        self.judge_engine()

    def _open(self) -> TaskStorage:
        return self._waiting.of(self._state.open(self.id, self._sub.stores), self._sub.stores, self._clock)

    def _restore(self, task: Task | StandbyTask, batch: int, batches: int = 1_000_000) -> None:
        """Changelog records, `batch` at a time, at most `batches` times; to the end by default."""
        if not self.how.spec.logged:
            return
        while batches:
            batches -= 1
            at = task.changelog_offsets()[STORE] or 0
            need(at <= len(self.changelog), f"the store is at {at} of {len(self.changelog)}")
            following = min(at + batch, len(self.changelog))
            task.restore(STORE, self.changelog.messages(at, batch), following)
            if following == len(self.changelog):
                return

    def restart(
        self, *, clean: bool, wiped: bool, batch: int, interrupted: bool = False, killed: bool = False
    ) -> None:
        """Close and open again. `wiped`: on an empty disk. `interrupted`: the first restoration isn't finished.
        `killed`: what waits for the disk is lost."""
        if clean:
            self.commit()
        if killed and isinstance(self._opened, WriteBehindStorage):
            self._opened._let_go()
        self.task.close()
        self._shut()
        if wiped:
            self._state.remove(self.id)
        self._forget()
        self.committed = self._found(wiped)
        self.rows, self.seen = dict(self.committed), dict(self.committed)
        if interrupted:
            standby = StandbyTask(self.id, self._sub, self._open)
            standby.open()
            self._restore(standby, batch, 1)
            standby.close()
        self.start(batch=batch)
        self.changelog.committed = len(self.changelog)

    def _found(self, wiped: bool) -> Rows:
        """What a start finds of a store."""
        if not self.how.spec.logged:
            return dict(self.committed) if self.how.spec.persistent and not wiped else {}
        return self.changelog.rows(self.how.kind)

    def recycle(self, writes: Iterable[tuple[bytes, int | None]], batch: int, batches: int, closed: bool) -> None:
        """The task is another instance's for a while, which writes; here it is a standby, that is closed or promoted.
        It has come so far as `batches` of `batch` records say."""
        if not self.how.spec.logged:
            return
        self.commit()
        state = self.task.recycle()
        self._shut()
        standby = StandbyTask(self.id, self._sub, lambda: state)
        standby.open()
        for key, number in writes:
            value = None if number is None else self.how.kind.values.encoded(number)
            self.changelog.write(key, value)
        self._restore(standby, batch, batches)
        self.committed = self._found(False)
        self._forget()
        if closed:
            standby.close()
            self.start(batch=batch)
        else:
            self.start(standby.recycle(), batch)
        self.changelog.committed = len(self.changelog)

    def _shut(self) -> None:
        """Nobody can use the store now."""
        self._end_scans()
        try:
            self.task.store(STORE).get(b"a")
        except Exception as error:
            need(isinstance(error, StateError) or "has no store" in str(error), error)
        else:
            raise WrongStoreError("a closed store can be read")

    def _end_scans(self) -> None:
        """The program is over: a scan that it began doesn't give wrong entries."""
        for scan in self.scans:
            try:
                scan.read(100, self.wrong)
            except Exception as error:
                need(isinstance(error, StateError), repr(error))
        self.scans.clear()

    def end(self) -> None:
        """The last checks."""
        self.restart(clean=True, wiped=True, batch=7)
        self.task.close()

    # -- judgement

    def judge(self) -> None:
        """Reads say what the reference says."""
        need(not self.wrong, "; ".join(self.wrong))
        read = self.how.kind.read
        want = [(key, read(row)) for key, row in sorted(self.rows.items())]
        have = list(self.task.store(STORE).all())
        need(have == want, f"all() gives {have}, should give {want}")

    def judge_engine(self) -> None:
        """What is committed is in the engine, nothing else is, and a logged store is its changelog so far."""
        if self.task.applying:
            return
        self._applied = len(self.committed)
        engine = dict(self._opened.namespace(STORE).scan(None, None))
        kind = self.how.kind
        want = {key: kind.stored(row) for key, row in self.committed.items()}
        need(engine == want, f"the engine has {engine}, should have {want}")
        if self.how.spec.logged:
            folded = self.changelog.folded(self.task.changelog_offsets()[STORE] or 0)
            plain = {key: kind.plain(value) for key, value in engine.items()}
            need(folded == plain, f"the changelog is {folded}, the store {plain}")
