"""What is written about a directory is read back, or refused with the way out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milestones.common.errors import StateFormatError
from milestones.common.state.manifest import (
    LAYOUTS,
    InstanceManifest,
    StoreManifest,
    TaskManifest,
    unreadable_stores,
)
from milestones.common.state.spec import StoreKind, StoreSpec

SPEC = StoreSpec("counts")


def manifest(**stores: StoreManifest) -> TaskManifest:
    return TaskManifest("words", "0_1", "baseline", "process", "words-1", None, stores=stores)


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert TaskManifest.read(tmp_path) is None
    written = manifest(counts=StoreManifest.of(SPEC, "rocksdict"))
    written.write(tmp_path)
    assert TaskManifest.read(tmp_path) == written
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_instance_is_read_as_it_was_written(tmp_path: Path, layout: str) -> None:
    assert InstanceManifest.read(tmp_path) is None
    process_id = InstanceManifest.new("words").process_id
    written = InstanceManifest("words", process_id, frozenset({"a", "b"}), frozenset({"one-1", "one-2"}), layout)
    written.write(tmp_path)
    assert InstanceManifest.read(tmp_path) == written


def test_an_instance_of_a_version_that_kept_no_static_ids_has_none(tmp_path: Path) -> None:
    written = InstanceManifest.new("words")
    written.write(tmp_path)
    fields = json.loads((tmp_path / "process").read_text())
    del fields["static_ids"]
    (tmp_path / "process").write_text(json.dumps(fields))
    assert InstanceManifest.read(tmp_path) == written


def test_fields_that_a_newer_version_added_are_ignored(tmp_path: Path) -> None:
    written = manifest(counts=StoreManifest.of(SPEC, "rocksdict"))
    written.write(tmp_path)
    change(tmp_path / "manifest.json", snapshot="s3://somewhere")
    assert TaskManifest.read(tmp_path) == written


def test_an_unknown_format_is_refused_with_its_version_and_the_way_out(tmp_path: Path) -> None:
    manifest().write(tmp_path)
    change(tmp_path / "manifest.json", format=2)
    with pytest.raises(StateFormatError, match=rf"{tmp_path}.*version 2.*knows 1.*remove"):
        TaskManifest.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"format": 1}', b"\xff\xfe", b"null", b"1",
     b'{"format": 1, "application_id": 1, "task": "0_1", "stage": "m1", "process_id": "p", "stores": {}}',
     b'{"format": 1, "application_id": "a", "task": "0_1", "stage": "m1", "process_id": "p", "stores": {"s": {}}}',
     b'{"format": 1, "application_id": "a", "task": "0_1", "stage": "m1", "process_id": "p", "stores": []}',
     b'{"format": 1, "application_id": "a", "task": "0_1", "stage": "m1", "process_id": "p"}'],
)  # fmt: skip
def test_an_unreadable_manifest_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(StateFormatError, match=r"manifest\.json.*remove"):
        TaskManifest.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"{", b'{"format": 1, "application_id": "a", "process_id": "no uuid", "transactional_ids": []}',
     b'{"format": 1, "application_id": "a", "process_id": "6f1f2f0e-7a4c-4d0e-9b61-0d3a3d1f7f10"}'],
)  # fmt: skip
def test_an_unreadable_identity_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "process").write_bytes(content)
    with pytest.raises(StateFormatError, match=r"process.*remove that file"):
        InstanceManifest.read(tmp_path)


def test_stores_that_are_as_written_new_or_gone_are_all_readable(tmp_path: Path) -> None:
    known = StoreManifest.of(SPEC, "rocksdict", "obhTq6PlRMu5u8bLARRRYQ")  # the id of its changelog
    written = manifest(counts=StoreManifest.of(SPEC, "rocksdict"), known=known, gone=StoreManifest("old-kind", "x", 9))
    assert unreadable_stores(written, [SPEC, StoreSpec("known"), StoreSpec("new")], tmp_path, "rocksdict") == []


def test_changelog_ids_are_kept_by_store_and_read_again(tmp_path: Path) -> None:
    before = manifest(counts=StoreManifest.of(SPEC, "rocksdict"), sums=StoreManifest.of(SPEC, "rocksdict", "old"))
    before.with_changelogs({"counts": "new", "in-memory": "other"}).write(tmp_path)
    after = TaskManifest.read(tmp_path)
    assert {name: store.changelog_id for name, store in after.stores.items()} == {"counts": "new", "sums": "old"}


def test_a_manifest_that_knows_no_changelog_ids_is_accepted(tmp_path: Path) -> None:
    manifest().write(tmp_path)
    change(tmp_path / "manifest.json", stores={"counts": {"kind": "key-value", "engine": "rocksdict", "layout": 1}})
    assert TaskManifest.read(tmp_path) == manifest(counts=StoreManifest.of(SPEC, "rocksdict"))


def test_a_changed_store_kind_is_refused_with_the_way_out(tmp_path: Path) -> None:
    written = manifest(counts=StoreManifest.of(SPEC, "rocksdict"))
    changed = StoreSpec("counts", "timestamped-key-value")
    ways_out = "go back to the former kind, or give the store another name; .* delete its changelog topic, and remove"
    with pytest.raises(StateFormatError, match=f"'counts'.* key-value, .* timestamped-key-value now.*{ways_out}"):
        unreadable_stores(written, [changed], tmp_path, "rocksdict")


def test_an_unknown_layout_is_refused_with_the_stage_that_wrote_it(tmp_path: Path) -> None:
    written = manifest(counts=StoreManifest("key-value", "rocksdict", 2))
    with pytest.raises(StateFormatError, match=r"layout version 2.*stage baseline"):
        unreadable_stores(written, [SPEC], tmp_path, "rocksdict")


def test_files_of_another_engine_are_restored_where_a_changelog_has_them(tmp_path: Path) -> None:
    written = manifest(counts=StoreManifest.of(SPEC, "rocksdict"))
    assert unreadable_stores(written, [SPEC], tmp_path, "rocksdb") == ["counts"]
    sourced = StoreSpec("counts", logged=False, source_topic="words")
    assert unreadable_stores(written, [sourced], tmp_path, "rocksdb") == ["counts"]
    with pytest.raises(StateFormatError, match=r"no changelog.*rocksdb_engine='rocksdict'"):
        unreadable_stores(written, [StoreSpec("counts", logged=False)], tmp_path, "rocksdb")


@pytest.mark.parametrize("change", [{"retention_ms": 900_000}, {"closing": True}])
@pytest.mark.parametrize("kind", ["window", "timestamped-window", "session"])
def test_windows_of_another_retention_or_emit_are_restored_where_a_changelog_has_them(
    tmp_path: Path, kind: StoreKind, change: dict[str, Any]
) -> None:
    """The rows are there, under keys that the store doesn't ask for."""
    spec = StoreSpec("counts", kind, retention_ms=300_000)
    manifest(counts=StoreManifest.of(spec, "rocksdict")).write(tmp_path)
    written = TaskManifest.read(tmp_path)
    assert unreadable_stores(written, [spec], tmp_path, "rocksdict") == []
    changed = replace(spec, **change)
    assert unreadable_stores(written, [changed], tmp_path, "rocksdict") == ["counts"]
    with pytest.raises(StateFormatError, match=r"segments of 150000 ms.*no changelog.*former retention"):
        unreadable_stores(written, [replace(changed, logged=False)], tmp_path, "rocksdict")
