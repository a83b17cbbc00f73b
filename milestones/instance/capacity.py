"""How many tasks an instance takes, in units that its group weighs instances by; and how its threads share them.

    capacity of an instance = max(stream threads, processing threads)

The rule is that of every stage. `num_processing_threads` counts at stages without processing threads too: otherwise an
instance that a rolling restart brings to another stage would have another weight than the others, and the group would
move tasks, with their state, to where the restart has been, and back again as it goes on.

*Guarantees*: the capacities of an instance's members add up to that of the instance; each is at least 1.
*Assumes*: the group asks each member at each rebalance: what changed since then counts from the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig
    from milestones.instance.thread_registry import ThreadRegistry


def capacity(config: StreamsConfig, thread_registry: ThreadRegistry, number: int) -> int:
    """That of the member with the stream thread `number`."""
    numbers = _with(thread_registry, number)
    return _share(max(len(numbers), _processing_threads(config, numbers)), numbers, number)


def processing_threads(config: StreamsConfig, thread_registry: ThreadRegistry, number: int) -> int:
    """How many of the instance's processing threads the stream thread `number` has: at least one."""
    numbers = _with(thread_registry, number)
    return _share(_processing_threads(config, numbers), numbers, number)


def _with(thread_registry: ThreadRegistry, number: int) -> list[int]:
    """The stream threads there are; `number` may be about to leave."""
    return sorted({*thread_registry.numbers(), number})


def _processing_threads(config: StreamsConfig, numbers: list[int]) -> int:
    """Unless the setting is given there are as many as stream threads, also when those change."""
    given = config.origin("num_processing_threads") != "default"
    return config.num_processing_threads if given else len(numbers)


def _share(total: int, numbers: list[int], number: int) -> int:
    each, more = divmod(total, len(numbers))
    return max(1, each + (numbers.index(number) < more))
