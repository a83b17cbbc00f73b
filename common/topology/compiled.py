"""`compile_program` turns a sub-topology into the nested calls that a task runs.

The operator of each node becomes a closure that calls the closures of the node's children. The leaves are made first.
So plain calls take one record through the whole program. Every closure has a code object of its own, with the node's
name. So tracebacks show names such as `KSTREAM-MAPVALUES-0000000001`, and each node has its own inline caches.

*Guarantees*: the order of calls is that of Kafka Streams: depth first, children in the order in which they were added.
The sub-topology isn't changed, and each call of `compile_program` makes a new program. If a value goes to several
children, those that pass it to a function of the user get their own copies. So if such a function changes the value, no
other branch sees the change.
*Assumes*: one thread at a time runs a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast

from milestones.common.copies import UNCHANGEABLE, copy_of
from milestones.common.errors import TopologyError
from milestones.common.patterns import matches
from milestones.common.records import Headers
from milestones.common.serdes import Serde
from milestones.common.state.stores.read_only import ReadOnlyStore
from milestones.common.state.times import time_name
from milestones.common.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, SubTopology
from milestones.common.topology.operators.suppression import Suppress
from milestones.common.topology.program import Memory, Process, RowTakers, TaskServices
from milestones.common.topology.sink import bind_sink, row_sender
from milestones.common.topology.timestamps import SourceRecord, TimestampExtractor, wallclock_timestamp_extractor
from milestones.common.topology.tracebacks import MARK
from milestones.common.topology.user_functions import hands_out, passes_its_value

F = TypeVar("F", bound=Callable[..., None])

Observe = Callable[[str, Process], Process]


@dataclass(frozen=True)
class CompiledSource:
    """One source topic of a task. `key` and `value` deserialise (data, headers), and return None for None. `read_key`
    and `read_value` are the serdes' own functions. These must not get None, and raise the serdes' own errors.

    If `timestamp` is None, the record's own timestamp counts, and a negative one is an error.
    """

    node: str
    key: Callable[[bytes | None, Headers | None], Any]
    value: Callable[[bytes | None, Headers | None], Any]
    read_key: Callable[[bytes], Any]
    read_value: Callable[[bytes], Any]
    timestamp: TimestampExtractor | None
    process: Process


class Program:
    """The closures of one task. `sources`: the compiled sources, by topic."""

    def __init__(self, sources: Mapping[str, CompiledSource], contexts: list[BoundContext]) -> None:
        self.sources = sources
        self._contexts = contexts

    def init(self) -> None:
        """Call `Processor.init` in the order of the nodes. Stores must be ready."""
        for context in self._contexts:
            for callback in context.callbacks.init:
                callback()

    def close(self) -> None:
        """Call `close` of every processor, in reverse order of the nodes, then raise the first error. After that, the
        processors' contexts refuse all calls."""
        first: BaseException | None = None
        for context in reversed(self._contexts):
            for callback in context.callbacks.close:
                try:
                    callback()
                except BaseException as error:  # an error of one `close` must not prevent the others
                    first = first or error
        for context in self._contexts:
            for callback in context.callbacks.end:
                callback()
        if first is not None:
            raise first


class Writer(NamedTuple):
    """The node that puts the records of a topic into a store."""

    node: str
    topic: str


class Child(NamedTuple):
    """The closures of a child node. `own` is for a value that other nodes or user code may use, too: it passes a copy
    on, if one is needed."""

    process: Process
    own: Process


class Callbacks(NamedTuple):
    """The functions that a node's operator has given: for `Program.init`, for `Program.close`, and for its end."""

    init: list[Callable[[], None]]
    close: list[Callable[[], None]]
    end: list[Callable[[], None]]


class BoundContext:
    """`program.OperatorContext` of one node: its task's services, and its children."""

    node: str
    forward: Process
    forward_new: Process
    forward_own: Process
    application_id: str
    config: Mapping[str, Any]

    def __init__(
        self,
        services: TaskServices,
        node: str,
        stores: tuple[str, ...],
        children: Mapping[str, Child],
        forward: Process,
        forward_new: Process,
        forward_own: Process,
        read_only: Mapping[str, Writer],
        row_takers: RowTakers,
    ) -> None:
        self.node, self.forward, self.forward_new, self.forward_own = node, forward, forward_new, forward_own
        self.row_takers = row_takers
        self.global_store = services.global_store
        self.callbacks: Callbacks = Callbacks([], [], [])
        self.on_close, self.on_end = self.callbacks.close.append, self.callbacks.end.append
        self._services, self._stores, self._children = services, stores, children
        self._read_only = read_only
        self.task_id, self.application_id = services.task_id, services.application_id
        self.record, self.config = services.record, services.config
        self.emit, self.schedule = services.emit, services.schedule
        self.tally = services.tally
        self.kept, self.time = services.kept, services.time
        self.partitions_of, self.request_commit = services.partitions_of, services.request_commit
        self.dropped, self.stream_time, self.wall_ms = services.dropped, services.stream_time, services.wall_ms

    def store(self, name: str) -> Any:
        if name in self._stores:
            own, writer = self._services.store(name), self._read_only.get(name)
            return own if writer is None or writer.node == self.node else ReadOnlyStore(own, self.node, *writer)
        store = self.global_store(name)
        if store is None:
            raise TopologyError(
                f"processor {self.node} has no access to the store {name}, only to {list(self._stores)}: name it in "
                "process(supplier, store), or connect it with connect_processor_and_state_stores"
            )
        return store

    def observed_time(self, least: int = -1) -> Memory:
        """The highest time of the records that this node has seen in its task."""
        return self.time(time_name(" ".join((self.node, *self._stores, "observed"))), least)

    def forward_to(self, child: str) -> Process:
        return self._child(child).process

    def forward_own_to(self, child: str) -> Process:
        return self._child(child).own

    def _child(self, child: str) -> Child:
        try:
            return self._children[child]
        except KeyError:
            raise TopologyError(f"{self.node} has no child {child}: its children are {list(self._children)}") from None

    def on_init(self, callback: Callable[[], None]) -> None:
        self.callbacks.init.append(named(callback, self.node))


def compile_program(
    sub: SubTopology, services: TaskServices, topics: Iterable[str], observe: Observe | None = None
) -> Program:
    """Compile `sub` for one task. `topics`: the topics of the task's input partitions. A source with a pattern gets
    those topics that its pattern matches.

    `observe(node, process)` returns the function that is called in place of a node's closure.
    """
    return _Compiler(sub, services, observe).program(topics)


class _Compiler:
    """Makes the closures of the nodes, from the leaves up. `_bound` and `_bound_new` contain the closures made so far.
    """

    def __init__(self, sub: SubTopology, services: TaskServices, observe: Observe | None) -> None:
        self._sub, self._services, self._observe = sub, services, observe
        self._children: dict[str, list[str]] = {node.name: [] for node in sub.nodes}
        for node in sub.nodes:
            for parent in dict.fromkeys(node.parents):
                self._children[parent].append(node.name)
        self._nodes = {node.name: node for node in sub.nodes}
        self._writers = _writers(sub)
        self._sides = {node.name for node in sub.nodes if isinstance(node, ProcessorNode) and node.side}
        self._bound: dict[str, Child] = {}
        self._bound_new: dict[str, Child] = {}
        self._hands_out: set[str] = set()
        self._row_takers: dict[str, RowTakers] = {}

    def program(self, topics: Iterable[str]) -> Program:
        contexts = [self._bind(node) for node in reversed(self._sub.nodes)]
        contexts.reverse()
        return Program(self._sources(topics), contexts)

    def _bind(self, node: Node) -> BoundContext:
        names = self._children[node.name]
        children = {name: self._bound[name] for name in names}
        to_all = [name for name in names if name not in self._sides]
        below, below_new = [self._bound[name] for name in to_all], [self._bound_new[name] for name in to_all]
        closures = [process for child in (*below, *below_new) for process in child]
        context = BoundContext(
            services=self._services,
            node=node.name,
            stores=node.stores if isinstance(node, ProcessorNode) else (),
            children=children,
            forward=named(_to_all(_each(below)), node.name, closures),
            forward_new=named(_to_all(_each(below_new)), node.name, closures),
            forward_own=named(_to_all([child.own for child in below]), node.name, closures),
            read_only=self._writers,
            row_takers=self._row_takers.get(node.name, RowTakers()),
        )
        process, process_new = self._closures(node, context)
        owned = [*closures, context.forward, context.forward_new]
        bound = self._observed(node, named(process, node.name, owned))
        bound_new = (
            _wrap_new(bound) if process_new is None else self._observed(node, named(process_new, node.name, owned))
        )
        if hands_out(node) or (passes_its_value(node) and not self._hands_out.isdisjoint(names)):
            self._hands_out.add(node.name)
            self._bound[node.name], self._bound_new[node.name] = _copying(bound), _copying(bound_new)
        else:
            self._bound[node.name], self._bound_new[node.name] = Child(bound, bound), Child(bound_new, bound_new)
        return context

    def _observed(self, node: Node, process: Process) -> Process:
        return process if self._observe is None else self._observe(node.name, process)

    def _closures(self, node: Node, context: BoundContext) -> tuple[Process, Process | None]:
        if isinstance(node, SourceNode):
            return context.forward, None
        if isinstance(node, SinkNode):
            return self._sink(node, context), None
        if isinstance(node.operator, Suppress):
            self._keep_rows(node, node.operator, context)
        bind_new = getattr(node.operator, "bind_new", None)
        return node.operator.bind(context), None if bind_new is None else bind_new(context)

    def _sink(self, node: SinkNode, context: BoundContext) -> Process:
        """Make the closure of a sink, and the function of the operator whose rows it sends, if there is one."""
        source = None if self._observe is not None else self._row_source(node)
        if source is not None:
            operator, store = source
            sender = row_sender(node, context, store)
            if sender is not None:
                self._row_takers[operator] = RowTakers(send=named(sender, node.name))
        return bind_sink(node, context)

    def _keep_rows(self, node: Node, suppress: Suppress, context: BoundContext) -> None:
        """Make the function of the operator whose rows `suppress` keeps back, if there is one."""
        source = None if self._observe is not None else self._row_source(node)
        if source is not None:
            name, store = source
            operator: Any = cast(ProcessorNode, self._nodes[name]).operator
            if getattr(operator, "send_old_values", False):
                keeper = suppress.row_keeper(context, store)
                if keeper is not None:
                    self._row_takers[name] = RowTakers(keep=named(keeper, node.name))

    def _row_source(self, last: Node) -> tuple[str, Any] | None:
        """Return the node and the store whose rows go to the node `last`. Each row goes there immediately after it was
        put into the store. No user code runs in between that could change the key or the value."""
        node = last
        while len(node.parents) == 1 and len(self._children[node.parents[0]]) == 1:
            node = self._nodes[node.parents[0]]
            operator: Any = getattr(node, "operator", None)
            if getattr(operator, "sends_its_row", False):
                return None if operator.store is None else (node.name, self._services.store(operator.store))
            if not getattr(operator, "passes_on", False):
                return None
        return None

    def _sources(self, topics: Iterable[str]) -> dict[str, CompiledSource]:
        nodes = [node for node in self._sub.nodes if isinstance(node, SourceNode)]
        return {topic: self._source(_source_of(topic, nodes), topic) for topic in topics}

    def _source(self, node: SourceNode, topic: str) -> CompiledSource:
        key, value = node.key, node.value
        assert isinstance(key, Serde)  # settled by `resolve`
        assert isinstance(value, Serde)
        return CompiledSource(
            node=node.name,
            key=_decoder(key, topic),
            value=_decoder(value, topic),
            read_key=key.deserializer(topic),
            read_value=value.deserializer(topic),
            timestamp=self._extractor(node),
            process=self._bound[node.name].process,
        )

    def _extractor(self, node: SourceNode) -> TimestampExtractor | None:
        if node.own_timestamps:
            return None
        extractor = node.timestamp_extractor or self._services.config.get("default_timestamp_extractor")
        if extractor is not wallclock_timestamp_extractor:
            return extractor
        wall_ms = self._services.wall_ms

        def by_clock_of_task(_record: SourceRecord, _partition_time: int) -> int:
            return wall_ms()

        return by_clock_of_task


def _writers(sub: SubTopology) -> dict[str, Writer]:
    """Return the node that writes each store whose rows are the records of a source topic, by store. This node is a
    child of the topic's source."""
    sources = {topic: node.name for node in sub.nodes if isinstance(node, SourceNode) for topic in node.topics}
    return {
        spec.name: Writer(node.name, spec.source_topic)
        for spec in sub.stores
        for node in reversed(sub.nodes)
        if spec.source_topic in sources and isinstance(node, ProcessorNode) and spec.name in node.stores
        and sources[spec.source_topic] in node.parents
    }  # fmt: skip


def _source_of(topic: str, nodes: Iterable[SourceNode]) -> SourceNode:
    matching = [
        node
        for node in nodes
        if (topic in node.topics if node.pattern is None else matches(node.pattern, topic))
    ]
    if len(matching) != 1:
        found = " and ".join(node.name for node in matching) or "no source"
        raise TopologyError(f"topic {topic} belongs to {found} of this sub-topology: exactly one must read it")
    return matching[0]


def _decoder(serde: Serde[Any], topic: str) -> Callable[[bytes | None, Headers | None], Any]:
    def decode(data: bytes | None, _headers: Headers | None = None) -> Any:
        return serde.deserialize(topic, data)

    return decode


def _copying(process: Process) -> Child:
    """Return the closures of a node that passes its value to user functions."""

    def own(key: Any, value: Any, timestamp: int) -> None:
        process(key, value if value.__class__ in UNCHANGEABLE else copy_of(value), timestamp)

    return Child(process, own)


def _each(children: list[Child]) -> list[Process]:
    """Return the closures of children that get the same value, one after another. The last child may get the value
    itself, without a copy."""
    return [*[child.own for child in children[:-1]], *[child.process for child in children[-1:]]]


def _to_all(children: list[Process]) -> Process:
    if not children:
        return _nothing
    if len(children) == 1:
        return children[0]
    if len(children) == 2:
        first, second = children

        def to_both(key: Any, value: Any, timestamp: int) -> None:
            first(key, value, timestamp)
            second(key, value, timestamp)

        return to_both

    def to_each(key: Any, value: Any, timestamp: int) -> None:
        for child in children:
            child(key, value, timestamp)

    return to_each


def _nothing(key: Any, value: Any, timestamp: int) -> None:
    """Do nothing, at the end of a stream that no node reads."""


def _wrap_new(process: Process) -> Process:
    def process_new(key: Any, value: Any, timestamp: int) -> None:
        process(key, (value, None), timestamp)

    return process_new


def named(process: F, node: str, owned: Iterable[Process] = ()) -> F:
    """Return `process` with a code object that has the node's name. `process` is returned unchanged if it belongs to
    another node (`owned`), or if it isn't a Python function."""
    if process is _nothing or not isinstance(process, FunctionType) or any(process is other for other in owned):
        return process
    code = process.__code__.replace(co_name=node, co_qualname=MARK + node)
    renamed = FunctionType(code, process.__globals__, node, process.__defaults__, process.__closure__)
    renamed.__qualname__ = node
    return cast(F, renamed)
