"""What a snapshot's manifest says, and which snapshots are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from milestones.common.errors import StateFormatError
from milestones.common.records import TopicPartition
from milestones.common.state.snapshots.manifest_json import decode, encode
from milestones.common.state.snapshots.snapshot import INSTANCE, SPARK, Lineage, SnapshotFile, SnapshotManifest
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import kind_of

MANIFEST = SnapshotManifest(
    id="a1", application_id="app", store="counts", kind="key-value", layout=1, changelog="app-counts-changelog",
    changelog_id="topic-1", partition=3, offset=100, created_ms=1_000, usable_until_ms=2_000,
    files=(SnapshotFile("00000.sst", 10, 2, "ab"), SnapshotFile("00001.sst", 5, 1, "cd")), made_by=SPARK,
)  # fmt: skip


INPUT = TopicPartition("in", 3)
FULL = replace(
    MANIFEST, generation=7, commit_number=41, positions={INPUT: 12, TopicPartition("other", 3): 0},
    stream_times={INPUT: 1_700_000}, arrangement="segments", base=Lineage("b0", ("d1", "d2")),
    files=(
        SnapshotFile("00000.sst", 10, 2, "ab", "files/b0", key_id="old"),
        SnapshotFile("00000.sst", 10, 2, "ab", "files/d1", 5),
        SnapshotFile("00000.sst", 10, 2, "ab", deletions=4, key_id="new"),
    ),
)  # fmt: skip
"""A delta with all that a manifest can say."""

PREFIXED = replace(
    MANIFEST, key_prefix=b"\0\0\0\3", gone=((b"", b"\0\7"), (b"\xff", b"\xff\7")), made_by=INSTANCE,
)  # fmt: skip
"""Of files that are linked into a range."""


def changed(of: SnapshotManifest = MANIFEST, **fields: Any) -> bytes:
    return json.dumps(json.loads(encode(of)) | fields).encode()


def unsigned(of: SnapshotManifest) -> bytes:
    """As versions wrote it that named no maker."""
    written = json.loads(encode(of))
    del written["made_by"]
    return json.dumps(written).encode()


def format_1(**fields: Any) -> bytes:
    """As the first version wrote it."""
    written = {
        "format": 1, "id": "a1", "application_id": "app", "store": "counts", "kind": "key-value", "layout": 1,
        "changelog": "app-counts-changelog", "changelog_id": "topic-1", "partition": 3, "offset": 100,
        "created_ms": 1_000, "usable_until_ms": 2_000, "arrangement": "",
        "files": [{"name": "00000.sst", "bytes": 10, "entries": 2, "sha256": "ab"}],
    }  # fmt: skip
    return json.dumps(written | fields).encode()


# -- what is written


@pytest.mark.parametrize(
    "manifest",
    [
        MANIFEST, FULL, PREFIXED, replace(PREFIXED, made_by=SPARK), replace(MANIFEST, made_by="another's"),
        replace(MANIFEST, changelog_id=None, usable_until_ms=None, files=()),
    ],
)  # fmt: skip
def test_a_manifest_comes_back_as_it_was_written(manifest: SnapshotManifest) -> None:
    assert decode(encode(manifest), "here") == manifest
    assert (MANIFEST.entries, MANIFEST.size) == (3, 15)


def test_a_manifest_of_the_first_format_is_read_and_its_files_lie_beside_it() -> None:
    for data in (format_1(), format_1(arrangement="segments")):
        manifest = decode(data, "here")
        assert (manifest.offset, manifest.generation, manifest.base, manifest.positions) == (100, 0, None, {})
        assert [manifest.path_of(file) for file in manifest.files] == ["000000000001000-100-a1/00000.sst"]
        assert decode(encode(manifest), "here") == manifest


def test_only_a_snapshot_that_an_earlier_reader_would_take_wrongly_has_the_format_that_it_refuses() -> None:
    formats = {2: MANIFEST, 3: PREFIXED}
    for number in (2, 3):
        assert json.loads(encode(formats[number]))["format"] == number
    assert json.loads(encode(replace(PREFIXED, key_prefix=b"")))["format"] == 3
    assert "key_prefix" not in json.loads(encode(FULL))


@pytest.mark.parametrize("manifest", [MANIFEST, FULL, PREFIXED])
def test_where_no_maker_is_named_an_instance_has_made_what_has_a_prefix_and_spark_the_rest(
    manifest: SnapshotManifest,
) -> None:
    assert decode(unsigned(manifest), "here") == manifest
    assert manifest.by_member is (manifest is PREFIXED)
    assert decode(format_1(), "here").made_by == SPARK


def test_who_made_it_is_no_reason_for_an_earlier_reader_to_refuse_it() -> None:
    for manifest, number in ((MANIFEST, 2), (PREFIXED, 3)):
        for maker in (INSTANCE, SPARK):
            assert json.loads(encode(replace(manifest, made_by=maker)))["format"] == number
    assert [replace(PREFIXED, made_by=maker).by_member for maker in (INSTANCE, SPARK, "another's")] == [
        True, False, False,
    ]  # fmt: skip


def test_what_is_gone_of_a_store_stays_gone_with_further_deltas() -> None:
    first = replace(MANIFEST, gone=((b"", b"\5"), (b"x", b"y")))
    built = first.with_delta(replace(MANIFEST, id="d1", gone=((b"", b"\7"),)))
    assert built.gone == ((b"", b"\7"), (b"x", b"y"))
    assert built.with_delta(replace(MANIFEST, id="d2")).gone == built.gone


def test_what_a_newer_version_adds_is_passed_over() -> None:
    assert decode(changed(horizon=7), "here") == MANIFEST


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"null", b'{"format": 1}', b'{"format": 2}', b'{"offset": 1}'])
def test_what_is_no_manifest_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(StateFormatError, match="here isn't a snapshot's manifest"):
        decode(data, "here")


FIELDS = [("", name) for name in SnapshotManifest.__dataclass_fields__ if name != "made_by"]
FIELDS += [("files", name) for name in SnapshotFile.__dataclass_fields__] + [("base", "base"), ("base", "deltas")]


@pytest.mark.parametrize(("part", "missing"), FIELDS)
def test_a_manifest_in_which_a_field_is_missing_is_refused(part: str, missing: str) -> None:
    written = json.loads(encode(replace(PREFIXED, base=Lineage("b0"))))
    of = written[part][0] if part == "files" else written[part] if part else written
    del of[missing]
    with pytest.raises(StateFormatError, match=f"here isn't a snapshot's manifest .*{missing}"):
        decode(json.dumps(written).encode(), "here")


def test_another_format_is_refused_by_its_number() -> None:
    with pytest.raises(StateFormatError, match="here has format 4, and this version knows 1 to 3") as raised:
        decode(changed(format=4), "here")
    assert raised.value.newer


STRAY = {"bytes": 1, "entries": 1, "sha256": "", "folder": "files/x", "deletions": 0, "key_id": None}
NO_FOLDERS = ("../../etc", "..", "", "/etc", "a/b/c", "files/..", "files//x", 7, None)


@pytest.mark.parametrize("change", [
    *({"files": [{**STRAY, "name": name}]} for name in ("../../etc/passwd", "", "a/b", 7, None)),
    *({"files": [{**STRAY, "name": "x", "folder": folder}]} for folder in NO_FOLDERS),
    {"files": [{**STRAY, "name": "x"}] * 2},
    *({field: value} for field in ("id", "changelog") for value in ("../../else", "..", "", "a/b", 7, None, ["a"])),
    *({field: 7} for field in ("application_id", "store", "kind", "changelog_id", "made_by")),
    *({field: -1} for field in ("partition", "offset", "generation", "created_ms")),
], ids=str)  # fmt: skip
def test_what_cannot_be_part_of_a_folders_name_and_what_is_no_text_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StateFormatError):
        decode(changed(**change), "here")


@pytest.mark.parametrize("id", ["../../else", "a/b", "..", 7, None])
def test_the_first_formats_names_are_no_way_out_of_the_folder_either(id: Any) -> None:
    with pytest.raises(StateFormatError):
        decode(format_1(id=id), "here")


# -- names, bases and deltas


def test_names_rise_with_the_generation_then_with_the_offset_then_with_the_time() -> None:
    rising = [
        replace(MANIFEST, generation=generation, offset=offset, created_ms=created_ms)
        for generation, offset, created_ms in (
            (0, 99, 5), (0, 1_000, 1), (0, 1_000, 10), (9, 5, 0), (10, 4, 0), (10, 10**18, 0), (2**31 - 1, 0, 0),
        )
    ]  # fmt: skip
    assert sorted(rising, key=lambda one: one.name) == rising == sorted(rising, key=lambda one: one.rank)


def delta(id: str, size: int) -> SnapshotManifest:
    return replace(MANIFEST, id=id, files=(SnapshotFile("00000.sst", size, 1, "ab", deletions=1),))


def test_a_delta_names_all_files_that_a_reader_needs_in_the_order_in_which_they_are_taken_in() -> None:
    base = replace(MANIFEST, id="b0", files=(SnapshotFile("00000.sst", 1_000, 9, "ab"),))
    first = base.with_delta(delta("d1", 10))
    second = first.with_delta(delta("d2", 20))
    assert (base.base, first.base, second.base) == (None, Lineage("b0"), Lineage("b0", ("d1",)))
    paths = [second.path_of(file) for file in second.files]
    assert paths == ["files/b0/00000.sst", "files/d1/00000.sst", "files/d2/00000.sst"]
    assert (base.deltas, first.deltas, second.deltas) == (0, 1, 2)
    assert (second.size, second.base_bytes(), base.base_bytes()) == (1_030, 1_000, 1_000)
    assert decode(encode(second), "here") == second


def test_a_snapshot_of_the_first_format_can_be_built_on() -> None:
    old = decode(format_1(), "here")
    built = old.with_delta(delta("d1", 1))
    paths = [built.path_of(file) for file in built.files]
    assert paths == ["000000000001000-100-a1/00000.sst", "files/d1/00000.sst"]


def test_eight_deltas_are_put_on_a_base_and_fewer_when_they_come_to_half_of_it() -> None:
    newest = base = replace(MANIFEST, id="b0", files=(SnapshotFile("00000.sst", 1_000, 9, "ab"),))
    for number in range(8):
        assert newest.takes_delta(10)
        newest = newest.with_delta(delta(f"d{number}", 10))
    assert not newest.takes_delta(10)
    assert (base.takes_delta(499), base.takes_delta(500)) == (True, False)
    grown = base.with_delta(delta("d", 300))
    assert (grown.takes_delta(199), grown.takes_delta(200)) == (True, False)


# -- which ones are refused


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
    found = decode(encode(own), "here")
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
