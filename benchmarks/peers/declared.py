"""Which libraries take part, with which packages, guarantees and programs, and what they don't have.

*Guarantees*: what a library lacks for a work is said, not left out.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from benchmarks.job import AT_LEAST_ONCE, GUARANTEES, Job
from benchmarks.windows import HOPPING, SESSIONS, STREAM_JOIN, SUPPRESS, TABLE_JOIN, TUMBLING

LAST = ("latency",)
"""The works with the program `last`, as far as these libraries take part."""


@dataclass(frozen=True)
class Changelog:
    """A topic's name, with the job's fields and `{store}`; the key that a record of it is about; the headers without
    which it isn't restored."""

    topic: str = "{application_id}-{store}-changelog"
    key: Callable[[bytes], bytes] = bytes
    headers: tuple[tuple[str, bytes], ...] = ()

    def of(self, job: Job, store: str) -> str:
        """The changelog of this store."""
        return self.topic.format(store=store, **asdict(job))


LOGGED = Changelog()
"""As Kafka Streams has it, and ours."""


@dataclass(frozen=True)
class Library:
    """`programs`: by work; `lacks`: why it has none for a work. `commits`: it commits offsets to Kafka. `part`: it is
    slower, and gets so many times fewer records. `promise`: what it does with its state, for people."""

    name: str
    requirements: tuple[str, ...]
    promise: str
    programs: Mapping[str, str]
    lacks: Mapping[str, str]
    guarantees: tuple[str, ...] = GUARANTEES
    changelog: Changelog | None = LOGGED
    thin: bool = False
    prefixes: tuple[str, ...] = ("{run}-",)
    commits: bool = True
    part: int = 1


def _programs(*names: str) -> dict[str, str]:
    return {**{name: name for name in names}, **dict.fromkeys(LAST, "last")}


QUIX = Library(
    "quix",
    ("quixstreams==3.28.1",),
    "both guarantees; state in RocksDB, a changelog record per key and commit",
    _programs("count", "restore", "windows-stateless", "windows-count", "windows-tumbling", "windows-table-join"),
    {
        f"windows-{HOPPING}": "its hopping windows aren't written here",
        f"windows-{SUPPRESS}": "its final windows aren't written here",
        f"windows-{SESSIONS}": "its sessions don't take back the former bounds",
        f"windows-{STREAM_JOIN}": "its interval join isn't written here",
    },
    # One record per key and commit; a key of the store begins with the record's.
    changelog=Changelog(
        "changelog__{application_id}--{input}--default",
        lambda key: key.partition(b"|")[0],
        (("__column_family__", b"default"),),
    ),
    thin=True,
    prefixes=("{run}-", "changelog__{run}-"),
    part=4,
)
BYTEWAX = Library(
    "bytewax",
    ("bytewax[kafka]==0.21.1", "orjson"),
    "at least once; snapshots of its state in SQLite at each commit interval, no changelog; it waits for each batch",
    _programs("count", "windows-stateless", "windows-count"),
    {
        f"windows-{TUMBLING}": "its windows put out their count at their end only",
        f"windows-{HOPPING}": "its windows put out their count at their end only",
        f"windows-{SUPPRESS}": "its windows at their end aren't written here",
        f"windows-{SESSIONS}": "its windows put out their count at their end only",
        f"windows-{TABLE_JOIN}": "its joins don't go by the records' times",
        f"windows-{STREAM_JOIN}": "its joins don't go by the records' times",
        "restore": "it has no changelog: its state is in SQLite",
    },
    guarantees=(AT_LEAST_ONCE,),
    changelog=None,
    commits=False,
    part=4,
)
FAUST = Library(
    "faust",
    ("faust-streaming[rocksdict]==0.15.3", "orjson"),
    "both guarantees; state in RocksDB, a changelog record per update",
    _programs("count", "restore", "windows-stateless", "windows-count", "windows-tumbling"),
    {
        f"windows-{HOPPING}": "its hopping windows aren't written here",
        f"windows-{SUPPRESS}": "it keeps no updates back",
        f"windows-{SESSIONS}": "it has no sessions",
        f"windows-{TABLE_JOIN}": "its tables' joins aren't implemented",
        f"windows-{STREAM_JOIN}": "its streams' joins aren't implemented",
    },
    part=10,
)
LIBRARIES = {library.name: library for library in (QUIX, BYTEWAX, FAUST)}
