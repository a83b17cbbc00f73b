"""Restore a store from a snapshot, and by replay of its changelog: 16-byte keys, 100-byte values, four partitions.

Seconds are from the assignment of the tasks to the last partition's end: finding the snapshot, bringing it, checking
it, taking it in and reading the rest are all in it.

*Guarantees*: a run counts only when the stores have the same content, byte by byte, as after the first replay.
*Assumes*: runs one after the other, each a new process with an empty disk.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.cluster import COMPACTED, FOREVER, Cluster
from benchmarks.errors import BenchmarkError
from benchmarks.process import Measured
from benchmarks.report import columns
from benchmarks.restore.work import rows, told
from benchmarks.snapshot import ASSIGNED, ENDED, STORE
from benchmarks.snapshot.app import topology
from milestones import StreamsConfig
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.flags import parse_milestones
from milestones.m6_state_manager.reading import on_disk

PARTITIONS = 4
APPLICATION = "snapshot"
TIMEOUT_S = 300.0
REPLAY, FILE, HTTP = "replay", "snapshot, file://", "snapshot, http:// on loopback"


@dataclass(frozen=True)
class Restored:
    """One run. `records`: of the changelog that were read."""

    stage: str
    way: str
    seconds: float
    records: int


@dataclass(frozen=True)
class Compaction:
    """What Spark did; `seconds` without the start of its session."""

    what: str
    seconds: float
    records: int
    entries: int
    megabytes: float


class Snapshot:
    """The work. `tail`: share of the records that come after the snapshot. `stages`: that restore."""

    def __init__(
        self, cluster: Cluster, directory: Path, records: int, tail: float, seed: int, stages: Sequence[str]
    ) -> None:
        self._cluster, self._directory, self._records = cluster, directory, records
        self._tail, self._seed, self._runs = int(records * tail), seed, 0
        self._expected: str | None = None
        self.stages, self._url = stages, f"file://{directory}/snapshots"

    def url(self, stage: str) -> str:
        """Of the snapshots that are made for the stage."""
        return f"{self._url}/{kept(stage)}"

    def prepare(self, log: Callable[[str], None]) -> list[Compaction]:
        """Fill the changelog, make its snapshots on Spark, as the stages keep keys, fill the rest."""
        changelog = f"{APPLICATION}-{STORE}-changelog"
        self._cluster.create(f"{APPLICATION}-input", PARTITIONS, FOREVER)
        self._cluster.create(changelog, PARTITIONS, COMPACTED)
        self._cluster.fill(rows(changelog, self._records, self._seed))
        log(f"{self._records:,} records in the changelog")
        made = self._compact({kept(stage): stage for stage in self.stages})
        self._cluster.fill(rows(changelog, max(1, self._tail), self._seed + 1))
        return made

    def _compact(self, stages: Mapping[str, str]) -> list[Compaction]:
        from milestones.pipeline import spark_session
        from milestones.pipeline.snapshots import compact_changelog

        config = StreamsConfig(
            application_id=APPLICATION, bootstrap_servers=self._cluster.bootstrap_servers,
            processing_guarantee="exactly_once_v2",
        )  # fmt: skip
        found = []
        with spark_session("snapshots") as spark:
            spark.range(1).count()
            for way, stage in stages.items():
                run = compact_changelog(topology(APPLICATION), spark, self.url(stage), config=config, milestones=stage)
                megabytes = sum(made.manifest.size for made in run.snapshots) / 1e6
                what = f"the changelog into snapshots for {way}"
                found.append(Compaction(what, run.seconds, run.records, run.entries, megabytes))
        return found

    def settings(self, directory: Path, stage: str, url: str | None, **others: str) -> Path:
        """The file of an instance's settings, whose state is in `directory`."""
        settings = {
            "application_id": APPLICATION, "bootstrap_servers": self._cluster.bootstrap_servers, "milestones": stage,
            "processing_guarantee": "exactly_once_v2", "state_dir": str(directory),
            **({} if url is None else {"snapshot_url": url}), **others,
        }  # fmt: skip
        file = directory.with_suffix(".toml")
        file.write_text("".join(f'{name} = "{value}"\n' for name, value in settings.items()), encoding="utf-8")
        return file

    def restore(self, stage: str, way: str, url: str | None) -> Restored:
        """One run on an empty disk."""
        self._runs += 1
        directory = self._directory / f"run-{self._runs}"
        directory.mkdir()
        file, log_file = self.settings(directory, stage, url), directory.with_suffix(".log")
        with Measured([sys.executable, "-m", "benchmarks.snapshot.app", str(file)], log_file) as process:
            process.wait(lambda: len(told(log_file, ENDED)) >= PARTITIONS, TIMEOUT_S)
            process.stop()
        ((assigned, _), *_), ended = told(log_file, ASSIGNED), told(log_file, ENDED)
        content = _content(directory / APPLICATION)
        if self._expected is None:
            self._expected = content
        if content != self._expected:
            raise BenchmarkError(f"{stage}, {way}: the stores have another content than after a replay; see {log_file}")
        seconds = (max(at for at, _ in ended) - assigned) / 1000
        return Restored(stage, way, seconds, sum(count for _, count in ended))


def kept(stage: str) -> str:
    """How the stage keeps stores: the folder of the snapshots that are made for it."""
    return "ranges" if "state_manager" in parse_milestones(stage) else "folders"


def measure(work: Snapshot, rounds: int, seed: int, served: str, log: Callable[[str], None]) -> list[Restored]:
    """All runs, in an order by seed; the first one is a replay. `served`: all snapshots, over HTTP."""
    found: list[Restored] = []
    rng = random.Random(seed)
    for number in range(rounds):
        order = [(stage, way) for stage in work.stages for way in (REPLAY, FILE, HTTP)]
        rng.shuffle(order)
        if number == 0:
            order.sort(key=lambda each: each[1] != REPLAY)
        for stage, way in order:
            url = {REPLAY: None, FILE: work.url(stage), HTTP: f"{served}/{kept(stage)}"}[way]
            found.append(work.restore(stage, way, url))
            log(f"{stage}, {way}: {found[-1].seconds:.2f} s, {found[-1].records:,} records read")
    return found


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """The folder over HTTP on loopback."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def table(title: str, found: Sequence[Restored], made: Sequence[Compaction]) -> Table:
    """Medians, and how often faster than the same stage's replay."""
    shown = columns(title, "stage", "restored by", "seconds", "records read", "times as fast", title_at="center")
    for stage in dict.fromkeys(one.stage for one in found):
        own = [one for one in found if one.stage == stage]
        medians = {way: median(one.seconds for one in own if one.way == way) for way in (REPLAY, FILE, HTTP)}
        for way, seconds in medians.items():
            records = next(one.records for one in own if one.way == way)
            shown.add_row(stage, way, f"{seconds:.2f}", f"{records:,}", f"{medians[REPLAY] / seconds:.1f}")
    for one in made:
        size = f"{one.entries:,} entries, {one.megabytes:,.0f} MB"
        shown.add_row("Spark", f"{one.what}: {size}", f"{one.seconds:.2f}", f"{one.records:,}", "")
    return shown


def _content(directory: Path) -> str:
    """A digest of all stores' entries, in order."""
    digest = hashlib.sha256()
    for _, store in on_disk(directory, RocksDictEngines()):
        for key, value in store.entries:
            digest.update(b"%d %d " % (len(key), len(value)) + key + value)
    return digest.hexdigest()

