"""A store's content as Parquet files: without Kafka and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from milestones.common import serdes
from milestones.common.records import TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.pipeline.snapshots.parquet import write_parquet

SPEC = StoreSpec("counts", key_serde=serdes.STRING, value_serde=serdes.STRING)
CHANGELOG = TopicPartition("app-counts-changelog", 0)
ENTRIES = [(b"a", b"1"), (b"b", b"2")]


class KilledError(Exception):
    """An attempt that doesn't come to its end."""


def content(folder: Path) -> list[dict[str, str]]:
    """What a reader finds, who passes hidden files over."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [row for path in files for row in pq.read_table(path, columns=["key", "value"]).to_pylist()]


WHOLE = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]


def test_an_attempt_that_dies_beside_one_that_is_done_leaves_its_file_whole(tmp_path: Path) -> None:
    def killed() -> Iterator[tuple[bytes, bytes]]:
        yield ENTRIES[0]
        write_parquet(SPEC, CHANGELOG, iter(ENTRIES), tmp_path.as_uri())
        raise KilledError

    with pytest.raises(KilledError):
        write_parquet(SPEC, CHANGELOG, killed(), tmp_path.as_uri())
    assert content(tmp_path) == WHOLE


def test_a_second_attempt_that_is_done_later_changes_nothing_and_meanwhile_hides_nothing(tmp_path: Path) -> None:
    write_parquet(SPEC, CHANGELOG, iter(ENTRIES), tmp_path.as_uri())

    def second() -> Iterator[tuple[bytes, bytes]]:
        assert content(tmp_path) == WHOLE
        yield from ENTRIES
        assert content(tmp_path) == WHOLE

    write_parquet(SPEC, CHANGELOG, second(), tmp_path.as_uri())
    assert content(tmp_path) == WHOLE


def test_what_is_half_done_is_not_there(tmp_path: Path) -> None:
    def killed() -> Iterator[tuple[bytes, bytes]]:
        yield ENTRIES[0]
        raise KilledError

    with pytest.raises(KilledError):
        write_parquet(SPEC, CHANGELOG, killed(), tmp_path.as_uri())
    assert list(tmp_path.rglob("*.parquet")) == []
