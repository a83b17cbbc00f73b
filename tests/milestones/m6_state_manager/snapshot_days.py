"""A day of snapshots of one store partition, by seed: two instances, one of which owns it while the other may not know.

    owner --commits--> store --every INTERVAL_MS--> base or delta --publish, prune--> a folder in the clock's time
    zombie: a member of an older generation, at any time          reader: takes the newest one, within an hour

*Guarantees*: after each snapshot, whatever was published by whom, in which order: the newest one is of the newest
generation that has made one, every manifest has its files, and what a reader takes is what its maker had.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.sst import entries
from milestones.common.state.snapshots.garbage import GRACE_MS, prune
from milestones.common.state.snapshots.objects import FolderStore, SnapshotError
from milestones.common.state.snapshots.repository import LocalSnapshot, SnapshotRepository
from milestones.common.state.snapshots.snapshot import SnapshotManifest
from milestones.common.testing import StepClock
from milestones.m6_state_manager.manager import RangeStateManager
from tests.milestones.m6_state_manager.states import found
from tests.milestones.m6_state_manager.test_snapshot_process import CHANGELOG, Made
from tests.noted import noted

INTERVAL_MS = 600_000
KEYS, VALUE_BYTES = 600, 60
QUIET = 0.06
"""The part of the keys that changes between two snapshots, at most: less than half of them in an hour."""


class DatedFolder(FolderStore):
    """A folder whose files have the times of a clock."""

    def __init__(self, directory: Path, clock: StepClock) -> None:
        super().__init__(f"file://{directory}")
        self._clock = clock

    def write(self, path: str, content: bytes | Path) -> None:
        super().write(path, content)
        self._date(path)

    def create(self, path: str, content: bytes) -> bool:
        created = super().create(path, content)
        if created:
            self._date(path)
        return created

    def _date(self, path: str) -> None:
        time_ns = self._clock.wall_ms() * 1_000_000
        os.utime(self._root / path, ns=(time_ns, time_ns))


class Slow(SnapshotRepository):
    """One whose publisher may stand still before it writes the manifest."""

    meanwhile: Callable[[], object] | None = None

    def publish(self, snapshot: LocalSnapshot) -> SnapshotManifest:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().publish(snapshot)


class Day:
    """What lies in the folder, beside what must. `happened`: how often what did; `kept`: the bytes of table files after
    each snapshot, as multiples of the largest base's."""

    def __init__(self, seed: int, directory: Path, *, moves: float = 0.05, bursts: float = 0.05) -> None:
        """`moves`, `bursts`: how often the partition gets another owner, and most of its keys change, per snapshot."""
        self.rng, self.clock, self._directory = random.Random(seed), StepClock(10**12), directory
        self._moves, self._bursts = moves, bursts
        self.objects = DatedFolder(directory / "remote", self.clock)
        self.repository = SnapshotRepository("", "words", objects=self.objects)
        self.instances = [self._instance(name) for name in ("one", "other")]
        self.generation, self._newest_made = 1, 0
        self.content: dict[bytes, bytes] = {}
        self._tail: list[tuple[int, dict[bytes, bytes | None]]] = []
        self._made: dict[str, dict[bytes, bytes]] = {}
        self._readers: list[tuple[int, SnapshotManifest]] = []
        self._largest, self.kept = 0, list[float]()
        self.happened = Counter[str]()

    def _instance(self, name: str) -> Made:
        state = StateDirectory(self._directory / name, "words", self.clock)
        made = Made(self._directory / f"{name}-jobs", RangeStateManager(state, open_engines("rocksdict"), "m6"))
        made.clock, made.repository = self.clock, Slow("", "words", objects=self.objects)
        return made

    @property
    def owner(self) -> Made:
        return self.instances[0]

    @property
    def zombie(self) -> Made:
        """Of the generation before."""
        return self.instances[1]

    # -- what happens

    def step(self) -> None:
        """The next ten minutes."""
        self.clock.advance(INTERVAL_MS - (self.clock.wall_ms() - 10**12) % INTERVAL_MS)
        self._change()
        moves = self.rng.random() < self._moves
        if moves:
            self._move()
            self._change()
        if self.generation > 1 and (moves or self.rng.random() < 0.3):
            self._both()
        else:
            self._snapshot(self.owner)
        self.look()

    def _both(self) -> None:
        """Both instances make one, in turn, or one of them while the other one stands still in its own."""
        first, *others = self.rng.sample(self.instances, 2)
        slow = self._slow(first)
        if self.rng.random() < 0.7:
            slow.meanwhile = lambda: self._snapshot(others.pop())
        self._snapshot(first)
        slow.meanwhile = None
        if others:  # the first one didn't stand still, or had none to make
            self._snapshot(others.pop())

    @staticmethod
    def _slow(made: Made) -> Slow:
        assert isinstance(made.repository, Slow)
        return made.repository

    def _change(self) -> None:
        part = self.rng.random() if self.rng.random() < self._bursts else self.rng.uniform(0, QUIET)
        batch: dict[bytes, bytes | None] = {}
        for key in self.rng.sample(range(KEYS), max(1, int(part * KEYS)) if self.content else KEYS):
            gone = self.content and self.rng.random() < 0.2
            batch[b"key-%05d" % key] = None if gone else self.rng.randbytes(VALUE_BYTES)
        self.owner.write(batch)
        self.content = {key: value for key, value in self.content.items() if key not in batch}
        self.content |= {key: value for key, value in batch.items() if value is not None}
        self._tail.append((self.owner.offset, batch))

    def _move(self) -> None:
        """The other instance owns the partition, which it restores with the newest snapshot, or with what it has; the
        one before doesn't know yet."""
        self.instances.reverse()
        self.generation += 1
        offset = self.owner.storage.offsets()["counts"]
        newest = self.repository.newest(CHANGELOG, "counts")
        if newest is not None and (offset is None or self.rng.random() < 0.5):
            self.owner.storage.clear("counts")
            fetched = self.repository.fetch(newest, self._directory / "fetched")
            for _ in self.owner.storage.ingest("counts", fetched.files, newest.key_prefix):
                pass
            offset = newest.offset
            self.owner.storage.apply({}, {"counts": offset})
            self.happened["begins with a snapshot"] += 1
        for end, batch in self._tail:
            if end > (offset or 0):
                self.owner.storage.apply({"counts": batch}, {"counts": end})
        self.owner.offset = self.zombie.offset if self._tail else 0
        assert found(self.owner.storage) == self.content, "the new owner hasn't what the former one had"
        self.happened["moves"] += 1

    def _snapshot(self, made: Made) -> None:
        generation = self.generation - (made is not self.owner)
        had = found(made.storage)
        result = made.snapshot(generation)
        self.happened["an owner's" if made is self.owner else "a zombie's"] += result.manifest is not None
        if made is self.owner:
            assert result.manifest is not None or not result.wrong, result.why
        if result.manifest is not None:
            self._made[result.manifest.id] = had
            self._newest_made = max(self._newest_made, generation)
            self._largest = max(self._largest, result.manifest.base_bytes())
            self.happened["deltas"] += result.manifest.base is not None

    # -- what must be

    def look(self) -> None:
        newest = self.repository.newest(CHANGELOG, "counts")
        assert newest is not None
        assert newest.generation == self._newest_made, "an older generation's snapshot is found"
        for one in self.repository.published(CHANGELOG):
            assert one.manifest is not None
            for file in one.manifest.files:
                size = self.objects.size(f"{self.repository.place(CHANGELOG)}/{one.manifest.path_of(file)}")
                assert size == file.bytes, f"a manifest lacks {file}"
        self._readers.append((self.clock.wall_ms() + self.rng.randrange(GRACE_MS), newest))
        due = [manifest for at_ms, manifest in self._readers if at_ms <= self.clock.wall_ms()]
        self._readers = [reader for reader in self._readers if reader[0] > self.clock.wall_ms()]
        for manifest in due:
            self._read(manifest)
        self.kept.append(self.bytes() / self._largest)

    def _read(self, manifest: SnapshotManifest) -> None:
        try:
            fetched = self.repository.fetch(manifest, self._directory / "fetched")
        except SnapshotError as error:
            raise AssertionError(f"a reader that began in time lacks what it reads: {error}") from error
        content: dict[bytes, Any] = dict(entries(fetched.files, manifest.key_prefix))
        fetched.remove()
        assert content == self._made[manifest.id], "a reader has something else than the maker had"

    def bytes(self) -> int:
        """Of all table files."""
        place = self.repository.place(CHANGELOG)
        return sum(one.bytes for one in self.objects.below(place) if one.path.endswith(".sst"))

    def end(self) -> float:
        """An hour after the last snapshot: what is kept then, in bases."""
        self.clock.advance(2 * GRACE_MS)
        prune(self.repository, CHANGELOG, self.clock)
        self._readers = []
        self.look()
        self._read(self._readers[0][1])
        return self.kept[-1]

    def close(self) -> None:
        for made in self.instances:
            made.storage.close()
            made.manager.release()


def play(seed: int, directory: Path, steps: int = 24 * 6, **settings: float) -> Day:
    """A day; an error names the seed and the snapshot."""
    day = Day(seed, directory, **settings)
    try:
        for number in range(steps):
            with noted(f"seed {seed}, snapshot {number}"):
                day.step()
        with noted(f"seed {seed}, at the end"):
            day.end()
    finally:
        day.close()
    return day
