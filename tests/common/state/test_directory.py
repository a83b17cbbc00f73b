"""Who may use a state directory, and what it says when somebody may not."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from milestones.common.errors import StateError, StateFormatError, StateLockedError
from milestones.common.records import GLOBAL, TaskId
from milestones.common.state import disk
from milestones.common.state.directory import DATABASES, StateDirectory
from milestones.common.state.manifest import RANGES, InstanceManifest

TASK = TaskId(0, 1)

RECORDED: list[tuple[Callable[[StateDirectory], None], Callable[[StateDirectory], object]]] = [
    (lambda directory: directory.record_ids(transactional={"words-1"}), lambda directory: directory.transactional_ids),
    (lambda directory: directory.record_sources({"in": "an id"}), lambda directory: directory.source_ids),
    (lambda directory: directory.record_internal({"log": "an id"}), lambda directory: directory.internal_ids),
    (
        lambda directory: directory.write_layout(RANGES),
        lambda directory: InstanceManifest.read(directory.path).layout,  # type: ignore[union-attr]  # it is there
    ),
]
"""What a directory writes down, and where it says it."""

HOLDER = """
import sys
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory

directory = StateDirectory(sys.argv[1], "words")
held = directory.lock(TaskId(0, 1), owner="thread worker-1")
print("ready", flush=True)
sys.stdin.read()
"""


def fill(directory: StateDirectory, task: TaskId) -> None:
    held = directory.lock(task)
    (held.path / "manifest.json").write_text("{}")
    held.unlock()


class TestInstance:
    def test_the_process_id_is_a_uuid_that_survives_a_restart(self, tmp_path: Path) -> None:
        first = StateDirectory(tmp_path / "deep" / "state", "words")
        first.close()
        again = StateDirectory(tmp_path / "deep" / "state", "words")
        assert str(uuid.UUID(again.process_id)) == first.process_id
        assert again.path == tmp_path / "deep" / "state" / "words"
        again.close()

    def test_two_applications_share_a_state_dir(self, tmp_path: Path) -> None:
        words, clicks = StateDirectory(tmp_path, "words"), StateDirectory(tmp_path, "clicks")
        assert words.process_id != clicks.process_id
        words.close()
        clicks.close()

    def test_a_second_instance_in_this_process_is_refused(self, tmp_path: Path) -> None:
        directory = StateDirectory(tmp_path, "words")
        (tmp_path / "link").symlink_to(tmp_path)
        for path in (tmp_path, tmp_path / "link"):
            with pytest.raises(StateLockedError, match=rf"this process \({os.getpid()}\).*state_dir of its own"):
                StateDirectory(path, "words")
        directory.close()
        directory.close()
        StateDirectory(tmp_path, "words").close()

    def test_a_second_process_is_refused_with_the_first_one_s_pid_until_that_is_killed(self, tmp_path: Path) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            holder.stdout.readline()
            with pytest.raises(StateLockedError, match=f"process {holder.pid} on .*"):
                StateDirectory(tmp_path, "words")
            process_id = json.loads((tmp_path / "words" / "process").read_text())["process_id"]
            holder.kill()
            holder.wait()
            directory = StateDirectory(tmp_path, "words")
            assert directory.process_id == process_id
            directory.lock(TASK).unlock()
            directory.close()

    def test_a_forked_child_neither_inherits_nor_keeps_the_lock(self, tmp_path: Path) -> None:
        directory = StateDirectory(tmp_path, "words")
        parent_done, child_done = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover
            os.read(parent_done[0], 1)
            try:
                StateDirectory(tmp_path, "words").close()
                os.write(child_done[1], b"locked")
            except BaseException as error:
                os.write(child_done[1], repr(error).encode())
            os._exit(0)
        with pytest.raises(StateLockedError):
            StateDirectory(tmp_path, "words")
        directory.close()
        os.write(parent_done[1], b".")
        assert os.read(child_done[0], 1000) == b"locked"
        os.waitpid(child, 0)
        for descriptor in (*parent_done, *child_done):
            os.close(descriptor)

    def test_an_error_on_the_way_leaves_no_lock(self, tmp_path: Path, open_files: Callable[[], int]) -> None:
        (tmp_path / "words").mkdir()
        (tmp_path / "words" / "process").write_text("{")
        before = open_files()
        for _ in range(3):
            with pytest.raises(StateFormatError, match=r"words/process.*remove that file"):
                StateDirectory(tmp_path, "words")
        assert open_files() == before
        (tmp_path / "words" / "process").unlink()
        StateDirectory(tmp_path, "words").close()

    def test_transactional_ids_are_remembered_until_they_are_retired(self, tmp_path: Path) -> None:
        directory = StateDirectory(tmp_path, "words")
        directory.record_ids(transactional={"words-1", "words-2"})
        directory.record_ids(transactional={"words-2"})
        directory.close()
        directory = StateDirectory(tmp_path, "words")
        assert directory.transactional_ids == {"words-1", "words-2"}
        directory.forget_ids(transactional={"words-1", "never there"})
        directory.close()
        directory = StateDirectory(tmp_path, "words")
        assert directory.transactional_ids == {"words-2"}
        directory.close()

    def test_static_ids_are_remembered_until_their_members_have_left(self, tmp_path: Path) -> None:
        directory = StateDirectory(tmp_path, "words")
        directory.record_ids(transactional={"words-1"}, static={"one-1", "one-2"})
        directory.close()
        directory = StateDirectory(tmp_path, "words")
        assert directory.static_ids == {"one-1", "one-2"}
        directory.forget_ids(static={"one-2", "never there"})
        directory.close()
        directory = StateDirectory(tmp_path, "words")
        assert (directory.static_ids, directory.transactional_ids) == ({"one-1"}, {"words-1"})
        directory.close()

    def test_threads_that_note_ids_at_once_lose_none(self, tmp_path: Path) -> None:
        directory = StateDirectory(tmp_path, "words")
        directory.record_ids(transactional={f"old-{number}" for number in range(40)})

        def note(number: int) -> None:
            directory.forget_ids(transactional={f"old-{number}"})
            directory.record_ids(static={f"one-{number}"})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(note, range(40)))
        directory.close()
        directory = StateDirectory(tmp_path, "words")
        assert directory.transactional_ids == frozenset()
        assert directory.static_ids == {f"one-{number}" for number in range(40)}
        directory.close()

    def test_a_directory_of_something_else_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "words").mkdir()
        (tmp_path / "words" / "kafka-streams-process-metadata").write_text("{}")
        with pytest.raises(StateFormatError, match=r"kafka-streams-process-metadata.*another state_dir"):
            StateDirectory(tmp_path, "words")
        assert (tmp_path / "words" / "kafka-streams-process-metadata").read_text() == "{}"

    def test_a_directory_that_was_renamed_to_another_application_is_refused(self, tmp_path: Path) -> None:
        StateDirectory(tmp_path, "words").close()
        (tmp_path / "words").rename(tmp_path / "clicks")
        with pytest.raises(StateFormatError, match="'words', not of 'clicks'"):
            StateDirectory(tmp_path, "clicks")

    @pytest.mark.parametrize("name", ["..", ".", "a/b", ""])
    def test_an_application_id_that_leaves_the_state_dir_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(StateError, match="application_id"):
            StateDirectory(tmp_path, name)

    def test_a_task_that_wasn_t_closed_stays_locked_when_its_directory_is_given_back(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        directory = StateDirectory(tmp_path, "words")
        held = directory.lock(TASK, owner="thread 1")
        directory.close()
        assert "task 0_1 is still held by thread 1" in caplog.text
        again = StateDirectory(tmp_path, "words")
        with pytest.raises(StateLockedError, match="thread 1"):
            again.lock(TASK)
        held.unlock()
        again.lock(TASK).unlock()
        again.close()


class TestTasks:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> StateDirectory:
        return StateDirectory(tmp_path, "words")

    def test_a_locked_task_is_refused_at_once_with_its_holder(self, directory: StateDirectory) -> None:
        held = directory.lock(TASK)
        told: list[BaseException] = []

        def other() -> None:
            try:
                directory.lock(TASK)
            except StateLockedError as error:
                told.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert f"held by thread {threading.current_thread().name}" in str(told[0])
        assert directory.locked() == {TASK: f"thread {threading.current_thread().name}"}
        held.unlock()
        held.unlock()
        assert directory.locked() == {}
        again = directory.lock(TASK, owner="another")
        held.unlock()
        assert directory.locked() == {TASK: "another"}
        again.unlock()

    def test_only_one_of_many_threads_gets_a_task(self, directory: StateDirectory) -> None:
        barrier, got = threading.Barrier(8), []

        def contend() -> None:
            barrier.wait()
            with suppress(StateLockedError):
                got.append(directory.lock(TASK))

        threads = [threading.Thread(target=contend) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 1
        got[0].unlock()

    def test_tasks_with_state_are_listed_in_order(self, directory: StateDirectory) -> None:
        for task in (TaskId(1, 0), TaskId(0, 10), TaskId(0, 2)):
            fill(directory, task)
        directory.lock(TaskId(0, 3)).unlock()
        (directory.path / "0_4").write_text("a file")
        (directory.path / "notes").mkdir()
        assert directory.tasks() == [TaskId(0, 2), TaskId(0, 10), TaskId(1, 0)]

    def test_removing_a_task_removes_all_of_it_but_never_while_it_is_held(self, directory: StateDirectory) -> None:
        fill(directory, TASK)
        held = directory.lock(TASK)
        with pytest.raises(StateLockedError):
            directory.remove(TASK)
        held.unlock()
        directory.remove(TASK)
        directory.remove(TaskId(7, 7))
        assert sorted(path.name for path in directory.path.iterdir()) == [".lock", "process"]
        directory.lock(TASK).unlock()

    def test_what_removals_and_writes_left_is_swept_at_the_next_start(
        self, tmp_path: Path, directory: StateDirectory
    ) -> None:
        fill(directory, TASK)
        trash = directory.path / f"{disk.TRASH}1"
        (directory.path / "0_1").rename(trash)
        assert directory.tasks() == []
        of_databases = directory.path / DATABASES / f"{disk.TRASH}2" / "rocksdb"
        of_databases.mkdir(parents=True)
        half_written = directory.path / ".process.tmp"
        half_written.write_text("{")
        directory.close()
        StateDirectory(tmp_path, "words").close()
        assert not any(path.exists() for path in (trash, of_databases.parent, half_written))

    def test_clearing_removes_all_tasks_and_global_stores_and_the_instance_stays(
        self, directory: StateDirectory
    ) -> None:
        for task in (TASK, TaskId(7, 7), GLOBAL):
            fill(directory, task)
        identity = directory.process_id
        held = directory.lock(TASK)
        with pytest.raises(StateLockedError):
            directory.clear()
        held.unlock()
        directory.clear()
        directory.clear()
        assert directory.tasks() == []
        assert not directory.task_path(GLOBAL).exists()
        path = directory.path
        directory.close()
        again = StateDirectory(path.parent, path.name)
        assert again.process_id == identity
        again.close()

    def test_a_lock_file_that_was_removed_meanwhile_can_t_be_held_twice(self, directory: StateDirectory) -> None:
        for _ in range(3):
            directory.lock(TASK).unlock()
            directory.remove(TASK)
        held = directory.lock(TASK)
        assert (held.path / ".lock").exists()
        held.unlock()


class TestHostileDisks:
    @pytest.mark.parametrize(
        ("number", "says"),
        [
            (errno.EACCES, "own it"),
            (errno.EROFS, "read-only"),
            (errno.ENOSPC, "disk full"),
            (errno.ENOLCK, "local disk"),
            (errno.EMFILE, "ulimit"),
            (errno.EIO, "disk is sound"),
        ],
    )
    def test_an_error_of_the_disk_names_the_path_and_the_way_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        for function in ("mkdir", "open"):
            with monkeypatch.context() as patch:
                if function == "open":
                    (tmp_path / "words").mkdir()
                patch.setattr(os, function, fail)
                with pytest.raises(StateError, match=rf"{tmp_path}.*{says}"):
                    StateDirectory(tmp_path, "words")
        StateDirectory(tmp_path, "words").close()

    def test_a_file_in_place_of_the_state_dir_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "state").write_text("mine")
        with pytest.raises(StateError, match="state"):
            StateDirectory(tmp_path / "state", "words")
        (tmp_path / "words").write_text("mine")
        with pytest.raises(StateError, match="words"):
            StateDirectory(tmp_path, "words")

    def test_a_write_that_fails_leaves_the_former_content(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = StateDirectory(tmp_path, "words")

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StateError, match="disk full"):
                directory.record_ids(transactional={"words-1"})
        assert directory.transactional_ids == frozenset()
        directory.close()
        directory = StateDirectory(tmp_path, "words")
        assert directory.transactional_ids == frozenset()
        directory.close()

    @pytest.mark.parametrize(("record", "read"), RECORDED, ids=["ids", "sources", "own topics", "layout"])
    def test_what_a_full_disk_has_refused_is_written_when_it_is_recorded_again(
        self, record: Callable[[StateDirectory], None], read: Callable[[StateDirectory], object], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        directory = StateDirectory(tmp_path, "words")
        before = read(directory)

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StateError, match="disk full"):
                record(directory)
        assert read(directory) == before
        record(directory)
        directory.close()
        directory = StateDirectory(tmp_path, "words")
        assert read(directory) != before
        directory.close()
