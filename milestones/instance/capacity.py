"""The capacity of an instance, by which its group weighs it against others; and the share of each stream thread.

    capacity of an instance = max(stream threads, processing threads)

Every stage has this rule. `num_processing_threads` counts at stages without processing threads too. Otherwise an
instance that a rolling restart has brought to another stage would have another weight than the others. The group would
move tasks, with their state, to restarted instances, and back when the next ones restart.

*Guarantees*: the capacities of an instance's members add up to that of the instance; each is at least 1.
*Assumes*: the leader reads each member's capacity at each rebalance; a change counts from the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig
    from milestones.instance.thread_registry import ThreadRegistry


def capacity(config: StreamsConfig, thread_registry: ThreadRegistry, number: int) -> int:
    """The capacity of the member of the stream thread `number`."""
    numbers = _with(thread_registry, number)
    return _share(max(len(numbers), _processing_threads(config, numbers)), numbers, number)


def processing_threads(config: StreamsConfig, thread_registry: ThreadRegistry, number: int) -> int:
    """The number of processing threads that the stream thread `number` has: at least one."""
    numbers = _with(thread_registry, number)
    return _share(_processing_threads(config, numbers), numbers, number)


def _with(thread_registry: ThreadRegistry, number: int) -> list[int]:
    """The numbers of the stream threads, with `number`, which may be about to leave."""
    return sorted({*thread_registry.numbers(), number})


def _processing_threads(config: StreamsConfig, numbers: list[int]) -> int:
    """The instance's number of processing threads: the setting, or as many as there are stream threads now."""
    given = config.origin("num_processing_threads") != "default"
    return config.num_processing_threads if given else len(numbers)


def _share(total: int, numbers: list[int], number: int) -> int:
    each, more = divmod(total, len(numbers))
    return max(1, each + (numbers.index(number) < more))
