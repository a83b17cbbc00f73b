"""The ways in which one task of an instance fails for good: what makes it fail, and what mends that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.apps.refusals import READ, REFUSED, WRITE, refusal
from compat_tests.cases.calls import failing
from compat_tests.cases.flows import AGAIN, CALLS, COPY, COUNT, ELSEWHERE, HERE, THERE_AGAIN
from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.harness.followers import METRICS
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.stores import store_directories
from compat_tests.harness.world import World
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.placement import partition_of
from compat_tests.oracles.rows import Place

KEYS = 200
PARTITIONS = 6
PARTITION = 0
"""Whose task fails."""
TASK = f"0_{PARTITION}"
FAILED, STATE_UNUSABLE = 1, 4
"""Exit codes."""
SETTINGS: Settings = {
    "num_stream_threads": 1, "num_processing_threads": 3, "transaction_timeout_ms": 10_000, **METRICS
}  # fmt: skip
PATIENCE: Settings = {**SETTINGS, "task_timeout_ms": 5_000}
"""How long user code is tried again."""
SOON: Settings = {**SETTINGS, "producer_topic_metadata_propagation_max_ms": 1_000}
"""When the client believes that a topic is gone: within `task_timeout_ms`."""
LIMIT, TOO_LARGE = 20_000, 50_000
"""Bytes that the output topic takes, and of a record that is too large for it."""


class Failure(NamedTuple):
    """A task fails now, or soon. `stops_at`: the offset of the record that it doesn't get beyond; None: what it has
    committed when it fails. `mend`: after that it goes on. `at_commit`: it stops at a commit that it has made before
    that record, as what came in between would be committed with it."""

    app: Instance
    place: Place
    stops_at: int | None
    mend: Callable[[], object]
    at_commit: bool = False

    def has_stopped(self, committed: int) -> bool:
        """Whether it has committed this where it stands."""
        assert self.stops_at is not None
        return committed <= self.stops_at if self.at_commit else committed == self.stops_at


@dataclass(frozen=True)
class Cause:
    """`fail`: makes one task fail in an application that is at work, started with what else it is given. `text`: of the
    error; `exit_code`: of a process that dies of it; `outputs`: of each input, in the output topic of the first flow.
    """

    fail: Callable[..., Failure]
    flows: tuple[Flow, ...]
    text: str
    exit_code: int = FAILED
    outputs: int = 1


def started(world: World, topology: str, settings: Settings = SETTINGS, **start: Any) -> Instance:
    """An application that has processed something."""
    world.input("in", PARTITIONS)
    app = world.instance(topology, **settings).start(**start)
    world.feeds["in"].send(world.records(200, KEYS))
    world.processed()
    return app


def key_of(partition: int, name: str = "k") -> bytes:
    """A key whose records lie there."""
    keys = (b"%s%d" % (name.encode(), number) for number in range(KEYS))
    return next(key for key in keys if partition_of(key, PARTITIONS) == partition)


def in_user_code(world: World, **start: Any) -> Failure:
    """A call that fails."""
    world.create(out=PARTITIONS)
    app = started(world, "calls", PATIENCE, **start)
    call = failing(world, PARTITION, "no-answer")
    *_, row = world.feeds["in"].send([*world.records(50, KEYS), call.sent])
    return Failure(app, row.place, row.offset, call.release)


def by_a_refused_record(world: World, **start: Any) -> Failure:
    """An output that is too large for its topic."""
    out = world.topic("out")
    world.cluster.create({out: PARTITIONS}, {"max.message.bytes": str(LIMIT)})
    app = started(world, "copy", **start)
    large = Sent(key_of(PARTITION), b"x" * TOO_LARGE, FIRST_TIMESTAMP + 1_000)
    *_, row = world.feeds["in"].send([*world.records(50, KEYS), large])

    def mend() -> None:
        world.cluster.set_topic(out, {"max.message.bytes": str(10 * TOO_LARGE)})

    return Failure(app, row.place, row.offset, mend, at_commit=True)


def by_a_refused_topic(world: World, **start: Any) -> Failure:
    """A topic that one task alone has written to was deleted."""
    world.create(out=PARTITIONS, elsewhere=1)
    app = started(world, "elsewhere", SOON, **start)
    feed, key = world.feeds["in"], key_of(PARTITION)
    feed.send([Sent(key, ELSEWHERE, FIRST_TIMESTAMP + 1_000)])
    world.processed()
    world.cluster.delete([world.topic("elsewhere")])
    *_, row = feed.send([*world.records(50, KEYS), Sent(key, AGAIN, FIRST_TIMESTAMP + 2_000)])
    return Failure(app, row.place, row.offset, lambda: world.create(elsewhere=1), at_commit=True)


def by_a_store_that_cannot_be_opened(world: World, **start: Any) -> Failure:
    """A file lies where the store's directory was."""
    world.create(out=PARTITIONS)
    app = started(world, "count")
    app.stop()
    store = next(path for path in store_directories(app.state_dir, world.application_id) if path.parts[-3] == TASK)
    aside = store.with_name("aside")
    shutil.move(store, aside)
    store.write_text("no directory")

    def mend() -> None:
        store.unlink()
        shutil.move(aside, store)

    place = Place(world.topic("in"), PARTITION)
    stops_at = world.committed()[place]
    app.start(**start)
    return Failure(app, place, stops_at, mend)


def by_a_store(what: str, world: World, **start: Any) -> Failure:
    """A store whose disk refuses reads, or writes."""
    world.create(out=PARTITIONS)
    app = started(world, "count", refusals=refusals(world), **start)
    file = refusal(refusals(world), what, TASK)
    file.touch()
    place = Place(world.topic("in"), PARTITION)
    (row,) = world.feeds["in"].send([Sent(key_of(PARTITION, "new"), b"v", FIRST_TIMESTAMP + 1_000)])
    # Kafka has the commit whose writes the store refuses.
    return Failure(app, place, row.offset if what == READ else None, file.unlink)


def refusals(world: World) -> Path:
    return world.directory


NOT_OPENED = "store not opened"
CAUSES = {
    "user code": Cause(in_user_code, (CALLS,), "no-answer", outputs=2),
    "refused record": Cause(by_a_refused_record, (COPY,), "refuse"),
    "refused topic": Cause(by_a_refused_topic, (HERE, THERE_AGAIN), "elsewhere"),
    NOT_OPENED: Cause(by_a_store_that_cannot_be_opened, (COUNT,), "counts", STATE_UNUSABLE),
    "store not read": Cause(partial(by_a_store, READ), (COUNT,), REFUSED, STATE_UNUSABLE),
    "store not written": Cause(partial(by_a_store, WRITE), (COUNT,), REFUSED, STATE_UNUSABLE),
}
