"""The interface between a compiled topology and the task that runs it.

For each task the topology is compiled into plain nested calls. A roll-back of the task compiles it once more. Each node
becomes a closure `(key, value, timestamp)` that calls the closures of its children. The leaves are made first. One
record at a time goes through the closures, depth first, so the order is exactly that of Kafka Streams.

*Guarantees*: a node's closure has the node's name in its code object. So a traceback of user code shows the nodes that
the record passed, such as `KSTREAM-MAPVALUES-0000000001`, at no cost per record.
*Assumes*: one thread at a time runs a program, the one that has the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from milestones.common.records import Emitted, Headers, RecordMetadata, TaskId

Process = Callable[[Any, Any, int], None]
"""The closure of a node. The closure takes key, value and timestamp (ms) of one record, and returns when all nodes
below are done."""

SendRow = Callable[[bytes, bytes, "bytes | None", int, "Headers | None"], None]
"""A function that sends a row of a store, as it is in the store, to the sink that follows the operator: (bytes of the
key, local key of the row, bytes of the value, timestamp, headers). None as value: the row is gone."""

KeepRow = Callable[[bytes, int, "bytes | None", Any, int], None]
"""A function that passes a row of a store, as it is in the store, to the `suppress` that follows the operator: (local
key of the row, end of its window or 0, bytes of the value, the old value itself, timestamp). None as value: there is no
row."""


class RowTakers(NamedTuple):
    """The functions that take the rows of an operator's store by their bytes, in place of `forward`. At most one is
    there. None of them is if other nodes get the operator's updates, or if other bytes are needed than the store's.

    `send`: only a sink gets the updates. `keep`: only a `suppress` gets them."""

    send: SendRow | None = None
    keep: KeepRow | None = None


PunctuationType = Literal["stream-time", "wall-clock-time"]


class Cancellable(Protocol):
    """A scheduled punctuation, which can be cancelled."""

    def cancel(self) -> None:
        """End the schedule. A call that is running now is the last one."""
        ...


class RecordContext(Protocol):
    """The record that the task is processing now. The task writes it, operators read it.

    `headers` travel with the record from node to node, and a sink writes them. A processor that forwards other headers
    replaces the list until its forward returns. `timestamp` (ms) is that of the input record. While a processor runs,
    it is that of the processor's record. The changelog records of a plain key-value store get it.
    """

    headers: Headers | None
    timestamp: int

    def stand_in(self, timestamp: int, headers: Headers | None, metadata: RecordMetadata | None) -> Former:
        """Put a record that was kept back in the place of the current record while it is forwarded. Returns the
        argument for `resume`."""
        ...

    def resume(self, former: Former) -> None:
        """Put the record that was current before `stand_in` back."""
        ...

    @property
    def metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record. None in a punctuation."""
        ...


Former = tuple[Any, ...]
"""The state of the current record, stored while another record stands in its place."""


class Memory(Protocol):
    """A number that an operator keeps between records. If a record fails, its change is undone. A roll-back restores
    the number of the last commit. The number is stored with the committed offsets, so the next owner of the task begins
    with it."""

    value: int

    def set(self, value: int) -> None:
        """Change the value. The change belongs to the current record: it is undone if the record fails."""
        ...


class Tally(Protocol):
    """A count of a node's work, for metrics. The count only grows. A roll-back doesn't change it."""

    total: int


class TaskServices(Protocol):
    """The services that operators can use of their task. `common.task` implements it, and `compile_program` gets it."""

    task_id: TaskId
    application_id: str
    record: RecordContext
    config: Mapping[str, Any]

    def store(self, name: str) -> Any:
        """Return the state store of this name. The store can be used from `Program.init` on."""
        ...

    def global_store(self, name: str) -> Any | None:
        """Return the global store of this name, only for reading. None if there is no such store."""
        ...

    def kept(self, name: str) -> Memory:
        """Return the number of this name. Its value is -1 if no commit has stored it. The number is stored as Kafka
        Streams' processor metadata. So an instance of Kafka Streams that takes over the task can read the number, too.
        """
        ...

    def time(self, name: str, least: int, /) -> Memory:
        """Return a time in ms. Its value is -1 before the first record. All operators of the task that use the same
        name share the time. `least`: a value that the time has reached in any case. `name`: made by `times.time_name`.
        """
        ...

    def emit(self, output: Emitted, /) -> None:
        """Add one output to the scope of the current record. Partition -1: murmur2 of the key decides."""
        ...

    def schedule(
        self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None], node: str,
        start_ms: int | None = None,
    ) -> Cancellable:
        """Call `callback(timestamp)` every `interval_ms`, from `Program.init` on. With `start_ms`, the calls come at
        that time and at whole intervals after it."""
        ...

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions of a sink's topic, for custom partitioners."""
        ...

    def request_commit(self) -> None:
        """Ask the task to commit soon."""
        ...

    def dropped(self, node: str, reason: str) -> None:
        """Count a record that a node skipped (null key, late, ...) in the metric dropped-records. Some of these records
        are logged."""
        ...

    def tally(self, node: str, what: str) -> Tally:
        """Return the count that a node has under this name, for metrics. All programs of the task share it."""
        ...

    def stream_time(self) -> int:
        """Return the highest timestamp of the records that this task has processed, -1 before the first one."""
        ...

    def wall_ms(self) -> int:
        """Return the time of the wall clock, in ms since the epoch."""
        ...


class TableStore(Protocol):
    """The methods of a timestamped key-value store or of a versioned store that table operators call. Rows are plain
    tuples, which aren't copied."""

    versioned: bool
    immutable: bool
    """True if values can't be changed. If they can, each `get_raw` decodes a new object."""

    def get_raw(self, key: Any) -> tuple[Any, int] | None:
        """Return (value, timestamp) of `key`, None if there is no row."""
        ...

    def put_raw(self, key: Any, value: Any, timestamp: int) -> None:
        """Set the row of `key`. A value of None deletes it, with the time of the current record."""
        ...

    def delete_raw(self, key: Any, timestamp: int) -> None:
        """Delete the row of `key`. `timestamp`: the time of the deletion's changelog record, and of the update that a
        cache sends."""
        ...

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """Set the function that the store calls when it flushes its cache. Returns True if this store has a cache. Then
        the operator must not forward updates itself."""
        ...


FlushListener = Callable[[Any, Any, Any, int], None]
"""A function that is called with (key, new value, old value or None, timestamp) of a row that changed since the last
flush."""


class OperatorContext(TaskServices, Protocol):
    """The object that a node's operator gets when its closure is made. It has the services of the task, the node's name
    and the node's children.

    `store` returns the stores that are connected to the node, and all global stores. It raises `TopologyError` for any
    other store.
    """

    node: str
    forward: Process
    """Sends to all children, in the order in which they were added."""
    forward_new: Process
    """Sends to all children of a table node that sends no old values. Its argument is the new value, not (new, old)."""
    forward_own: Process
    """Does the same as `forward`, for a value that the node or its user code may use afterwards. Each child that passes
    values to user functions gets a copy."""
    row_takers: RowTakers
    """What takes a row that the operator has just put or deleted, in place of `forward`."""

    def observed_time(self, least: int = -1) -> Memory:
        """Return the highest time of the records that this node has seen in its task. The result is a `time`, named
        after the node and the node's stores."""
        ...

    def forward_to(self, child: str) -> Process:
        """Return the closure of the child of this name. Raises `TopologyError` if there is none."""
        ...

    def forward_own_to(self, child: str) -> Process:
        """Return the closure of the child of this name, for a value that other nodes or user code may use, too."""
        ...

    def on_init(self, callback: Callable[[], None]) -> None:
        """Run `callback` in `Program.init`, in the order of the nodes."""
        ...

    def on_close(self, callback: Callable[[], None], /) -> None:
        """Run `callback` when the task closes, or after it was rolled back."""
        ...

    def on_end(self, callback: Callable[[], None], /) -> None:
        """Run `callback` when all of the program's nodes are closed."""
        ...


class Operator(Protocol):
    """The work of a processor node: an immutable description from which each program makes one closure. A closure's
    variables live as long as its program. A roll-back makes a new program.

    An operator that uses only the new value of a table's update may also have a method `bind_new`. `bind_new` makes a
    closure that takes the new value, not (new, old).

    Three optional attributes describe what an operator forwards. `sends_its_row`: it has just put the row that it
    forwards into its `store`. `passes_on`: it forwards the key and the value that it got (the new value of a table's
    update). If there are only such operators between a store and a sink, the sink uses the bytes that the store has
    made. `makes_values`: the value that it forwards shares no object with the value that it got.
    """

    def bind(self, context: OperatorContext) -> Process:
        """Make the operator's closure for one task. Only this closure calls the operator's user code."""
        ...
