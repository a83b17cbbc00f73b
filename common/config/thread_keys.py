"""The keys of processing threads, a part of the table in `keys.py`.

*Guarantees* and *assumes*: see `keys.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milestones.common.config.key import ConfigKey, Derived
from milestones.common.config.value_types import PRIORITIES, integer

MIB = 1024 * 1024


class ThreadKeys:
    """The keys of processing threads, of the tasks' priorities, and of the memory for outputs."""

    _values: Mapping[str, Any]

    num_processing_threads: Final = ConfigKey(
        integer(at_least=1),
        Derived(lambda values: int(values["num_stream_threads"]), "`num_stream_threads`"),
        "medium", stage="m2",
        doc="Number of processing threads of this instance, from m2 on. These threads call the topology. On m2 and m3 "
        "each stream thread has its share of them, at least one. From m4 on each processing thread may take any "
        "task of the instance. More threads help user code that waits, for example for a database. The assignor uses "
        "the larger of this number and `num_stream_threads` as the instance's capacity, on every stage.",
    )
    task_priorities: Final = ConfigKey(
        PRIORITIES, dict[int, int](), "low", stage="m2",
        doc="Weights of sub-topologies, from m2 on. The default weight is 1. With `{0 = 4}`, while the processing "
        "threads can't process everything, each task of sub-topology 0 gets at least four times as much time as a task "
        "of weight 1. Each task gets some time. Tasks that restore read records in the same proportion. On m6 the "
        "snapshots of sub-topologies with a larger weight are made and downloaded first, and their state is converted "
        "first.",
    )
    output_buffer_max_bytes: Final = ConfigKey(
        integer(at_least=1), 64 * MIB, "medium", stage="m2",
        doc="Limit for the bytes of outputs of all tasks of this instance that wait to be sent (from m2 on) or to be "
        "confirmed (from m5 on). Any task may use the first three quarters. The last quarter is divided equally among "
        "the tasks. A task without room waits, other tasks go on.",
    )
