"""A store without changelog that isn't of the last commit in Kafka is found when its task begins, and named."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import StateCorruptError, StateError
from milestones.common.records import StoreId, TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.spec import StoreSpec
from milestones.common.state.storage import CommitMade
from milestones.m6_state_manager.conversion.all_tasks import folder_state_manager
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.range_row import RangeRow
from tests.common.task.harness import Harness, processing
from tests.milestones.m6_state_manager import states
from tests.milestones.m6_state_manager.damage import Damaged, mend
from tests.milestones.m6_state_manager.test_conversion import start

TASK = TaskId(0, 0)
UNLOGGED = StoreSpec("unlogged", logged=False, key_serde=serdes.STRING, value_serde=serdes.STRING)
LOGGED = StoreSpec("logged", key_serde=serdes.STRING, value_serde=serdes.STRING)



def life(manager: Any, metadata: Any = None, specs: tuple[StoreSpec, ...] = (UNLOGGED,), **settings: Any) -> Harness:
    """A task of the application, which begins where Kafka's `metadata` says."""

    def into(context: Any, record: Any) -> None:
        if record.key != "nothing":
            for spec in specs:
                context.get_state_store(spec.name).put(record.key, record.value)

    h = Harness(processing(into, specs), **settings)
    h.state = manager.open(TASK, specs)
    return h.start(metadata)


def committed(h: Harness, *keys: str) -> Any:
    """Offset metadata of the commit that these records end in."""
    for key in keys or ("a",):
        h.pipe((key, "v", 5))
    return dict(h.commit().metadata)


def closed(h: Harness) -> None:
    h.task.close()
    h.state.close()


def test_a_store_of_the_last_commit_is_as_it_should_be_also_after_commits_that_change_nothing(
    manager: RangeStateManager, caplog: pytest.LogCaptureFixture
) -> None:
    h = life(manager)
    committed(h, "a")
    metadata = committed(h, "nothing")
    closed(h)
    closed(life(manager, metadata, refuses_behind=True))
    assert "stores without changelog" not in caplog.text


def test_a_store_that_lacks_a_commit_is_named_and_taken_or_refused(
    manager: RangeStateManager, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka has the commit, and the process died before the disk had it."""
    h = life(manager)
    committed(h, "a")
    h.pipe(("b", "v", 6))
    lost = dict(h.task.freeze().metadata)
    h.task.close()
    h.state.close()
    with pytest.raises(StateError, match=r"\['unlogged'\] are of commit 1, Kafka's offsets of commit 2.*='accept'"):
        life(manager, lost, refuses_behind=True)
    manager._open[TASK].close()
    closed(life(manager, lost))
    assert "begins with what they have (unlogged_state='accept')" in caplog.text


def test_a_commit_that_couldnt_be_written_is_no_other_writes_commit(
    manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store lacks it: a restoration of other stores, or a store that is emptied, must not say otherwise."""
    h = life(manager, specs=(LOGGED, UNLOGGED))
    committed(h, "a")
    h.pipe(("b", "v", 6))
    commit = h.task.freeze()
    with monkeypatch.context() as patched:
        patched.setattr(h.state._engine.engine, "apply", failing)
        with pytest.raises(StateError, match="the disk is gone"):
            h.task.applied(commit, {"logged": 9})
    assert h.state.commit_number() == 1
    for write in (
        lambda: h.state.apply({"logged": {b"c": b"v"}}, {"logged": 9}),
        lambda: h.state.keep_changelog_ids({"logged": "an id"}),
        lambda: h.state.clear("logged"),
    ):
        write()
        assert h.state.commit_number() == 1


def failing(*_: Any, **__: Any) -> None:
    raise StateError("the disk is gone")


def test_a_task_that_comes_to_an_empty_disk_lacks_its_store_without_changelog(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    h = life(manager)
    metadata = committed(h)
    closed(h)
    manager.remove(TASK)
    with pytest.raises(StateError, match="are of commit 0, Kafka's offsets of commit 1"):
        life(manager, metadata, refuses_behind=True)


@pytest.mark.parametrize("beside", ["restoration", "changelog id", "standby"])
def test_what_is_written_of_other_stores_before_the_task_begins_does_not_hide_that_one_is_lacking(
    manager: RangeStateManager, beside: str
) -> None:
    """On the disk of another instance: a store with changelog is restored there, maybe as a standby's."""
    specs = LOGGED, UNLOGGED
    h = life(manager, specs=specs)
    metadata = committed(h)
    closed(h)
    manager.remove(TASK)
    storage = manager.open(TASK, specs)
    if beside == "changelog id":
        storage.keep_changelog_ids({"logged": "an id"})
    else:
        storage.apply({"logged": {b"a": b"v"}}, {"logged": 1})
    if beside == "standby":
        storage.close()
        storage = manager.open(TASK, specs)
    assert storage.commit_number() == 0
    storage.close()
    with pytest.raises(StateError, match=r"\['unlogged'\] are of commit 0, Kafka's offsets of commit 1"):
        life(manager, metadata, specs=specs, refuses_behind=True)


def test_a_store_that_was_damaged_is_named_and_taken_or_refused_until_the_next_commit(
    manager: RangeStateManager, caplog: pytest.LogCaptureFixture
) -> None:
    h = life(manager)
    metadata = committed(h, "a")
    closed(h)
    storage = manager.open(TASK, [UNLOGGED])
    storage.clear("unlogged", "a block is damaged")
    storage.close()
    with pytest.raises(StateError, match=r"\['unlogged'\] are what is left of them after .*='accept'"):
        life(manager, metadata, refuses_behind=True)
    manager._open[TASK].close()
    h = life(manager, metadata)
    assert "begins with what they have (unlogged_state='accept')" in caplog.text
    metadata = committed(h, "b")
    closed(h)
    closed(life(manager, metadata, refuses_behind=True))


def test_a_store_that_is_lost_while_its_task_commits_to_others_is_named_by_the_next_commit(
    directory: StateDirectory,
) -> None:
    """Otherwise that commit's number would say that the store has it all."""
    d = Damaged(directory, states.COUNTS, states.UNLOGGED, hit="unlogged")
    d.database.damage("another task has met it")
    mend(d.manager)

    def commit() -> None:
        d.damaged.note(CommitMade(5, {}, {}))
        d.damaged.apply({"counts": states.entries(1)}, {"counts": 8})

    with pytest.raises(StateCorruptError) as raised:
        commit()
    assert raised.value.damaged == {StoreId(states.TASK, "unlogged")}
    assert d.damaged.commit_number() == -1
    d.damaged.clear("unlogged", raised.value)
    commit()
    assert d.damaged.commit_number() == 5
    d.end()


def test_stores_with_changelogs_need_no_such_look(manager: RangeStateManager) -> None:
    h = life(manager, specs=(LOGGED,))
    metadata = committed(h)
    closed(h)
    manager.remove(TASK)
    closed(life(manager, metadata, specs=(LOGGED,), refuses_behind=True))


def test_what_an_earlier_stage_has_left_is_taken_until_the_first_commit(directory: StateDirectory) -> None:
    folders = start(directory, folder_state_manager)
    h = life(folders)
    metadata = committed(h)
    closed(h)
    ranges = start(directory, RangeStateManager)
    h = life(ranges, metadata, refuses_behind=True)
    assert h.state.commit_number() is None
    metadata = committed(h)
    assert h.state.commit_number() == 2
    closed(h)
    closed(life(ranges, metadata, refuses_behind=True))
    ranges.release()


def test_a_store_that_could_not_be_taken_over_is_named(directory: StateDirectory) -> None:
    folders = start(directory, folder_state_manager)
    h = life(folders)
    metadata = committed(h)
    closed(h)
    for file in (directory.task_path(TASK) / "rocksdb" / "unlogged").glob("MANIFEST-*"):
        file.write_bytes(b"nonsense" * 100)
    ranges = start(directory, RangeStateManager)
    with pytest.raises(StateError, match=r"\['unlogged'\] are what is left of them"):
        life(ranges, metadata, refuses_behind=True)
    ranges._open[TASK].close()
    ranges.release()


def test_the_row_has_the_last_commit_with_positions_and_stream_times(manager: RangeStateManager) -> None:
    h = life(manager, specs=(LOGGED, UNLOGGED))
    committed(h, "a", "b")
    row: RangeRow = manager.databases()[0].rows[0]
    assert (row.commit, row.positions, row.stream_times) == (1, {"in-0": 2}, {"in-0": 5})
    closed(h)
