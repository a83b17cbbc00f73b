"""The messages between the state thread and the helper process that makes snapshots.

    CheckpointJob: a file beside the checkpoint, and a line on the process's input, which has what is secret
    SnapshotResult: a line of a file per store partition, written as soon as it is known

*Guarantees*: credentials and keys of files are never written to a disk, nor are they among a process's arguments.
*Assumes*: both sides are of one installation.
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
"""Files beside a checkpoint: the job, the results, what the process has said beside them."""
WARNING: Final = "WARNING "
"""The beginning of a line of what the process has said, which is for the instance's log."""


@dataclass(frozen=True)
class PartitionJob:
    """A snapshot of one store partition. `kind`, `layout`, `arrangement`, `changelog_id`, `usable_until_ms`: as in the
    manifest. `leads`: the content is that of the task's last commit. `on`: what `keys` and `gone` have changed since;
    None: the snapshot is to be a base. `since_ms`: none is made where there is one that was made later (wall clock)."""

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
        """Of a store of the topology."""
        kind = kind_of(spec)
        return cls(task, spec.name, spec.kind, kind.version, kind.arrangement(spec), changelog, **fields)


@dataclass(frozen=True)
class CheckpointJob:
    """The snapshots that are made of one checkpoint. `directory`: has the checkpoint of the sub-topology's database,
    and is for the files of the job; `generation`: the member's; `exact`: True under exactly once: a store always
    equals its changelog up to some offset, whichever member has the task; the other fields are those of
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
        """Write it into the directory, without what is secret, and return that, and the place, as a line. `OSError`."""
        stores = tuple(replace(one, keys=frozenset()) for one in self.stores)
        with (self.directory / JOB).open("wb") as file:
            pickle.dump(replace(self, stores=stores, url="", options={}, encryption_key=None), file)
            for one in self.stores:  # in parts: each of them holds the interpreter's lock
                keys = iter(one.keys)
                while part := list(islice(keys, PART_KEYS)):
                    pickle.dump(part, file)
                pickle.dump([], file)
        secret = [str(self.directory), self.url, dict(self.options), self.encryption_key]
        return json.dumps(secret).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> CheckpointJob:
        """The job that was written."""
        directory, url, options, encryption_key = json.loads(line)
        with (Path(directory) / JOB).open("rb") as file:  # of the process that began this one
            job: CheckpointJob = pickle.load(file)
            stores = tuple(replace(one, keys=frozenset(_keys(file))) for one in job.stores)
        return replace(job, stores=stores, url=url, options=options, encryption_key=encryption_key)


def _keys(file: IO[bytes]) -> Iterator[bytes]:
    """Those of one store."""
    while part := pickle.load(file):
        yield from part


@dataclass(frozen=True)
class SnapshotResult:
    """What became of one store partition: the manifest of its new snapshot, or why there is none; `wrong`: that is
    worth a warning; `there`: the manifest of one that makes a new one needless."""

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
    """Those that were written, as far as they are whole."""
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
"""How much less the processor is the helper's than others'."""

PART_KEYS: Final = 10_000
"""The keys that are written down at once: a millisecond."""
