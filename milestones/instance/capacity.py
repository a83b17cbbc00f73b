"""Computes the capacity of an instance, by which the group divides tasks among instances, and the share of each stream
thread.

    capacity of an instance = max(stream threads, processing threads)

Every stage has this rule. `num_processing_threads` also counts on stages without processing threads. So an instance has
the same capacity on all stages. With different capacities, a rolling restart to another stage would move tasks and
their state to restarted instances, and back when the next instances restart.

*Guarantees*: the capacities of an instance's members add up to the instance's capacity. Each is at least 1.
*Assumes*: the leader reads each member's capacity in each rebalance. A change has an effect from the next rebalance on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig
    from milestones.instance.thread_registry import ThreadRegistry


def capacity(config: StreamsConfig, thread_registry: ThreadRegistry, number: int) -> int:
    """Return the capacity of the member of the stream thread `number`."""
    numbers = _with(thread_registry, number)
    return _share(max(len(numbers), _processing_threads(config, numbers)), numbers, number)


def processing_threads(config: StreamsConfig, thread_registry: ThreadRegistry, number: int) -> int:
    """Return the number of processing threads of the stream thread `number`, at least one."""
    numbers = _with(thread_registry, number)
    return _share(_processing_threads(config, numbers), numbers, number)


def _with(thread_registry: ThreadRegistry, number: int) -> list[int]:
    """Return the numbers of the stream threads, including `number`, even if that thread is about to leave."""
    return sorted({*thread_registry.numbers(), number})


def _processing_threads(config: StreamsConfig, numbers: list[int]) -> int:
    """Return the instance's number of processing threads: the setting, or else the present number of stream threads."""
    given = config.origin("num_processing_threads") != "default"
    return config.num_processing_threads if given else len(numbers)


def _share(total: int, numbers: list[int], number: int) -> int:
    each, more = divmod(total, len(numbers))
    return max(1, each + (numbers.index(number) < more))
