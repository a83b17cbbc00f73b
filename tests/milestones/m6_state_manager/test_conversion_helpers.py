"""ConversionHelper processes write a conversion's files; an end of any process costs nothing."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from milestones.common.errors import StateError
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.m6_state_manager.conversion import all_tasks, helpers
from milestones.m6_state_manager.conversion.helpers import ConversionHelper, Helpers
from milestones.m6_state_manager.conversion.layouts import FolderJob, RangeJob
from milestones.testing import until
from tests.milestones.m6_state_manager.states import COUNTS, NEIGHBOUR, OTHER, TASK, UNLOGGED
from tests.milestones.m6_state_manager.test_conversion import (
    FOLDERS,
    RANGES,
    TASKS,
    content,
    either_layout_has,
    fill,
    killed_at_steps,
    start,
)


@pytest.fixture(autouse=True)
def _all_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_tasks, "MUCH_BYTES", 0)
    monkeypatch.setattr(all_tasks, "AHEAD", 1)
    monkeypatch.setattr(all_tasks, "MOST", 2)


def helpers_of_this_process() -> list[psutil.Process]:
    return [
        child for child in psutil.Process().children() if helpers.PROGRAM in " ".join(child.cmdline())
    ]


def test_what_helpers_write_is_what_was_there_and_none_stays(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    before = fill(start(directory, FOLDERS))
    after = start(directory, RANGES)
    assert content(after) == before
    assert f"{len(TASKS)} of {len(TASKS)} tasks are converted to ranges" in caplog.text
    assert helpers_of_this_process() == []
    assert not list(directory.path.rglob(".trash-*"))
    after.release()


def test_helpers_give_out_what_was_there_and_none_stays(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ranges = start(directory, RANGES)
    before = fill(ranges)
    ranges.release()
    assert content(start(directory, FOLDERS)) == before
    assert f"{len(TASKS)} of {len(TASKS)} tasks are converted to folders" in caplog.text
    assert helpers_of_this_process() == []
    assert not list(directory.path.rglob(".trash-*"))
    assert not list((directory.path / "engines").iterdir())


BOTH_WAYS = pytest.mark.parametrize(("before", "after"), [(FOLDERS, RANGES), (RANGES, FOLDERS)])


@BOTH_WAYS
def test_the_most_important_tasks_are_converted_first(
    directory: StateDirectory, before: Any, after: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first = start(directory, before)
    fill(first)
    first.release()
    last = after(directory, open_engines("rocksdict"), "a stage", weights={OTHER.subtopology: 4})
    said = re.findall(r"task (\S+): \d+ entries were", caplog.text)
    assert said == [str(task) for task in (OTHER, *(task for task in TASKS if task != OTHER))]
    last.release()


@pytest.mark.parametrize(
    "job",
    [
        FolderJob(Path("/a/0_1/rocksdb/s"), "rocksdb", b"\0\0\0\xff", Path("/b/s")),
        RangeJob(Path("/a/engines/0/rocksdb-2"), "rocksdict", "s", 7, None, Path("/b/s")),
        RangeJob(Path("/a"), "rocksdict", "s", 0, 5, Path("/b")),
    ],
)
def test_a_job_comes_to_its_helper_as_it_is(job: FolderJob | RangeJob) -> None:
    assert helpers.read(helpers.written(job)) == job


def test_a_store_that_a_helper_cant_read_is_left_behind_and_the_others_are_taken(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    before = fill(start(directory, FOLDERS))
    for file in (directory.task_path(TASK) / "rocksdb" / "counts").glob("MANIFEST-*"):
        file.write_bytes(b"nonsense" * 100)
    manager = start(directory, RANGES)
    after = content(manager)
    assert "store 'counts' of task 0_1 can't be converted, its files are kept in" in caplog.text
    assert after.pop(TASK)[0] == {**before.pop(TASK)[0], "counts": {}}
    assert after == before
    manager.release()


@BOTH_WAYS
def test_the_work_of_a_helper_that_is_killed_is_done_all_the_same(
    directory: StateDirectory, before: Any, after: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    first = start(directory, before)
    expected = fill(first)
    first.release()
    asked = ConversionHelper._ask

    def killed(helper: ConversionHelper, line: str) -> str:
        with contextlib.suppress(ProcessLookupError):  # it was killed at an earlier job
            os.kill(helper.pid, signal.SIGKILL)
        return asked(helper, line)

    monkeypatch.setattr(ConversionHelper, "_ask", killed)
    manager = start(directory, after)
    assert content(manager) == expected
    assert "a helper process has ended with exit code -9, its work is done here" in caplog.text
    manager.release()


@BOTH_WAYS
@pytest.mark.parametrize("refused", ["process", "thread"])
@pytest.mark.parametrize("given", [0, 1])
def test_where_the_system_gives_too_few_helpers_all_is_converted_by_those_that_there_are(
    directory: StateDirectory, before: Any, after: Any, refused: str, given: int, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    first = start(directory, before)
    expected = fill(first)
    first.release()
    calls = itertools.count()
    if refused == "process":
        begin = helpers.begin

        def begun(*arguments: Any, **pipes: Any) -> Any:
            if next(calls) >= given:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return begin(*arguments, **pipes)

        monkeypatch.setattr(helpers, "begin", begun)
    else:
        started = threading.Thread.start

        def start_thread(thread: threading.Thread) -> None:
            if thread.name.startswith("conversion-") and next(calls) >= given:
                raise RuntimeError("can't start new thread")
            started(thread)

        monkeypatch.setattr(threading.Thread, "start", start_thread)
    manager = start(directory, after)
    assert f"a conversion has {given} of 2 helper processes" in caplog.text
    assert content(manager) == expected
    assert helpers_of_this_process() == []
    manager.release()


def test_an_end_of_the_start_leaves_no_helper_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, calls = helpers.begin, itertools.count()

    def begun(*arguments: Any, **pipes: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return begin(*arguments, **pipes)

    monkeypatch.setattr(helpers, "begin", begun)
    with pytest.raises(KeyboardInterrupt):
        Helpers(3)
    assert helpers_of_this_process() == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("conversion-")]


def test_a_helper_ends_with_its_parent_and_what_it_holds_can_be_opened() -> None:
    helper = ConversionHelper()
    process = psutil.Process(helper.pid)
    assert helper._process.stdin is not None
    helper._process.stdin.close()  # as the end of the parent does
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "the helper ends", 60)
    helper.end()
    helper.close()


def test_a_conversion_that_ends_early_has_nothing_more_read(tmp_path: Path) -> None:
    engine = open_engines("rocksdict").open(tmp_path / "store")
    engine.open("store")
    engine.close()
    job = FolderJob(tmp_path / "store", "rocksdict", b"", tmp_path / "files")
    helper = ConversionHelper()
    helper.end()
    with pytest.raises(StateError, match="the conversion has ended"):
        helper.do(job)
    helper.close()
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize(
    ("before", "after", "steps", "least"),
    [(FOLDERS, RANGES, range(1, 1_000, 4), 10), (RANGES, FOLDERS, range(1, 1_000, 2), 5)],
)
@pytest.mark.parametrize(
    "next_has_helpers", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["then alone", "then helpers"]
)
def test_a_kill_at_any_step_beside_helpers_costs_nothing_whatever_stage_starts_next(
    tmp_path: Path, before: Any, after: Any, steps: range, least: int, next_has_helpers: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    home = StateDirectory(tmp_path / "home", "words")
    first = start(home, before)
    few: Any = [TASK, NEIGHBOUR], [COUNTS, UNLOGGED]
    expected = fill(first, *few)
    first.release()
    see = either_layout_has(expected, few)

    def seen(left: Path) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(all_tasks, "MUCH_BYTES", 0 if next_has_helpers else 1 << 40)
            see(left)

    assert killed_at_steps(home, after, seen, steps) > least
