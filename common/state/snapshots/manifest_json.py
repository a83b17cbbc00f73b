"""The JSON form of snapshot manifests, in the formats 1 to 3.

This version writes format 2. Format 3 is written if a reader of format 2 would read the files wrongly, because their
keys have a prefix, or because some of their keys have expired (`gone`). Format 1 has no deltas, and no commit number,
positions and stream times. The files of a snapshot in format 1 are in the folder of its manifest. If `made_by` is
missing, a manifest of format 3 was made by an instance, and one of another format by Spark.

*Guarantees*: texts in a manifest that become parts of a path are plain names, so that a path never leaves the folder. A
manifest of a newer format raises another error than a damaged one.
*Assumes*: nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import msgspec

from milestones.common.errors import StateFormatError
from milestones.common.records import TopicPartition
from milestones.common.state.disk import is_plain_name
from milestones.common.state.manifest import UNREADABLE
from milestones.common.state.snapshots.snapshot import INSTANCE, SPARK, Lineage, SnapshotFile, SnapshotManifest

FORMAT, PREFIXED_FORMAT = 2, 3


def encode(manifest: SnapshotManifest) -> bytes:
    """Encode the manifest in the oldest format that can express it, 2 or 3."""
    prefixed = {
        "key_prefix": manifest.key_prefix.hex(), "gone": [[part.hex() for part in span] for span in manifest.gone],
    }  # fmt: skip
    files = (replace(file, folder=file.folder or manifest.folder) for file in manifest.files)
    written: dict[str, Any] = {
        "format": PREFIXED_FORMAT if any(prefixed.values()) else FORMAT,
        **{name: getattr(manifest, name) for name in SnapshotManifest.__dataclass_fields__ if name not in prefixed},
        "positions": _by_topic(manifest.positions),
        "stream_times": _by_topic(manifest.stream_times),
        "base": None if manifest.base is None else asdict(manifest.base),
        "files": [asdict(file) for file in files],
    }
    if written["format"] == PREFIXED_FORMAT:
        written |= prefixed
    return json.dumps(written, indent=2).encode() + b"\n"


def decode(data: bytes, where: str) -> SnapshotManifest:
    """Decode the manifest in `data`. Raises `StateFormatError`, which names `where`, if this version can't read it."""
    try:
        written = json.loads(data)
        version = written.pop("format")
        if version == 1:
            return _of(_as_format_2(written))
        if version == FORMAT:
            return _of({"made_by": SPARK, **written, "key_prefix": "", "gone": []})
        if version == PREFIXED_FORMAT:
            return _of({"made_by": INSTANCE, **written})
    except UNREADABLE as error:
        raise StateFormatError(f"{where} isn't a snapshot's manifest ({type(error).__name__}: {error})") from error
    raise StateFormatError(f"{where} has format {version!r}, and this version knows 1 to {PREFIXED_FORMAT}", newer=True)


def _as_format_2(written: Mapping[str, Any]) -> dict[str, Any]:
    folder = f"{int(written['created_ms']):015d}-{int(written['offset'])}-{written['id']}"
    added: dict[str, Any] = {"generation": 0, "commit_number": None, "positions": {}, "stream_times": {}, "base": None}
    files = [{**file, "folder": folder, "deletions": 0, "key_id": None} for file in written["files"]]
    return {"made_by": SPARK, "arrangement": "", **written, **added, "files": files, "key_prefix": "", "gone": []}


def _of(written: Mapping[str, Any]) -> SnapshotManifest:
    known = {
        **_fields(SnapshotManifest, written),
        "files": [_fields(SnapshotFile, file) for file in written["files"]],
        "positions": _partitions(written["positions"]),
        "stream_times": _partitions(written["stream_times"]),
        "base": None if written["base"] is None else _fields(Lineage, written["base"]),
        "key_prefix": bytes.fromhex(written["key_prefix"]),
        "gone": [(bytes.fromhex(first), bytes.fromhex(beyond)) for first, beyond in written["gone"]],
    }
    manifest = msgspec.convert(known, SnapshotManifest)
    if not (is_plain_name(manifest.id) and is_plain_name(manifest.changelog)):
        raise ValueError("its id, or its changelog, can't be a part of its folder's name")
    if min(manifest.layout, manifest.partition, manifest.offset, manifest.created_ms, manifest.generation) < 0:
        raise ValueError("one of its numbers is negative")
    for file in manifest.files:
        folders = file.folder.split("/")
        if len(folders) > 2 or not all(map(is_plain_name, (file.name, *folders))):
            raise ValueError("a file has a name that can't be the name of a file in its folder")
    paths = [manifest.path_of(file) for file in manifest.files]
    if len(set(paths)) < len(paths):
        raise ValueError("it names a file twice")
    own = (replace(file, folder="") if file.folder == manifest.folder else file for file in manifest.files)
    return replace(manifest, files=tuple(own))


def _fields(of: type[Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the class, none of which may be missing."""
    return {name: written[name] for name in of.__dataclass_fields__}


def _by_topic(numbers: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), number in sorted(numbers.items()):
        found.setdefault(topic, {})[str(partition)] = number
    return found


def _partitions(written: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(number)
        for topic, numbers in written.items()
        for partition, number in numbers.items()
    }
