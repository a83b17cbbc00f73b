"""`Streams.clean_up`: the state of an instance that doesn't run, gone from its disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from milestones import MilestonesError, StateLockedError, Streams, StreamsBuilder, StreamsState
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory


def streams(state_dir: Path) -> Streams:
    builder = StreamsBuilder()
    builder.table("rows", "rows")
    return Streams(builder, application_id="app", bootstrap_servers="nowhere:1", state_dir=str(state_dir))


def filled(state_dir: Path) -> StateDirectory:
    directory = StateDirectory(state_dir, "app")
    held = directory.lock(TaskId(0, 0))
    (held.path / "rows").write_text("rows")
    held.unlock()
    return directory


def test_the_state_is_gone_and_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    client = streams(tmp_path)
    with pytest.raises(StateLockedError):
        client.clean_up()
    assert directory.tasks() == [TaskId(0, 0)]
    directory.close()
    client.clean_up()
    client.clean_up()
    assert not directory.task_path(TaskId(0, 0)).exists()


@pytest.mark.parametrize("state", StreamsState)
def test_only_a_client_that_does_not_run_loses_its_state(
    state: StreamsState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = filled(tmp_path)
    directory.close()
    client = streams(tmp_path)
    monkeypatch.setattr(Streams, "state", state)
    if state in (StreamsState.CREATED, StreamsState.NOT_RUNNING, StreamsState.ERROR):
        client.clean_up()
        assert directory.tasks() == []
    else:
        with pytest.raises(MilestonesError, match=f"for a client that doesn't run; this one is {state.value}"):
            client.clean_up()
        assert directory.tasks() == [TaskId(0, 0)]
