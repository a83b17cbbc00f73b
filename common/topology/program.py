"""The contract between a compiled topology and the task that runs it.

A topology is compiled per task, and anew after each roll-back of it, into plain nested calls: each node becomes a
closure `(key, value, timestamp)`, bound to the closures of its children, from the leaves up. Depth first, one record at
a time, so that order is exactly Kafka Streams'.

*Guarantees*: a bound closure is named after its node (its code object carries the node's name), so that a
traceback of user code shows `KSTREAM-MAPVALUES-0000000001` where it passed, at no cost per record.
*Assumes*: one thread at a time runs a program, the one that has the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from milestones.common.records import Emitted, Headers, RecordMetadata, TaskId

Process = Callable[[Any, Any, int], None]
"""A bound node: takes key, value and timestamp (ms) of one record, returns when all nodes below are done."""

PunctuationType = Literal["stream-time", "wall-clock-time"]


class Cancellable(Protocol):
    """A scheduled punctuation."""

    def cancel(self) -> None:
        """Call no more after the call in work."""
        ...


class RecordContext(Protocol):
    """The record that the task is processing now. The task writes it, operators read it.

    `headers` travel with the record from node to node and are what a sink writes; a processor that changes them
    replaces the list for the time of its forward. `timestamp` (ms) is the input record's, or while a processor has
    the record, that one's: what a plain key-value store logs with.
    """

    headers: Headers | None
    timestamp: int

    def stand_in(self, timestamp: int, headers: Headers | None, metadata: RecordMetadata | None) -> Former:
        """Have a record that was kept back stand for the one in work, for the time of its forward. Returns what
        `resume` takes."""
        ...

    def resume(self, former: Former) -> None:
        """Return to the record in work."""
        ...

    @property
    def metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record; None in a punctuation."""
        ...


Former = tuple[Any, ...]
"""The record in work, while another one stands for it."""


class Memory(Protocol):
    """A number that an operator keeps between records. A failed record takes its change back, a roll-back returns to
    that of the last commit, and the committed offsets carry it: the next owner of the task begins with it."""

    value: int

    def set(self, value: int) -> None:
        """Change the value, with the record in work."""
        ...


class Tally(Protocol):
    """A count of a node's work, for metrics. It only grows: a roll-back takes nothing back."""

    total: int


class TaskServices(Protocol):
    """The calls of operators to their task. Given to `compile_program`; `common.task` implements this Protocol."""

    task_id: TaskId
    application_id: str
    record: RecordContext
    config: Mapping[str, Any]

    def store(self, name: str) -> Any:
        """The state store of that name, ready to use from `Program.init` on."""
        ...

    def global_store(self, name: str) -> Any | None:
        """The global store of that name, for reading; None when there is none."""
        ...

    def kept(self, name: str) -> Memory:
        """The number of that name, -1 where no commit has it: Kafka Streams' processor metadata, for an owner of Java,
        too."""
        ...

    def time(self, name: str, least: int, /) -> Memory:
        """A time, ms, -1 before the first record; the operators of the task that name it share it. `least`: what is
        known of it anyway. `name`: as `times.time_name` makes it."""
        ...

    def emit(self, output: Emitted, /) -> None:
        """Put one output into the scope of the record being processed. Partition -1: murmur2 of the key."""
        ...

    def schedule(
        self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None], node: str,
        start_ms: int | None = None,
    ) -> Cancellable:
        """Call `callback(timestamp)` each `interval_ms`, from `Program.init` on; if there is a `start_ms`, then and at
        times that are whole intervals after it."""
        ...

    def partitions_of(self, topic: str) -> int:
        """The number of partitions of a sink's topic, for custom partitioners."""
        ...

    def request_commit(self) -> None:
        """Ask for a commit soon."""
        ...

    def dropped(self, node: str, reason: str) -> None:
        """Count a record that a node skipped (null key, late, ...): metric dropped-records, a log line at times."""
        ...

    def tally(self, node: str, what: str) -> Tally:
        """A count of that name of a node, for metrics; the same for all programs of the task."""
        ...

    def stream_time(self) -> int:
        """The highest timestamp this task has seen, -1 before the first."""
        ...

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        ...


class TableStore(Protocol):
    """The calls of table operators to a timestamped key-value store, or a versioned one. Plain tuples, no copies."""

    versioned: bool
    immutable: bool
    """Whether values can't be changed. Others are decoded anew by each `get_raw`."""

    def get_raw(self, key: Any) -> tuple[Any, int] | None:
        """(value, timestamp) of `key`, None when it is absent."""
        ...

    def put_raw(self, key: Any, value: Any, timestamp: int) -> None:
        """Set `key`; a value of None deletes it, at the time of the record in work."""
        ...

    def delete_raw(self, key: Any, timestamp: int) -> None:
        """Delete `key` at `timestamp`, the time of the deletion's changelog record, and of the update of a cache."""
        ...

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """True when this store is cached: then the store calls `listener` at the flush, and the operator doesn't
        forward."""
        ...


FlushListener = Callable[[Any, Any, Any, int], None]
"""(key, new value, old value or None, timestamp) of a row that changed since the last flush."""


class OperatorContext(TaskServices, Protocol):
    """The surroundings of one node while it is bound: its task's services, its name, its children.

    `store` gives the stores that are connected to the node and all global stores, `TopologyError` for others.
    """

    node: str
    forward: Process
    """Sends to all children, in the order in which they were added."""
    forward_new: Process
    """Sends to all children of a table node without old values: takes the new value instead of (new, old)."""
    forward_own: Process
    """`forward`, for a value that the node, or its user's code, may use afterwards: each child whose functions get it
    has a copy."""

    def observed_time(self, least: int = -1) -> Memory:
        """The highest time of the records that this node has seen in its task: `time` of the node and its stores."""
        ...

    def forward_to(self, child: str) -> Process:
        """The closure of the child of that name; `TopologyError` when there is none."""
        ...

    def forward_own_to(self, child: str) -> Process:
        """`forward_to`, for a value that isn't the child's alone."""
        ...

    def on_init(self, callback: Callable[[], None]) -> None:
        """Run `callback` in `Program.init`, in the order of the nodes."""
        ...

    def on_close(self, callback: Callable[[], None], /) -> None:
        """Run `callback` when the task closes, or was rolled back."""
        ...

    def on_end(self, callback: Callable[[], None], /) -> None:
        """Run `callback` when all of the program's nodes are closed."""
        ...


class Operator(Protocol):
    """The work of a processor node: an immutable description that is bound once per program. A closure's memory ends
    with the program: a roll-back makes another one.

    An operator that uses only the new value of a table's update may have `bind_new`, too, for a closure that takes the
    new value instead of (new, old).

    `sends_its_row`: what it forwards is the very row that it has put into its `store` right before; `passes_on`: its
    closure is that of its children, or calls it with the same key and value (the new one of a table's update). A sink
    behind such operators alone takes the bytes that the store has made. `makes_values`: its children get nothing of
    the value that it was given.
    """

    def bind(self, context: OperatorContext) -> Process:
        """A closure for one task, which alone calls the operator's user code."""
        ...
