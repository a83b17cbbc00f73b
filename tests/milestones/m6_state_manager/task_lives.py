"""A task's stores beside what Kafka and the disk must have of them: `TaskLife` of `power_cuts.py`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.engine import Batch
from milestones.common.state.spec import StoreSpec
from milestones.common.state.steps import STEP_ENTRIES, joint_steps
from milestones.common.state.storage import CommitMade
from milestones.m6_state_manager.manager import RangeStateManager
from tests.milestones.m6_state_manager.states import found

KEYS, MANY_KEYS = 60, 3 * STEP_ENTRIES
"""Of most commits, and of a commit of many steps."""

Content = dict[bytes, bytes]


def overlaid(content: Mapping[bytes, bytes], batch: Batch) -> Content:
    """The content after these writes."""
    after = {key: value for key, value in content.items() if key not in batch}
    return after | {key: value for key, value in batch.items() if value is not None}


@dataclass
class Changelog:
    """What Kafka has of a store: `base` up to offset `base_end`, then batches, each with its end."""

    base: Content = field(default_factory=dict)
    base_end: int = 0
    tail: list[tuple[int, Batch]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.tail[-1][0] if self.tail else self.base_end

    def append(self, batch: Batch) -> int:
        """The new end."""
        self.tail.append((self.end + len(batch) + 1, batch))
        return self.end

    def content(self) -> Content:
        return overlaid(self.base, {key: value for _, batch in self.tail for key, value in batch.items()})

    def after(self, offset: int | None) -> Iterator[tuple[Batch, int]]:
        """What a store at this offset lacks, with the offset that it is at then."""
        if offset is None and self.base_end:
            yield self.base, self.base_end
        yield from ((batch, end) for end, batch in self.tail if end > (offset or 0))

    def compact(self, up_to: int | None) -> None:
        """Forget how a store comes to this offset."""
        gone = [(end, batch) for end, batch in self.tail if up_to is not None and end <= up_to]
        if gone:
            self.base, self.base_end = Changelog(self.base, tail=gone).content(), gone[-1][0]
            self.tail = self.tail[len(gone) :]


class Known(NamedTuple):
    """What a task has after one of its writes."""

    commit: int
    offsets: Mapping[str, int]
    contents: Mapping[str, Content]


class Write(NamedTuple):
    """A write. `after`: what the task has then; `batches`: what of it can be there before, as it has several steps."""

    at_ms: int
    after: Known
    batches: Mapping[str, Batch]


class TaskLife:
    """*Owns*: the task's stores, while they are open. `happened`: how often what did."""

    storage: Any
    manager: RangeStateManager

    def __init__(self, task: TaskId, specs: Sequence[StoreSpec], rng: random.Random) -> None:
        self.task, self._specs, self._rng = task, specs, rng
        self._logged = [spec.name for spec in specs if spec.logged]
        self._changelogs = {name: Changelog() for name in self._logged}
        self._synced, self._since = self._nothing(), list[Write]()
        self._commits = self._applied = self._values = 0
        self.happened = Counter[str]()

    def _nothing(self) -> Known:
        return Known(0, {}, {spec.name: {} for spec in self._specs})

    def open(self, manager: RangeStateManager) -> None:
        self.manager, self.storage = manager, manager.open(self.task, self._specs, "words-1")

    # -- work

    @property
    def _now(self) -> Known:
        return self._since[-1].after if self._since else self._synced

    def step(self, now_ms: int) -> None:
        """Anything that a task does: nearly always a commit."""
        number = self._rng.random()
        if number < 0.03:
            self._begin_anew(now_ms)
        elif number < 0.08:
            self._empty(self._rng.choice(self._logged), now_ms)
        else:
            self._commit(now_ms)

    def _commit(self, now_ms: int) -> None:
        stores = self._rng.sample(self._specs, self._rng.randint(1, len(self._specs)))
        batches = {spec.name: self._batch() for spec in stores}
        self._commits += 1
        for name in self._logged:
            if name in batches:
                self._changelogs[name].append(batches[name])
        offsets = {name: self._changelogs[name].end for name in batches if name in self._changelogs}
        position = {TopicPartition("in", self.task.partition): self._commits * 10}
        self._noted(now_ms, batches, offsets, self._commits)
        self.storage.note(CommitMade(self._commits, position, position))
        self.storage.apply(batches, offsets)
        self._applied = self._commits

    def _batch(self) -> Batch:
        count, keys = self._rng.randint(1, 30), KEYS
        if self._rng.random() < 0.02:
            count, keys = self._rng.randint(STEP_ENTRIES // 2, 2 * STEP_ENTRIES), MANY_KEYS
        self._values += 1
        return {
            b"key-%05d" % self._rng.randrange(keys): None if self._rng.random() < 0.2 else b"value-%d" % self._values
            for _ in range(count)
        }

    def _empty(self, store: str, now_ms: int) -> None:
        """Empty a store, and restore it from the beginning of its changelog."""
        now = self._now
        offsets = {name: offset for name, offset in now.offsets.items() if name != store}
        self._since.append(Write(now_ms, now._replace(offsets=offsets, contents={**now.contents, store: {}}), {}))
        self.storage.clear(store)
        self.happened["stores emptied"] += 1
        self.restore(now_ms)

    def _begin_anew(self, now_ms: int) -> None:
        """The task goes, comes again once its state was removed, and restores all of it that can be."""
        self.storage.close()
        self._since.append(Write(now_ms, self._nothing(), {}))
        self.manager.remove(self.task)
        self.open(self.manager)
        assert all(found(self.storage, spec.name) == {} for spec in self._specs), f"task {self.task} isn't removed"
        self.happened["tasks removed"] += 1
        self.restore(now_ms)

    def restore(self, now_ms: int) -> int:
        """Replay what the stores lack; returns the number of records."""
        records = 0
        for name in self._logged:
            for batch, end in list(self._changelogs[name].after(self._now.offsets.get(name))):
                self._noted(now_ms, {name: batch}, {name: end}, self._now.commit)
                self.storage.apply({name: batch}, {name: end})
                records += len(batch)
            content = found(self.storage, name)
            assert content == self._changelogs[name].content(), f"store {name} of task {self.task} isn't exact"
        return records

    def _noted(self, now_ms: int, batches: Mapping[str, Batch], offsets: Mapping[str, int], commit: int) -> None:
        now = self._now
        contents = {name: overlaid(now.contents[name], batch) for name, batch in batches.items()}
        after = Known(commit, {**now.offsets, **offsets}, {**now.contents, **contents})
        in_steps = {name: batch for name, batch in batches.items() if name in self._changelogs}
        steps = len(list(joint_steps(in_steps)))
        self.happened["writes of several steps"] += steps > 1
        self._since.append(Write(now_ms, after, in_steps if steps > 1 else {}))

    def was_synced(self) -> None:
        """All that was written is on the disk."""
        self._synced, self._since = self._now, []
        for name, changelog in self._changelogs.items():
            changelog.compact(self._synced.offsets.get(name))

    # -- after a failure

    def judge(self) -> list[int]:
        """See that the task is as after one of its writes, or before the first one since the last sync, with a part of
        the next one at most; returns when what is lost was written."""
        row = next(one for one in self.manager.databases() if one.number == self.task.subtopology).rows.get(
            self.task.partition
        )
        commit, offsets = (0, {}) if row is None else (row.commit, dict(row.offsets))
        position = {f"in-{self.task.partition}": commit * 10} if commit else {}
        if row is not None:
            assert row.positions == row.stream_times == position, f"task {self.task}: the positions are of another row"
        contents = {spec.name: found(self.storage, spec.name) for spec in self._specs}
        states = [self._synced, *(write.after for write in self._since)]
        of_row = [number for number, known in enumerate(states) if known[:2] == (commit, offsets)]
        assert of_row, f"the row of task {self.task} is of no write since the last sync: {commit}, {offsets}"
        for number in reversed(of_row):
            parts = self._since[number].batches if number < len(self._since) else {}
            if all(_is(contents[name], states[number].contents[name], parts.get(name, {})) for name in contents):
                self.happened["writes half there"] += contents != states[number].contents
                lost = self._since[number:]
                if len(self._logged) < len(self._specs):
                    self._must_not_be_lost(zip(states[number:], lost, strict=False))
                self._synced, self._since = Known(commit, offsets, contents), []
                return [write.at_ms for write in lost]
        raise AssertionError(f"the stores of task {self.task} aren't what its row says: {commit}, {offsets}")

    def _must_not_be_lost(self, lost: Iterable[tuple[Known, Write]]) -> None:
        """No commit of a store that nothing replays, but one that the failure broke off."""
        commits = [write.after.commit for before, write in lost if write.after.commit > before.commit]
        assert all(commit > self._applied for commit in commits), f"task {self.task} has lost the commits {commits}"


def _is(content: Content, known: Content, parts: Batch) -> bool:
    """Whether a store has this content, or writes of `parts` beside it."""
    differing = {key for key in content.keys() | known.keys() if content.get(key) != known.get(key)}
    return all(key in parts and content.get(key) == parts[key] for key in differing)
