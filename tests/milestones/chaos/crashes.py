"""The death of the process: nobody closes, commits, or leaves. What has reached Kafka or the disk stays."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from milestones.common.state.write_behind import WriteBehindStorage

if TYPE_CHECKING:
    from tests.milestones.chaos.threads import SteppedPolling


def kill(world: Any, polling: SteppedPolling, rng: random.Random) -> None:
    """No thread of the process takes another step."""
    _write_in_part(polling, rng)
    polling.ended = True
    polling.context.memory.leave()
    world.polling.clear()
    for one in world.workers.all:
        one.worker.ended = True
    world.updaters.all.clear()
    world.openers.all.clear()
    world.openers.taken.clear()
    world.handler_threads.clear()
    state = world.state
    for storage, task in state.live.items():
        state.closed[task] = sum(offset or 0 for offset in storage.offsets().values())
    state.closes += len(state.live)
    for memory in (state.live, state.held, state.orphans):
        memory.clear()
    world.clients.producer.killed()


def _write_in_part(polling: SteppedPolling, rng: random.Random) -> None:
    """The writes of confirmed commits, of which some stores have theirs by now. What waits for the disk is lost."""
    loop: Any = polling.loop
    for task in loop._tasks.processing.values():
        at_once = not isinstance(task._stores.storage, WriteBehindStorage)
        if at_once and task.applying and task._commits.to_apply and rng.random() < 0.7:
            for name, store in task._stores._stores.items():
                batch = store.layers.frozen()
                if batch and rng.random() < 0.5:
                    task._stores.storage.stores[name].write(batch, task._commits.to_apply.get(name))
