"""Numbers of threads, and what is paused."""

from __future__ import annotations

import pytest

from milestones.client.streams import Streams
from milestones.common.config import StreamsConfig
from milestones.common.errors import MilestonesError, TopologyError
from milestones.common.topology.builder import StreamsBuilder
from milestones.instance.application import Application
from milestones.instance.thread_registry import ThreadRegistry
from tests.milestones.fakes import counting


def test_a_new_thread_gets_the_lowest_number_that_is_free() -> None:
    thread_registry = ThreadRegistry(3)
    assert thread_registry.add() == 4
    assert thread_registry.remove(2) == 2
    assert thread_registry.add() == 5
    thread_registry.gone(2)
    assert thread_registry.add() == 2
    assert thread_registry.numbers() == [1, 2, 3, 4, 5]


def test_a_number_is_not_used_again_before_its_thread_has_ended() -> None:
    thread_registry = ThreadRegistry(1)
    thread_registry.remove(1)
    assert thread_registry.numbers() == []
    assert thread_registry.add() == 2


def test_the_highest_number_leaves_first_but_not_the_caller_unless_it_is_the_last() -> None:
    thread_registry = ThreadRegistry(3)
    assert thread_registry.remove(own=3) == 2
    assert thread_registry.remove() == 3
    assert thread_registry.remove(own=1) == 1
    with pytest.raises(MilestonesError, match="all have been removed"):
        thread_registry.remove()


def test_a_thread_that_leaves_already_cannot_be_removed_again() -> None:
    thread_registry = ThreadRegistry(2)
    thread_registry.remove(2)
    with pytest.raises(MilestonesError, match="thread 2 is being removed already"):
        thread_registry.remove(2)


def test_threads_that_leave_share_no_memory() -> None:
    thread_registry = ThreadRegistry(2)
    thread_registry.remove()
    assert thread_registry.threads == 1
    thread_registry.add()
    thread_registry.add()
    assert thread_registry.threads == 3


def application() -> Application:
    builder = StreamsBuilder()
    builder.stream("in", name="lines").to("out", name="copies")
    builder.stream("other", name="others").group_by_key().count("counts").to_stream().to("counted")
    return Application.of(builder.build(), StreamsConfig(application_id="app", bootstrap_servers="localhost:1"))


def test_a_sub_topology_goes_by_its_number_and_by_its_nodes_and_stores() -> None:
    app = application()
    assert app.named_subtopologies(None) == {0, 1}
    assert app.named_subtopologies(1) == app.named_subtopologies("1") == {1}
    assert app.named_subtopologies("lines") == app.named_subtopologies(["copies", 0]) == {0}
    assert app.named_subtopologies(["counts", "lines"]) == {0, 1}


@pytest.mark.parametrize("unknown", ["nothing", 2, ["counts", "nothing"]])
def test_an_unknown_name_of_a_sub_topology_is_refused_with_all_that_there_are(unknown: int | str | list[str]) -> None:
    with pytest.raises(TopologyError) as caught:
        application().named_subtopologies(unknown)
    for known in ("0 (", "lines", "copies", "1 (", "others", "counts"):
        assert known in str(caught.value)


def test_an_application_can_be_paused_before_its_start_and_in_parts() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="lines").to("out")
    builder.stream("other", name="others").to("copies")
    streams = Streams(builder, application_id="app", bootstrap_servers="localhost:1")
    assert not streams.is_paused
    streams.pause("lines")
    assert not streams.is_paused
    streams.pause("others")
    assert streams.is_paused
    streams.resume(0)
    streams.resume(0)
    assert not streams.is_paused
    streams.pause()
    assert streams.is_paused
    streams.resume()
    assert streams._supervisor.thread_registry.paused == frozenset()


def test_a_pause_of_something_unknown_pauses_nothing() -> None:
    streams = Streams(counting(), application_id="app", bootstrap_servers="localhost:1")
    with pytest.raises(TopologyError, match="'nothing'"):
        streams.pause([0, "nothing"])
    assert not streams.is_paused
