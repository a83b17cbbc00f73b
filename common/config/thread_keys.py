"""The keys of processing threads.

*Guarantees* and *assumes*: as `keys.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milestones.common.config.key import ConfigKey, Derived
from milestones.common.config.value_types import PRIORITIES, integer

MIB = 1024 * 1024


class ThreadKeys:
    """The number of processing threads, the priorities of tasks, the room for outputs."""

    _values: Mapping[str, Any]

    num_processing_threads: Final = ConfigKey(
        integer(at_least=1),
        Derived(lambda values: int(values["num_stream_threads"]), "`num_stream_threads`"),
        "medium", stage="m2",
        doc="Processing threads of this instance, from m2 on: they call the topology. Each stream thread has its share "
        "of them, at least one, also when stream threads come or go; from m4 on they choose among all tasks of the "
        "instance. More of them help user code that waits, such as for a database. On every stage an instance gets "
        "tasks by the larger one of this and `num_stream_threads`.",
    )
    task_priorities: Final = ConfigKey(
        PRIORITIES, dict[int, int](), "low", stage="m2",
        doc="Weights of sub-topologies, from m2 on: with `{0 = 4}` each task of sub-topology 0 gets at least four "
        "times as much time of the processing threads as those of weight 1, which all others have, while there isn't "
        "enough for all. No task starves. Where tasks restore, so do the records that those of each sub-topology read "
        "while they have much to read. On m6 their snapshots are made and brought first, and their state is converted "
        "first.",
    )
    output_buffer_max_bytes: Final = ConfigKey(
        integer(at_least=1), 64 * MIB, "medium", stage="m2",
        doc="Bytes of outputs of all tasks of this instance that wait to be sent, from m2 on, or to be confirmed, from "
        "m5 on. Three quarters of them are any task's, the last one has an equal part for each; a task without room "
        "waits, the others don't.",
    )
