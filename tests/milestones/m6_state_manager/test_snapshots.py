"""An instance makes snapshots of its stores while it runs: when, of what, and what becomes of it when things fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milestones.common.config import StreamsConfig
from milestones.common.errors import StateError
from milestones.common.mailbox import Mailbox
from milestones.common.metrics import Metrics
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.disk import TRASH
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.snapshots.snapshot import SnapshotManifest
from milestones.common.state.storage import CommitMade
from milestones.common.testing import StepClock
from milestones.instance.admin_thread import AskBounds, Bounds
from milestones.m6_state_manager.helper import HelperProcess, launch
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending.mender import Mending
from milestones.m6_state_manager.snapshots.checkpoint import Checkpoint, TornError
from milestones.m6_state_manager.snapshots.jobs import CheckpointJob, SnapshotResult
from milestones.m6_state_manager.snapshots.maker import NoneMade, SnapshotMaker, snapshots
from milestones.m6_state_manager.snapshots.process import Maker
from milestones.m6_state_manager.snapshots.schedule import PRUNED_MS
from milestones.testing import until
from tests.milestones.m6_state_manager.states import COUNTS, NEIGHBOUR, OTHER, TASK, entries

INTERVAL_MS = 60_000
TOPIC = "words-counts-changelog"


class InProcess:
    """A helper that does its job when it is looked at. `dies`: it ends without a word; `warns`: of three things."""

    def __init__(self, job: CheckpointJob, clock: StepClock, dies: bool, warns: bool) -> None:
        self._job, self._clock, self._dies, self._warns = job, clock, dies, warns
        self._told: list[SnapshotResult] = []
        self.killed = False

    def ended(self) -> bool:
        if not self._dies:
            repository = SnapshotRepository(self._job.url, self._job.application_id)
            Maker(self._job, repository, self._clock).run(self._told.append)
        return True

    def results(self) -> Iterator[SnapshotResult]:
        return iter(self._told)

    def warnings(self) -> list[str]:
        return [f"nothing of {partition} is removed" for partition in (1, 2, 1)] * self._warns

    def trouble(self) -> str:
        return "the helper process ended with -9: it said nothing"

    def kill(self) -> None:
        self.killed = True


class Instance:
    """A state manager whose snapshots a test drives."""

    def __init__(self, directory: Path, manager: RangeStateManager, **settings: Any) -> None:
        self.manager, self.clock = manager, StepClock(1_000_000)
        self.url = f"file://{directory}/remote"
        self.config = StreamsConfig(
            application_id="words", bootstrap_servers="localhost:1", snapshot_url=self.url,
            snapshot_interval_ms=INTERVAL_MS, **settings,
        )  # fmt: skip
        self.ends, self.cleanup, self.failure = 0, "compact", None
        self.metrics = Metrics(self.clock)
        self.dies, self.warns, self.jobs = False, False, list[CheckpointJob]()
        self.registry = SimpleNamespace(generation=5)
        self.questions: Mailbox[AskBounds] = Mailbox(10, "questions")
        self.context: Any = SimpleNamespace(
            config=self.config, clock=self.clock, metrics=self.metrics, housekeeper=self.questions, admin=self,
            thread_registry=self.registry, identity=SimpleNamespace(helper=lambda what: f"app-{what}"),
            application=SimpleNamespace(subtopology=lambda _: SimpleNamespace(changelogs={"counts": TOPIC})),
        )  # fmt: skip
        self.maker = SnapshotMaker(manager, self.context, self._launch)
        self.storages = {task: manager.open(task, [COUNTS]) for task in (TASK, NEIGHBOUR)}

    def _launch(self, job: CheckpointJob) -> Any:
        self.jobs.append(job)
        return InProcess(job, self.clock, self.dies, self.warns)

    def ask(self, begin: Callable[[Any], Any]) -> Future[Any]:
        """As the housekeeper's admin client."""
        settings = {"cleanup.policy": self.cleanup, "delete.retention.ms": "86400000"}
        made = {name: SimpleNamespace(name=name, value=value) for name, value in settings.items()}
        answers: Future[Any] = Future()
        answers.set_result({TOPIC: _done(made)})
        return answers

    def commit(self, task: TaskId = TASK, count: int = 100, value: bytes = b"v", *, leads: bool = True) -> None:
        offset = (self.storages[task].offsets()["counts"] or 0) + count
        if leads:
            self.storages[task].note(CommitMade(offset, {}, {}))
        self.storages[task].apply({"counts": entries(count, value)}, {"counts": offset})

    def step(self, steps: int = 8) -> None:
        for _ in range(steps):
            self.maker.run_once()
            for question in self.questions.drain() if len(self.questions) else ():
                bounds = dict.fromkeys(question.partitions, (0, self.ends or 10_000))
                question.reply_to.put(Bounds(question.task, bounds, self.failure, {TOPIC: "topic-1"}), timeout_ms=0)

    def after_interval(self) -> None:
        self.clock.advance(INTERVAL_MS)
        self.step()

    def newest(self, task: TaskId = TASK) -> SnapshotManifest | None:
        repository = SnapshotRepository(self.url, "words")
        return repository.newest(TopicPartition(TOPIC, task.partition), "counts")

    def usable_from_now(self) -> int:
        """Until when a snapshot is usable whose content is of now, but for what commits may have waiting."""
        return self.clock.wall_ms() - self.config.state_write_interval_ms + 86_400_000 * 9 // 10

    def metric(self, name: str) -> float:
        (entry,) = self.metrics.snapshot()["stream-snapshot-metrics"]
        return float(entry["metrics"][name])

    def left(self) -> list[str]:
        """Checkpoints on the disk."""
        return [path.name for path in self.manager.directory.path.iterdir() if path.name.startswith(TRASH)]


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.fixture
def instance(tmp_path: Path, manager: RangeStateManager) -> Iterator[Instance]:
    made = Instance(tmp_path, manager)
    yield made
    made.maker.close()
    assert made.left() == []
    for storage in made.storages.values():
        storage.close()


def test_a_snapshot_of_each_task_is_there_after_the_interval_and_only_then(instance: Instance) -> None:
    instance.commit(TASK)
    instance.commit(NEIGHBOUR, 50)
    instance.clock.advance(INTERVAL_MS - 1)
    instance.step()
    assert (instance.newest(), instance.jobs) == (None, [])
    instance.clock.advance(1)
    instance.step()
    offsets = {}
    for task in (TASK, NEIGHBOUR):
        manifest = instance.newest(task)
        assert manifest is not None
        offsets[task] = manifest.offset
        assert (manifest.generation, manifest.changelog_id, manifest.base) == (5, "topic-1", None)
        assert manifest.usable_until_ms == instance.usable_from_now()
    assert offsets == {TASK: 100, NEIGHBOUR: 50}
    assert (instance.metric("made-total"), instance.metric("failed-total")) == (2, 0)


def test_what_has_changed_since_is_a_delta_and_what_has_not_is_left_alone(instance: Instance) -> None:
    instance.commit(TASK, 2_000)
    instance.commit(NEIGHBOUR)
    instance.after_interval()
    instance.commit(TASK, 5, b"changed")
    instance.after_interval()
    manifest = instance.newest()
    assert manifest is not None
    assert (manifest.deltas, [job.task for job in instance.jobs[1].stores]) == (1, [TASK])
    assert instance.metric("deltas-total") == 1
    assert instance.metric("changed-keys-bytes") == 0
    instance.commit(TASK, 5, b"again")
    instance.step(1)
    assert instance.metric("changed-keys-bytes") > 500


def test_what_the_process_before_has_made_is_looked_for_once(instance: Instance) -> None:
    instance.commit()
    instance.after_interval()
    instance.maker._last.clear()
    instance.after_interval()
    instance.after_interval()
    assert [len(job.stores) for job in instance.jobs] == [1, 1]


def test_where_nothing_changes_any_more_it_is_pruned_now_and_then(instance: Instance) -> None:
    instance.commit()
    instance.after_interval()
    instance.clock.advance(PRUNED_MS - INTERVAL_MS)
    instance.step()
    assert len(instance.jobs) == 1
    instance.after_interval()
    instance.after_interval()
    assert len(instance.jobs) == 2
    assert (instance.metric("made-total"), instance.metric("failed-total")) == (1, 0)


def test_a_changelog_that_grows_fast_is_not_left_until_the_interval_is_over(instance: Instance) -> None:
    instance.commit(TASK, 1_000)
    instance.after_interval()
    instance.commit(TASK, 99)
    instance.clock.advance(INTERVAL_MS // 2)
    instance.step()
    assert len(instance.jobs) == 1
    instance.commit(TASK, 1)
    instance.step()
    assert len(instance.jobs) == 2


def test_a_store_of_which_a_commit_is_half_written_waits_and_the_others_do_not(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in (TASK, NEIGHBOUR):
        instance.commit(task)
    storage: Any = instance.storages[TASK]
    with monkeypatch.context() as patch:
        patch.setattr(storage._engine, "write", _fails)
        with pytest.raises(StateError):
            storage.apply({"counts": entries(9)}, {"counts": 109})
    instance.after_interval()
    assert instance.newest(TASK) is None
    assert instance.newest(NEIGHBOUR) is not None
    instance.commit(TASK, 9)
    instance.after_interval()
    manifest = instance.newest(TASK)
    assert manifest is not None
    assert manifest.offset == 109


def _fails(*_: Any, **__: Any) -> None:
    raise StateError("the disk is gone")


def test_a_checkpoint_that_is_torn_is_made_anew(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    instance.commit()
    finish, torn = Checkpoint.finish, iter([True, True])

    def finished(checkpoint: Checkpoint) -> None:
        if next(torn, False):
            raise TornError("a log was deleted")
        finish(checkpoint)

    monkeypatch.setattr(Checkpoint, "finish", finished)
    instance.after_interval()
    assert instance.newest() is not None


def test_files_that_are_linked_into_the_database_meanwhile_are_in_the_checkpoint_or_it_is_made_anew(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.commit()
    (database,) = instance.manager.databases()
    begin, begun = Checkpoint.begin, []

    def begins(checkpoint: Checkpoint) -> None:
        begin(checkpoint)
        begun.append(checkpoint)
        database.linked += len(begun) == 1

    monkeypatch.setattr(Checkpoint, "begin", begins)
    instance.after_interval()
    assert len(begun) == 2
    assert instance.newest() is not None


def test_of_a_damaged_database_none_is_made_before_it_is_mended(
    instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    instance.commit(TASK, 2_000)
    instance.after_interval()
    (database,) = instance.manager.databases()
    instance.commit(TASK, 5, b"changed")
    database.damage("a block is damaged")
    instance.after_interval()
    assert "is damaged, and being mended" in caplog.text
    Mending(database, instance.manager.engines).run()
    instance.after_interval()
    manifest = instance.newest()
    assert manifest is not None
    assert (manifest.offset, manifest.deltas) == (2_005, 1)


def test_a_helper_that_is_killed_is_a_warning_and_nothing_is_lost(
    instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    instance.commit(TASK, 2_000)
    instance.after_interval()
    instance.dies = True
    instance.commit(TASK, 5, b"changed")
    instance.after_interval()
    assert "1 of 1 snapshots of sub-topology 0 weren't made, and are tried again later" in caplog.text
    assert (instance.metric("failed-total"), instance.left()) == (1, [])
    instance.dies = False
    instance.step()
    assert len(instance.jobs) == 2  # not before the next interval
    instance.after_interval()
    manifest = instance.newest()
    assert manifest is not None
    assert (manifest.deltas, manifest.offset) == (1, 2_005)


def test_what_a_helper_warns_of_is_in_the_instances_log_once(
    instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    instance.warns = True
    instance.commit()
    instance.after_interval()
    assert instance.newest() is not None
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning == "in making snapshots of sub-topology 0: nothing of 1 is removed (and 1 more)"


@pytest.mark.parametrize("trouble", ["a question that fails", "a checkpoint that can't be made", "no helper"])
def test_what_cannot_be_done_is_a_warning_and_tried_again_after_the_interval(
    instance: Instance, trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    instance.commit()
    with monkeypatch.context() as patch:
        if trouble == "a question that fails":
            patch.setattr(instance, "failure", StateError("no leader"))
        elif trouble == "no helper":
            patch.setattr(instance.maker, "_launch", _no_process)
        else:
            patch.setattr(Checkpoint, "begin", _fails)
        instance.after_interval()
    assert "until they are due again" in caplog.text
    assert (instance.newest(), instance.metric("failed-total"), instance.left()) == (None, 1, [])
    instance.after_interval()
    assert instance.newest() is not None


def _no_process(_: Any) -> Any:
    raise OSError("too many processes")


def test_a_bug_in_it_costs_snapshots_and_not_the_state_thread(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    instance.commit()
    with monkeypatch.context() as patch:
        patch.setattr(instance.maker, "_wanted", lambda *_: 1 // 0)
        instance.after_interval()
    assert "a step of the snapshots has failed" in caplog.text
    instance.after_interval()
    assert instance.newest() is not None


def test_without_an_answer_of_kafkas_the_next_interval_asks_again(
    instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    instance.commit()
    instance.clock.advance(INTERVAL_MS)
    instance.maker.run_once()
    instance.questions.drain()
    instance.clock.advance(30_000)
    instance.maker.run_once()
    assert "Kafka hasn't said where changelogs end" in caplog.text
    instance.after_interval()
    assert instance.newest() is not None


def test_a_standby_that_lags_makes_none(instance: Instance) -> None:
    instance.commit(leads=False)
    instance.ends = 100 + instance.config.acceptable_recovery_lag + 1
    instance.after_interval()
    assert instance.newest() is None
    instance.ends -= 1
    instance.after_interval()
    manifest = instance.newest()
    assert manifest is not None
    assert manifest.commit_number is None


@pytest.mark.parametrize("closed", [True, False])
def test_a_task_that_has_led_here_and_comes_back_lags_like_any_other_until_its_next_commit(
    instance: Instance, closed: bool
) -> None:
    """Others have had it meanwhile: the changelog may have forgotten deletions that its content lacks."""
    instance.commit()
    if closed:
        instance.storages[TASK].close()
        instance.storages[TASK] = instance.manager.open(TASK, [COUNTS])
    else:  # given to a standby, which notes what it follows
        instance.storages[TASK].keep_changelog_ids({"counts": "topic-1"})
    instance.ends = 100 + instance.config.acceptable_recovery_lag + 1
    instance.after_interval()
    assert instance.newest() is None
    instance.commit()
    instance.after_interval()
    manifest = instance.newest()
    assert manifest is not None
    assert manifest.commit_number == manifest.offset == 200


def test_of_a_store_whose_changelog_was_made_anew_under_it_none_is_made(instance: Instance) -> None:
    """It has what the new topic lacks: its snapshot would give another content than that."""
    for task, id in ((TASK, "topic-0"), (NEIGHBOUR, "topic-1")):
        instance.storages[task].keep_changelog_ids({"counts": id})
        instance.commit(task)
    instance.after_interval()
    assert (instance.newest(TASK), instance.newest(NEIGHBOUR) is None) == (None, False)


def test_with_standbys_an_active_task_makes_one_when_none_of_them_has_for_two_intervals(
    tmp_path: Path, manager: RangeStateManager
) -> None:
    instance = Instance(tmp_path, manager, num_standby_replicas=1)
    instance.commit(leads=False)
    instance.after_interval()
    first = instance.newest()
    assert first is not None
    for expected in (True, False):
        instance.commit()
        instance.after_interval()
        assert (instance.newest() == first) is expected
    for storage in instance.storages.values():
        storage.close()


def test_the_most_important_sub_topology_comes_first(tmp_path: Path, manager: RangeStateManager) -> None:
    instance = Instance(tmp_path, manager, task_priorities={3: 4})
    instance.storages[OTHER] = manager.open(OTHER, [COUNTS])
    for task in (TASK, OTHER):
        instance.commit(task)
    instance.after_interval()
    assert [job.subtopology for job in instance.jobs] == [3, 0]
    for storage in instance.storages.values():
        storage.close()


def test_a_snapshot_whose_turn_comes_late_is_usable_from_when_kafka_was_asked(instance: Instance) -> None:
    """A follower may have stood still since: the changelog forgets deletions meanwhile that it lacks."""
    instance.storages[OTHER] = instance.manager.open(OTHER, [COUNTS])
    for task in (TASK, OTHER):
        instance.commit(task, leads=False)
    instance.clock.advance(INTERVAL_MS)
    usable_ms = instance.usable_from_now()
    for _ in range(12):
        instance.step(1)
        if instance.jobs:
            instance.clock.advance(3_600_000)
    manifests = [instance.newest(task) for task in (TASK, OTHER)]
    assert [manifest and manifest.usable_until_ms for manifest in manifests] == [usable_ms, usable_ms]


def test_before_the_first_assignment_none_is_made(instance: Instance) -> None:
    instance.commit()
    instance.registry.generation = -1
    instance.after_interval()
    assert instance.jobs == []


def test_a_helper_process_makes_it_and_credentials_are_on_no_disk(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    newer = tmp_path / "remote" / "words" / TOPIC / "1" / "manifests" / "0000000001-newer.json"
    newer.parent.mkdir(parents=True)
    newer.write_text('{"format": 9}')
    started: list[Any] = []
    monkeypatch.setattr(instance.maker, "_launch", lambda job: started.append((job, launch(job))) or started[-1][1])
    instance.commit(TASK, 3_000)
    instance.clock.advance(INTERVAL_MS)
    instance.step(4)
    ((job, helper),) = started
    assert job.url not in (job.directory / "job").read_bytes().decode("latin-1")
    until(helper.ended, "the helper process has ended", 60)
    instance.step(1)
    manifest = instance.newest()
    assert manifest is not None
    assert (manifest.offset, manifest.entries) == (3_000, 3_000)
    assert newer.exists()
    assert "in making snapshots of sub-topology 0: a snapshot is passed over" in caplog.text, "what the process says"


def test_the_end_of_the_instance_ends_the_helper_too(
    tmp_path: Path, manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance(tmp_path, manager)
    started: list[Any] = []
    monkeypatch.setattr(instance.maker, "_launch", lambda job: started.append(launch(job)) or started[-1])
    instance.commit()
    instance.clock.advance(INTERVAL_MS)
    instance.step(4)
    instance.maker.close()
    (helper,) = started
    assert helper.ended()
    assert instance.left() == []
    for storage in instance.storages.values():
        storage.close()


def test_a_helper_ends_when_nobody_is_there_any_more_who_began_it(instance: Instance, tmp_path: Path) -> None:
    helper = HelperProcess(CheckpointJob(tmp_path, 0, "words", 1, 0, (), instance.url))
    helper.let_go()
    until(helper.ended, "it has ended", 60)


def test_the_settings_say_whether_an_instance_makes_snapshots(instance: Instance, manager: RangeStateManager) -> None:
    for url, makes in ((None, False), ("https://host/path", False), (instance.url, True)):
        instance.context.config = instance.config.replace(snapshot_url=url)
        made = snapshots(manager, instance.context)
        assert isinstance(made, NoneMade) is not makes
        made.close()
