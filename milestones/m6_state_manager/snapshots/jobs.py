"""The messages between the state thread and the helper process that makes snapshots.

    CheckpointJob: a file next to the checkpoint; its secrets come in a line on the process's input
    SnapshotResult: a line of a file, one per store partition, written as soon as the result is known

*Guarantees*: credentials and encryption keys are never written to a disk, and are no arguments of a process.
*Assumes*: both processes run the same installation.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

from milestones.common.errors import StateFormatError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.engine import Span
from milestones.common.state.snapshots.manifest_json import decode, encode
from milestones.common.state.snapshots.snapshot import SnapshotManifest
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import kind_of

JOB, RESULTS, TROUBLE = "job", "results", "trouble"
"""Files next to a checkpoint: the job, the results, and the standard error output of the helper process."""
WARNING: Final = "WARNING "
"""The beginning of a line of the helper's output that the instance logs."""


@dataclass(frozen=True)
class PartitionJob:
    """The job to make a snapshot of one store partition. `kind`, `layout`, `arrangement`, `changelog_id` and
    `usable_until_ms` are for the manifest. `leads`: True if the content is that of the task's last commit. `keys` and
    `gone` have changed since the snapshot `on`; if `on` is None, the new snapshot is a base. `since_ms`: no snapshot is
    made if another one was made after this time (wall clock)."""

    task: TaskId
    store: str
    kind: str
    layout: int
    arrangement: str
    changelog: TopicPartition
    changelog_id: str | None
    usable_until_ms: int | None
    leads: bool
    since_ms: int | None = None
    on: SnapshotManifest | None = None
    keys: Set[bytes] = frozenset()
    gone: tuple[Span, ...] = ()

    @property
    def place(self) -> tuple[TaskId, str]:
        return self.task, self.store

    @classmethod
    def of(cls, task: TaskId, spec: StoreSpec, changelog: TopicPartition, **fields: Any) -> PartitionJob:
        """Make the job for a store of the topology."""
        kind = kind_of(spec)
        return cls(task, spec.name, spec.kind, kind.version, kind.arrangement(spec), changelog, **fields)


@dataclass(frozen=True)
class CheckpointJob:
    """The job to make snapshots from one checkpoint. `directory` has the checkpoint of the sub-topology's database, and
    the files of the job. `generation`: the member's. `exact`: True under `exactly_once_v2`: then a store always equals
    its changelog up to some offset, whichever member has the task. The other fields are those of
    `SnapshotRepository`."""

    directory: Path
    subtopology: int
    application_id: str
    generation: int
    created_ms: int
    stores: tuple[PartitionJob, ...]
    url: str = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    encryption_key: str | None = field(default=None, repr=False)
    timeout_ms: int = 30_000
    exact: bool = False

    def write(self) -> bytes:
        """Write the job into the directory without its secrets. Returns a line with the secrets and the directory.
        Raises `OSError`."""
        stores = tuple(replace(one, keys=frozenset()) for one in self.stores)
        with (self.directory / JOB).open("wb") as file:
            pickle.dump(replace(self, stores=stores, url="", options={}, encryption_key=None), file)
            for one in self.stores:  # in parts, as each `dump` holds Python's lock
                keys = iter(one.keys)
                while part := list(islice(keys, PART_KEYS)):
                    pickle.dump(part, file)
                pickle.dump([], file)
        secret = [str(self.directory), self.url, dict(self.options), self.encryption_key]
        return json.dumps(secret).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> CheckpointJob:
        """Read the job that `write` has written. `line`: what `write` returned."""
        directory, url, options, encryption_key = json.loads(line)
        with (Path(directory) / JOB).open("rb") as file:  # trusted: the parent process has written the file
            job: CheckpointJob = pickle.load(file)
            stores = tuple(replace(one, keys=frozenset(_keys(file))) for one in job.stores)
        return replace(job, stores=stores, url=url, options=options, encryption_key=encryption_key)


def _keys(file: IO[bytes]) -> Iterator[bytes]:
    """Read the keys of one store."""
    while part := pickle.load(file):
        yield from part


@dataclass(frozen=True)
class SnapshotResult:
    """What became of one store partition: the manifest of its new snapshot, or `why` there is none. `wrong`: True if
    this is worth a warning. `there`: the manifest of a snapshot that makes a new one needless."""

    task: TaskId
    store: str
    manifest: SnapshotManifest | None
    why: str = ""
    wrong: bool = False
    there: SnapshotManifest | None = None

    def line(self) -> bytes:
        manifests = [None if one is None else encode(one).decode() for one in (self.manifest, self.there)]
        return json.dumps([str(self.task), self.store, *manifests, self.why, self.wrong]).encode() + b"\n"


def results(directory: Path) -> Iterator[SnapshotResult]:
    """Read the results that are written whole."""
    try:
        lines = (directory / RESULTS).read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            task, store, *written, why, wrong = json.loads(line)
            made, there = (None if one is None else decode(one.encode(), "the result") for one in written)
        except (ValueError, StateFormatError):
            return
        yield SnapshotResult(TaskId.parse(task), store, made, why, wrong, there)


NICE: Final = 10
"""How much the helper's priority is lowered, as in `nice`."""

PART_KEYS: Final = 10_000
"""The keys that are written in one go, which takes about a millisecond."""
