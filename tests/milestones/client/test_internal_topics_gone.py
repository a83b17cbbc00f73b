"""Topics of the application's own that are deleted while it is stopped, on a real broker: what they held is lost, and
the next start says so before anything else is; a store that is new is none of that."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from milestones import StreamsBuilder, serdes
from milestones.common.errors import SourceTopicError
from milestones.testing import KafkaProbe
from tests.milestones.app import STAGES, App

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

OLD = [f"old {number}" for number in range(5)]
DISKS = pytest.mark.parametrize("disk", ["kept", "empty"])
CHANGELOG, REPARTITION = "counts-changelog", "by-line-repartition"
INTERNAL = pytest.mark.parametrize(
    ("gone", "what"),
    [
        (CHANGELOG, "the state of store counts"),
        (REPARTITION, "the records that were written to it and not yet read"),
    ],
)


def topology(app: App, *, in_memory: bool = False, more: bool = False) -> StreamsBuilder:
    """in -> repartition -> a store has all that came -> out. `more`: with another store."""
    builder = StreamsBuilder()
    lines = builder.stream(app["in"], key=serdes.STRING, value=serdes.STRING)
    grouped = lines.select_key(lambda _, line: line).repartition(name="by-line", key=serdes.STRING).group_by_key()
    counts = grouped.count("counts", in_memory=in_memory).to_stream()
    counts.to(app["out"], key=serdes.STRING, value=serdes.LONG)
    if more:
        grouped.count("added").to_stream().to(app["added"], key=serdes.STRING, value=serdes.LONG)
    return builder


def counts_of(app: App, name: str = "out") -> dict[str, int]:
    """The last count of each line."""
    records = KafkaProbe(app.kafka).read(app[name])
    return {(record.key or b"").decode(): int.from_bytes(record.value or b"", "big") for record in records}


def run_until_counted(app: App, **settings: Any) -> None:
    """Then it is stopped, and all is committed."""
    app.create({"in": 1, "out": 1, "added": 1}).write(*OLD)
    with app.running(topology(app), **settings):
        app.until(lambda: counts_of(app).keys() >= set(OLD), "all is counted")


def delete(app: App, name: str) -> None:
    app.probe.admin.delete_topics([app[name]])[app[name]].result()
    app.until(lambda: app[name] not in app.probe.topics(), "it is gone")


def refused(app: App, name: str, **settings: Any) -> str:
    """The error of a start."""
    with pytest.raises(SourceTopicError) as error:
        app.start(topology(app), name, **settings)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)
    return str(error.value)


@STAGES
@INTERNAL
@DISKS
def test_one_that_was_deleted_while_the_application_was_stopped_ends_each_start_which_names_what_is_lost(
    app: App, stage: str, guarantee: str, gone: str, what: str, disk: str
) -> None:
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    run_until_counted(app, **settings)
    delete(app, gone)
    for _ in range(2):
        said = refused(app, "one" if disk == "kept" else "another", **settings)
        assert f"internal topic {app[gone]} was deleted while the application was stopped" in said
        assert what in said
        assert f"milestones reset --only {app[gone]} --execute" in said
        assert app[gone] not in app.probe.topics(), "nothing was made anew"


@STAGES
@INTERNAL
def test_one_that_somebody_has_made_anew_meanwhile_is_no_other(
    app: App, stage: str, guarantee: str, gone: str, what: str
) -> None:
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    run_until_counted(app, **settings)
    delete(app, gone)
    app.create({gone: 1})
    for name in ("one", "another"):
        said = refused(app, name, **settings)
        assert f"internal topic {app[gone]} was deleted and made anew while the application was stopped" in said
        assert what in said


@STAGES
@INTERNAL
@pytest.mark.parametrize("anew", [False, True], ids=["gone", "made anew"])
def test_the_application_goes_on_without_it_once_the_user_has_done_what_the_error_says(
    app: App, stage: str, guarantee: str, gone: str, what: str, anew: bool
) -> None:
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    run_until_counted(app, **settings)
    delete(app, gone)
    if anew:
        app.create({gone: 1})
    refused(app, "one", **settings)
    app.reset("--only", app[gone], "--keep-state")
    for name in ("one", "another"):
        with app.running(topology(app), name, **settings):
            app.write(name)
            app.until(lambda name=name: name in counts_of(app), "new records are processed")
    expected = Counter(dict.fromkeys([*OLD, "one", "another"], 1))
    assert counts_of(app) == expected, "nothing was read again"
    with app.running(topology(app), **settings):
        app.write(OLD[0], "one")
        again = 1 if gone == CHANGELOG else 2
        app.until(lambda: counts_of(app) == {**expected, OLD[0]: again, "one": 2}, "what is lost is lost, no more")


@pytest.mark.parametrize("stage", ["baseline", "m6"])
def test_that_of_a_store_in_memory_is_missed_as_well(app: App, stage: str) -> None:
    app.create({"in": 1, "out": 1}).write(*OLD)
    with app.running(topology(app, in_memory=True), milestones=stage):
        app.until(lambda: counts_of(app).keys() >= set(OLD), "all is counted")
    delete(app, CHANGELOG)
    assert "the state of store counts" in refused(app, "one", milestones=stage)


@STAGES
def test_the_state_directory_names_it_where_the_committed_offsets_are_gone_with_their_topics(
    app: App, stage: str, guarantee: str
) -> None:
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    run_until_counted(app, **settings)
    for name in ("in", REPARTITION, CHANGELOG):
        delete(app, name)
    app.create({"in": 1})
    said = refused(app, "one", **settings)
    assert f"internal topic {app[REPARTITION]} was deleted" in said
    assert f"internal topic {app[CHANGELOG]} was deleted" in said


@STAGES
@DISKS
def test_a_store_that_is_added_to_the_topology_has_had_no_changelog(
    app: App, stage: str, guarantee: str, disk: str
) -> None:
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    run_until_counted(app, **settings)
    with app.running(topology(app, more=True), "one" if disk == "kept" else "another", **settings):
        app.write(OLD[0])
        app.until(lambda: counts_of(app, "added") == {OLD[0]: 1}, "the new store begins empty")
        app.until(lambda: counts_of(app)[OLD[0]] == 2, "the other one goes on")
    delete(app, "added-changelog")
    with pytest.raises(SourceTopicError, match="the state of store added"):
        app.start(topology(app, more=True), "third", **settings)
    with app.running(topology(app), "third", **settings):
        app.write(OLD[0])
        app.until(lambda: counts_of(app)[OLD[0]] == 3, "a topology without the store doesn't miss it")


@STAGES
def test_a_state_directory_of_before_a_reset_keeps_nobody_from_starting_over(
    app: App, stage: str, guarantee: str
) -> None:
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    run_until_counted(app, **settings)
    app.reset("--keep-state")
    for _ in range(2):
        with app.running(topology(app), **settings):
            app.until(lambda: app.probe.committed(app.id).get((app[REPARTITION], 0), 0) >= 5, "all is counted again")
