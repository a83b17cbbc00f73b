"""The manifests of a state directory. By them, another version, stage or topology reads the state right or refuses it.

There are two JSON files. `process`, one per application directory, has the identity of an instance. `manifest.json`,
one per task directory, describes the stores. Both files have a format version. A newer version may add fields, which
this version ignores. A version that changes the meaning of a field must raise the format version.

*Guarantees*: a manifest is written atomically. A manifest that can't be read completely is refused: the
`StateFormatError` names the file and says what to do.
*Assumes*: the directory's lock is held.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from milestones.common.errors import StateFormatError
from milestones.common.state.disk import explained, write_atomically
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import kind_of, reads_as_own, same_changelog

FORMAT = 1
"""The format version of both files."""

FOLDERS, RANGES = "folders", "ranges"
"""The layouts of an instance's stores on disk. `FOLDERS`: a folder per task and store. `RANGES`: a database per
sub-topology (from m6 on)."""

LAYOUTS: Mapping[str, int | str] = {
    FOLDERS: FORMAT,
    RANGES: "2, of stage m6: `milestones state export` of the version that wrote it gives the folders out",
}
"""The format version in the file `process`, by layout. The second one is a text, because a version that doesn't know
this layout shows it in its error."""

UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError)
"""The errors of decoding JSON, and of converting it to a class, if its content is another one than expected."""

_M = TypeVar("_M")

PROCESS_FILE = "process"
MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True)
class InstanceManifest:
    """The instance that a state directory belongs to.

    `transactional_ids`: every transactional id that the instance has used and not retired since. A transaction of an
    obsolete id may be open until a producer initialises this id.
    `static_ids`: every static id that the instance has used and that hasn't left the group since. A member with an
    obsolete static id keeps its tasks until its session ends.
    `source_ids`: Kafka's id of each source topic that isn't read from its first record on, written at the last start.
    `internal_ids`: Kafka's ids of the application's own topics, written as soon as they are known.

    Earlier versions neither read nor write `static_ids`, `source_ids` and `internal_ids`.
    """

    application_id: str
    process_id: str
    transactional_ids: frozenset[str]
    static_ids: frozenset[str] = frozenset()
    layout: str = FOLDERS
    source_ids: Mapping[str, str] = field(default_factory=dict)
    internal_ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def new(cls, application_id: str) -> InstanceManifest:
        return cls(application_id, str(uuid.uuid4()), frozenset())

    @classmethod
    def read(cls, directory: Path) -> InstanceManifest | None:
        """Read the file `process` in `directory`. Returns None if there is no such file."""
        way_out = "remove that file: the instance gets a new process id"
        return _read(directory / PROCESS_FILE, cls._of, way_out, LAYOUTS.values())

    @classmethod
    def _of(cls, written: Mapping[str, Any]) -> InstanceManifest:
        process_id = str(uuid.UUID(written["process_id"]))
        layout = next(layout for layout, version in LAYOUTS.items() if version == written["format"])
        return msgspec.convert({**written, "process_id": process_id, "layout": layout}, cls)

    def write(self, directory: Path) -> None:
        ids = {"transactional_ids": sorted(self.transactional_ids), "static_ids": sorted(self.static_ids)}
        _write(directory / PROCESS_FILE, asdict(self) | ids | {"format": LAYOUTS[self.layout]})


@dataclass(frozen=True)
class StoreManifest:
    """The format of a store's files.

    `changelog_id`: Kafka's id of the topic to which the store's offset belongs, None while the id isn't known.
    `arrangement`: the order of the store's rows, as `Kind.arrangement` describes it."""

    kind: str
    engine: str
    layout: int
    changelog_id: str | None = None
    arrangement: str = ""

    @classmethod
    def of(cls, spec: StoreSpec, engine: str, changelog_id: str | None = None) -> StoreManifest:
        kind = kind_of(spec)
        return cls(spec.kind, engine, kind.version, changelog_id, kind.arrangement(spec))


@dataclass(frozen=True)
class TaskManifest:
    """The stores of a task directory, and the stage and the ids of the instance that wrote them last."""

    application_id: str
    task: str
    stage: str
    process_id: str
    transactional_id: str | None = None
    static_id: str | None = None
    stores: Mapping[str, StoreManifest] = field(kw_only=True)

    @classmethod
    def read(cls, directory: Path) -> TaskManifest | None:
        """Read `manifest.json` in `directory`. Returns None if there is no such file."""
        way_out = f"remove {directory}: its state is restored from the changelogs"
        return _read(directory / MANIFEST_FILE, partial(msgspec.convert, type=cls), way_out)

    def write(self, directory: Path) -> None:
        _write(directory / MANIFEST_FILE, asdict(self))

    def with_changelogs(self, ids: Mapping[str, str]) -> TaskManifest:
        """Return this manifest with these changelog ids, keyed by store. Ids of stores that aren't in the manifest are
        left out."""
        known = {name: replace(self.stores[name], changelog_id=id) for name, id in ids.items() if name in self.stores}
        return replace(self, stores={**self.stores, **known})


def unreadable_stores(manifest: TaskManifest, specs: Iterable[StoreSpec], directory: Path, engine: str) -> list[str]:
    """List the stores that must be restored from their changelogs, because their files can't be read as they are.

    There are three reasons: another engine wrote the files; the rows have other keys (`arrangement`); or the files have
    headers beside the values and the topology's store has none, or the other way round.

    Raises `StateFormatError` if the changelog can't be read either, because the kind or the layout version differs, or
    if such a store has no changelog.
    """
    restored = []
    for spec in specs:
        written = manifest.stores.get(spec.name)
        if written is None:
            continue
        wanted = StoreManifest.of(spec, engine, written.changelog_id)
        if reads_as_own(spec.kind, written.kind):
            written = replace(written, kind=spec.kind)
        if written == wanted:
            continue
        store = f"store {spec.name!r} in {directory}"
        remove = f"remove {directory}, so that its state is restored from the changelogs"
        if not same_changelog(spec.kind, written.kind):
            raise StateFormatError(
                f"{store} was written as {written.kind}, and the topology says {wanted.kind} now, which can't be read "
                "from its changelog either: go back to the former kind, or give the store another name; to give its "
                f"rows up, stop all instances, delete its changelog topic, and remove {directory} on each"
            )
        if written.layout != wanted.layout:
            raise StateFormatError(
                f"{store} has layout version {written.layout}, and this version knows {wanted.layout}: run the version "
                f"that wrote it (stage {manifest.stage}), or {remove}"
            )
        if not (spec.logged or spec.source_topic):
            if written.kind != wanted.kind:
                raise StateFormatError(
                    f"{store} was written as {written.kind}, the topology says {wanted.kind} now, and it has no "
                    "changelog to restore it from: go back to the former dsl_store_format or kind, give the store "
                    f"another name, or give its rows up and remove {directory}"
                )
            if written.engine == engine:
                raise StateFormatError(
                    f"{store} has its rows in {written.arrangement}, the topology wants {wanted.arrangement} now, and "
                    "it has no changelog to restore it from: go back to the former retention and emit, give the store "
                    f"another name, or give its rows up and remove {directory}"
                )
            raise StateFormatError(
                f"{store} was written by the engine {written.engine!r}, which {engine!r} can't read, and it has no "
                f"changelog to restore it from: set rocksdb_engine={written.engine!r}, or give it up and remove "
                f"{directory}"
            )
        restored.append(spec.name)
    return restored


def _read(
    path: Path, parse: Callable[[Mapping[str, Any]], _M], way_out: str, known: Collection[int | str] = ()
) -> _M | None:
    with explained("read", path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
    try:
        written = json.loads(data)
        version = written["format"]
        if version == FORMAT or version in known:
            return parse(written)
    except UNREADABLE as error:
        raise StateFormatError(f"{path} can't be read ({type(error).__name__}: {error}); {way_out}") from error
    raise StateFormatError(
        f"{path} has format version {version!r}, and this version knows {FORMAT}: run the version that wrote it, "
        f"or {way_out}"
    )


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps({"format": FORMAT, **content}, indent=2).encode() + b"\n")
