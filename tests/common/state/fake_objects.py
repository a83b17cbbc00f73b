"""A store of objects in memory, with a clock of its own, that may list late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from milestones.common.clock import Clock
from milestones.common.state.snapshots.objects import SnapshotError, StoredObject


class FakeObjects:
    """`ObjectStore`. An object is listed `late_ms` after it was written, and for as long after it was removed."""

    url = "fake://bucket"
    lists = True

    def __init__(self, clock: Clock, late_ms: int = 0) -> None:
        self.clock, self.late_ms = clock, late_ms
        self.content: dict[str, bytes] = {}
        self.times: dict[str, int] = {}
        self.removed: dict[str, tuple[StoredObject, int]] = {}

    def read(self, path: str) -> bytes | None:
        return self.content.get(path)

    def chunks(self, path: str) -> Iterator[bytes]:
        if path not in self.content:
            raise SnapshotError(f"can't read {path}")
        yield self.content[path]

    def size(self, path: str) -> int | None:
        return len(self.content[path]) if path in self.content else None

    def below(self, folder: str) -> list[StoredObject]:
        seen_ms = self.clock.wall_ms() - self.late_ms
        there = [self._object(path) for path, time in self.times.items() if time <= seen_ms]
        gone = [one for one, time in self.removed.values() if time > seen_ms]
        return [one for one in there + gone if one.path.startswith(f"{folder}/")]

    def write(self, path: str, content: bytes | Path) -> None:
        self.content[path] = content if isinstance(content, bytes) else content.read_bytes()
        self.times[path] = self.clock.wall_ms()

    def create(self, path: str, content: bytes) -> bool:
        if path in self.content:
            return False
        self.write(path, content)
        return True

    def remove(self, path: str) -> None:
        if path in self.content:
            self.removed[path] = (self._object(path), self.clock.wall_ms())
            del self.content[path], self.times[path]

    def _object(self, path: str) -> StoredObject:
        return StoredObject(path, len(self.content[path]), self.times[path])

    @property
    def bytes(self) -> int:
        """Of all objects."""
        return sum(map(len, self.content.values()))
