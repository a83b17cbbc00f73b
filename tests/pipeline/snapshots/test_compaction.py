"""Changelogs into snapshots, on a real Spark and a real Kafka."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition

from milestones.common.errors import ConfigError, SourceTopicError
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.snapshots.repository import LocalSnapshot, SnapshotRepository, described
from milestones.common.state.snapshots.snapshot import INSTANCE, SPARK
from milestones.common.testing import StepClock
from tests.pipeline.snapshots.apps import NOW_MS, App
from tests.topics import commit

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

# -- what is in a snapshot


def test_a_snapshot_is_what_the_changelog_comes_to(app: App) -> None:
    app.write(("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"))
    app.write(("b", None), ("d", None), ("e", "5"))
    app.write(("f", "6"), partition=1)
    run = app.compact()
    assert (app.content(0), app.content(1)) == ({b"a": b"3", b"c": b"4", b"e": b"5"}, {b"f": b"6"})
    assert [(one.manifest.offset, one.records) for one in run.snapshots] == [(9, 7), (2, 1)]
    assert (run.records, run.entries) == (8, 4)


def test_aborted_and_open_transactions_are_not_in_it_and_end_it(app: App) -> None:
    app.write(("a", "1"))
    app.write(("a", "aborted"), ("b", "aborted"), end="abort")
    app.write(("c", "2"))
    app.write(("a", "open"), end="nothing")
    app.write(("d", "behind an open transaction"))
    made = app.made()
    assert app.content() == {b"a": b"1", b"c": b"2"}
    assert made.manifest.offset == 7


def test_an_empty_changelog_has_an_empty_snapshot(app: App) -> None:
    made = app.made()
    assert (made.manifest.offset, made.manifest.entries, made.manifest.files) == (0, 0, ())


def test_a_timestamped_store_gets_its_own_format(app: App) -> None:
    app.topology = app._topology(kind="timestamped-key-value")
    app.write(("a", "1"))
    app.compact()
    assert app.content() == {b"a": NOW_MS.to_bytes(8, "big") + b"1"}


def test_of_a_source_topic_only_what_the_group_has_committed_is_state(app: App) -> None:
    app.changelog = f"{app.name}-in"
    app.topology = app._topology(source_topic=app.changelog)
    app.write(("a", "1"), ("b", "2"), ("c", "3"))
    assert app.made().manifest.offset == 0
    consumer = Consumer({"bootstrap.servers": app.kafka, "group.id": app.name})
    commit(consumer, [TopicPartition(app.changelog, 0, 2)])
    consumer.close()
    assert (app.made().manifest.offset, app.content()) == (2, {b"a": b"1", b"b": b"2"})


# -- one after the other


def test_the_next_one_is_built_on_the_last_and_reads_only_what_came_since(app: App) -> None:
    app.write(("a", "1"), ("b", "2"))
    assert (app.made().base, app.made().new) == (None, False)
    app.write(("a", None), ("c", "3"))
    made = app.made()
    assert (made.base, made.records, made.new) == (3, 2, True)
    assert app.content() == {b"b": b"2", b"c": b"3"}


@pytest.mark.parametrize(("stage", "prefix"), [("m5", b""), ("m6", b"\0\0\0\0")])
def test_it_is_built_on_a_delta_with_deletions_that_an_instance_has_made_and_counts_to_its_generation(
    app: App, stage: str, prefix: bytes
) -> None:
    app.config = app.config.replace(milestones=stage)
    app.write(("a", "1"), ("b", "2"), ("c", "3"))
    base = app.made().manifest
    assert (base.made_by, base.key_prefix) == (SPARK, prefix)
    app.write(("a", None), ("b", "4"))
    folder = app.directory / "delta"
    folder.mkdir()
    writer = SstWriter(folder)
    writer.write(iter([(prefix + b"a", None), (prefix + b"b", b"4")]))
    files = tuple(described(path, count, writer.deletions[path]) for path, count in writer.files.items())
    own = replace(base, id="delta", offset=base.offset + 3, generation=8, files=files, made_by=INSTANCE)
    repository = SnapshotRepository(app.url, app.name)
    repository.publish(LocalSnapshot(base.with_delta(own), folder))
    app.write(("d", "5"))
    made = app.made()
    assert (made.base, made.records, made.manifest.generation, made.manifest.base) == (own.offset, 1, 8, None)
    assert app.content() == {b"b": b"4", b"c": b"3", b"d": b"5"}


def test_it_is_built_on_a_snapshot_that_an_instance_of_m6_has_made(app: App) -> None:
    app.write(("a", "1"), ("b", "2"), ("c", "3"))
    spark = app.made().manifest
    folder, prefix = app.directory / "ranges", b"\0\0\0\0"
    folder.mkdir()
    writer = SstWriter(folder)
    writer.write(iter([(prefix + b"a", b"1"), (prefix + b"b", b"2"), (prefix + b"c", b"3"), (prefix + b"gone", b"4")]))
    files = tuple(described(path, count) for path, count in writer.files.items())
    own = replace(
        spark, id="own", generation=8, files=files, key_prefix=prefix, gone=((b"g", b"h"),), made_by=INSTANCE
    )
    SnapshotRepository(app.url, app.name).publish(LocalSnapshot(own, folder))
    app.write(("a", None), ("d", "5"))
    made = app.made()
    assert (made.base, made.records, made.manifest.generation) == (own.offset, 2, 8)
    assert (made.manifest.key_prefix, made.manifest.gone) == (b"", ())
    assert app.content() == {b"b": b"2", b"c": b"3", b"d": b"5"}


def test_a_generation_that_only_spark_has_handed_on_gives_way_to_that_of_the_group_s_members(app: App) -> None:
    """The group of generation 90 was deleted."""
    app.config = app.config.replace(milestones="m6")
    app.write(("a", "1"))
    repository, nothing = SnapshotRepository(app.url, app.name), app.directory / "nothing"
    spark = app.made().manifest
    before = replace(spark, id="before", generation=90, files=())
    for manifest in (before, replace(before, id="now", generation=2, made_by=INSTANCE)):
        repository.publish(LocalSnapshot(manifest, nothing))
    app.write(("b", "2"))
    assert app.made().manifest.generation == 2


def test_what_is_too_old_has_no_generation_to_hand_on(app: App) -> None:
    app.write(("a", "1"))
    repository, nothing = SnapshotRepository(app.url, app.name), app.directory / "nothing"
    dead = replace(app.made().manifest, id="dead", generation=90, files=(), usable_until_ms=1, made_by=INSTANCE)
    repository.publish(LocalSnapshot(dead, nothing))
    app.write(("b", "2"))
    assert app.made().manifest.generation == 0


def test_an_encrypted_snapshot_is_built_on_with_its_key_only(app: App) -> None:
    key, other = (f"{id}:{b64encode(id.encode() * 16).decode()}" for id in ("k1", "k2"))
    app.config = app.config.replace(snapshot_encryption_key=key)
    app.write(("a", "1"))
    assert {file.key_id for file in app.made().manifest.files} == {"k1"}
    app.write(("b", "2"))
    app.config = app.config.replace(snapshot_encryption_key=other)
    assert app.made().base is None
    app.write(("c", "3"))
    app.config = app.config.replace(snapshot_encryption_key=f"{other},{key}")
    assert app.made().base == 4


def test_a_snapshot_after_which_deletions_may_be_forgotten_is_not_built_on(app: App) -> None:
    app.write(("a", "1"))
    app.made()
    app.write(("b", "2"))
    made = app.made(clock=StepClock(NOW_MS + 86_400_000))
    assert (made.base, made.records) == (None, 2)


def test_a_snapshot_whose_changelog_was_made_anew_is_not_built_on(app: App) -> None:
    app.write(("a", "1"))
    app.made()
    app.make_changelog_anew()
    app.write(("x", "1"), ("y", "2"), ("z", "3"))
    assert (app.made().base, app.content()) == (None, {b"x": b"1", b"y": b"2", b"z": b"3"})


def test_a_damaged_snapshot_is_not_built_on(app: App) -> None:
    app.write(("a", "1"))
    for file in app.made().manifest.files:
        (path,) = (app.directory / "snapshots").rglob(f"0/files/*/{file.name}")
        path.write_bytes(b"damage")
    app.write(("b", "2"))
    assert (app.made().base, app.content()) == (None, {b"a": b"1", b"b": b"2"})


# -- as Parquet


def test_the_content_is_there_as_parquet_with_types(app: App) -> None:
    app.topology = app._topology(kind="timestamped-key-value")
    app.write(("a", "1"), ("b", "2"))
    app.write(("c", "3"), partition=1)
    for _ in range(2):
        folder = app.compact(parquet=True).parquet["counts"]
        rows = sorted(map(tuple, app.spark.read.parquet(folder).select("partition", "key", "value").collect()))
        assert rows == [(0, "a", "1"), (0, "b", "2"), (1, "c", "3")]
    times = app.spark.read.parquet(folder).selectExpr("unix_millis(timestamp)").distinct().collect()
    assert [tuple(row) for row in times] == [(NOW_MS,)]


# -- what can't be done


def test_what_cannot_be_done_is_told_before_spark_begins(app: App) -> None:
    with pytest.raises(SourceTopicError, match="wanted nothing-like-it, there are counts"):
        app.compact(stores=["nothing-like-it"])
    for app.url, why in (("memory://x", "memory of its own"), ("http://127.0.0.1:1/x", "plain HTTP only reads")):
        with pytest.raises(ConfigError, match=why):
            app.compact()
    app.url = ""
    with pytest.raises(ConfigError, match="snapshot_url"):
        app.compact()
    app.url, app.topology = "file:///x", app._topology(logged=False)
    with pytest.raises(SourceTopicError, match="there are none"):
        app.compact()


def test_an_application_that_never_ran_has_nothing_to_make_snapshots_of(app: App) -> None:
    app.delete_changelog()
    with pytest.raises(SourceTopicError, match="has to run once"):
        app.compact()
