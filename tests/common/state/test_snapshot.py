"""What a snapshot's manifest says, and which snapshots are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from milestones.common.errors import StateFormatError
from milestones.common.records import TopicPartition
from milestones.common.state.snapshots.snapshot import SnapshotFile, SnapshotManifest
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import kind_of

MANIFEST = SnapshotManifest(
    id="a1", application_id="app", store="counts", kind="key-value", layout=1, changelog="app-counts-changelog",
    changelog_id="topic-1", partition=3, offset=100, created_ms=1_000, usable_until_ms=2_000,
    files=(SnapshotFile("00000.sst", 10, 2, "ab"), SnapshotFile("00001.sst", 5, 1, "cd")),
)  # fmt: skip


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(MANIFEST.encode()) | fields).encode()


def test_a_manifest_comes_back_as_it_was_written() -> None:
    for manifest in (MANIFEST, replace(MANIFEST, changelog_id=None, usable_until_ms=None, files=())):
        assert SnapshotManifest.decode(manifest.encode(), "here") == manifest
    assert (MANIFEST.entries, MANIFEST.size) == (3, 15)


def test_what_a_newer_version_adds_is_passed_over() -> None:
    assert SnapshotManifest.decode(changed(stream_time=7), "here") == MANIFEST


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"null", b'{"format": 1}', b'{"offset": 1}'])
def test_what_is_no_manifest_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(StateFormatError, match="here isn't a snapshot's manifest"):
        SnapshotManifest.decode(data, "here")


def test_another_format_is_refused_by_its_number() -> None:
    with pytest.raises(StateFormatError, match="format 2"):
        SnapshotManifest.decode(changed(format=2), "here")


STRAY = {"bytes": 1, "entries": 1, "sha256": ""}


@pytest.mark.parametrize("change", [
    *({"files": [{"name": name, **STRAY}]} for name in ("../../etc/passwd", "", "a/b")),
    *({field: value} for field in ("id", "changelog") for value in ("../../else", "..", "", "a/b", 7, None, ["a"])),
    *({field: 7} for field in ("application_id", "store", "kind", "changelog_id")),
], ids=str)  # fmt: skip
def test_what_cannot_be_part_of_a_folders_name_and_what_is_no_text_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StateFormatError):
        SnapshotManifest.decode(changed(**change), "here")


@pytest.mark.parametrize(
    ("change", "own"),
    [
        ({}, True),
        ({"application_id": "other"}, False),
        ({"store": "sums"}, False),
        ({"changelog": "app-sums-changelog"}, False),
        ({"partition": 0}, False),
        ({"changelog_id": None, "offset": 7, "id": "b2"}, True),
    ],
)
def test_a_snapshot_is_of_one_store_partition_of_one_application(change: dict[str, Any], own: bool) -> None:
    found = replace(MANIFEST, **change)
    assert (found.foreign("app", "counts", TopicPartition("app-counts-changelog", 3)) is None) is own


@pytest.mark.parametrize(
    ("change", "now_ms", "why"),
    [
        ({}, 2_000, None),
        ({}, 2_001, "too old"),
        ({"usable_until_ms": None}, 10**15, None),
        ({"kind": "timestamped-key-value"}, 0, "timestamped-key-value"),
        ({"layout": 2}, 0, "layout 2"),
    ],
)
def test_a_store_begins_with_snapshots_of_its_kind_that_are_young_enough(
    change: dict[str, Any], now_ms: int, why: str | None
) -> None:
    found = replace(MANIFEST, **change).unfit(StoreSpec("store"), now_ms)
    assert found is None if why is None else found is not None and why in found


def test_a_store_with_headers_begins_with_a_snapshot_without_them_but_not_the_other_way_round() -> None:
    plain, with_headers = StoreSpec("store", "timestamped-key-value"), "timestamped-key-value-with-headers"
    assert replace(MANIFEST, kind=plain.kind).unfit(replace(plain, kind=with_headers), 0) is None
    assert with_headers in (replace(MANIFEST, kind=with_headers).unfit(plain, 0) or "")
    sessions = StoreSpec("store", "session-with-headers", retention_ms=300_000)
    assert "session store" in (replace(MANIFEST, kind="session").unfit(sessions, 0) or "")


def test_a_store_of_windows_begins_with_snapshots_of_its_own_segments() -> None:
    spec = StoreSpec("store", "window", retention_ms=300_000)
    own = replace(MANIFEST, kind="window", arrangement=kind_of(spec).arrangement(spec))
    found = SnapshotManifest.decode(own.encode(), "here")
    assert found.unfit(spec, 0) is None
    assert "retention" in (found.unfit(replace(spec, retention_ms=900_000), 0) or "")
    assert "emit" in (found.unfit(replace(spec, closing=True), 0) or "")


@pytest.mark.parametrize(
    ("topic", "first", "end", "fits"),
    [
        ("topic-1", 0, 100, True),
        ("topic-1", 100, 100, True),
        (None, 0, 500, True),
        ("topic-2", 0, 500, False),
        ("topic-1", 101, 500, False),
        ("topic-1", 0, 99, False),
    ],
)
def test_a_changelog_goes_on_after_its_own_snapshots_only(topic: str | None, first: int, end: int, fits: bool) -> None:
    assert (MANIFEST.misplaced(topic, first, end) is None) is fits
