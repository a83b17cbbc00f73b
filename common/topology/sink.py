"""Sinks choose the topic and the partition of a record, serialise it, and pass it to the task.

*Guarantees*: a record is serialised immediately, so user code can't change it later. Without a partitioner the
partition is -1: then the producer takes the murmur2 hash of the key, as in Java. A windowed key of a stream goes to the
partition of the key without its window, as in Kafka Streams, so all windows of a key are in one partition. An upsert
sink refuses a record without a key on every stage, even on stages that send all of its records.
*Assumes*: serdes are settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from milestones.common.errors import SerializationError, TopologyError
from milestones.common.partitioner import partition_of, positive_hash
from milestones.common.records import KEY, TOPIC, Emitted, Headers
from milestones.common.serdes import Serde, unwritable
from milestones.common.state.stores.bytes_of_rows import key_part
from milestones.common.state.stores.suppress_buffer import SuppressBuffer
from milestones.common.topology.nodes import SinkNode, SinkRecord
from milestones.common.topology.program import OperatorContext, Process, SendRow
from milestones.common.windowed import SessionWindowedSerde, WindowedSerde
from milestones.common.writable import first_timestamp

_BY_PRODUCER = (-1,)


class OutputSerializationError(SerializationError):
    """The serde of a sink refused a key or a value, or an upsert sink got a record without a key. `origin`: "key" or
    "value". `topic`: the record's topic."""

    topic: str
    origin: str
    node: str

    def __init__(self, message: str, topic: str, origin: str, node: str) -> None:
        super().__init__(f"sink {node}: {message}")
        self.topic, self.origin, self.node = topic, origin, node


def bind_sink(node: SinkNode, context: OperatorContext) -> Process:
    """Make the closure of a sink."""
    if isinstance(node.topic, str) and node.partitioner is None:
        return _fixed(node, node.topic, context)
    return _chosen(node, context)


def _fixed(node: SinkNode, topic: str, context: OperatorContext) -> Process:
    emit, record, name = _emit(node, context), context.record, context.node
    key_serde, value_serde = _serdes(node)
    key_bytes, value_bytes = key_serde.serializer(topic), value_serde.serializer(topic)
    of_inner = _by_inner_key(node, context)

    def process(key: Any, value: Any, timestamp: int) -> None:
        try:
            raw_key = None if key is None else key_bytes(key)
            raw_value = None if value is None else value_bytes(value)
        except Exception as error:
            raise _refused(node, topic, key, value, error) from error
        partition = -1 if of_inner is None or raw_key is None else of_inner(topic, raw_key)
        emit((topic, raw_value, raw_key, partition, None, name, timestamp or first_timestamp(), record.headers))

    return process


def row_sender(node: SinkNode, context: OperatorContext, store: Any) -> SendRow | None:
    """Make a function that sends rows as they are in the store. None if the sink writes other bytes, or if the rows
    go through the store's cache."""
    topic, key, value = node.topic, node.key, node.value
    if not isinstance(topic, str) or node.partitioner is not None:
        return None
    assert isinstance(key, Serde)  # settled by `resolve`, as the value
    assert isinstance(value, Serde)
    if isinstance(store, SuppressBuffer):
        part = slice(None) if store.is_written_by(topic, key, value) else None
    else:
        part = key_part(store, topic, key, value)
    if part is None:
        return None
    windowed = isinstance(key, WindowedSerde | SessionWindowedSerde)
    return _windowed_sender(node, topic, part, context) if windowed else _sender(topic, context)


def _sender(topic: str, context: OperatorContext) -> SendRow:
    emit, name = context.emit, context.node

    def send_row(key: bytes, _: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        emit((topic, value, key, -1, None, name, timestamp or first_timestamp(), headers))

    return send_row


def _windowed_sender(node: SinkNode, topic: str, key_of: slice, context: OperatorContext) -> SendRow:
    emit, name, partitions_of, by_inner_key = context.emit, context.node, context.partitions_of, node.by_inner_key
    partition, partitions, last = -1, 0, b""

    def send_row(key: bytes, place: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        nonlocal partition, partitions, last
        if by_inner_key and (key is not last or not partitions):  # hopping windows: several rows of one key
            if not partitions:
                partitions = partitions_of(topic)
            partition, last = positive_hash(key) % partitions, key
        emit((topic, value, place[key_of], partition, None, name, timestamp or first_timestamp(), headers))

    return send_row


def _emit(node: SinkNode, context: OperatorContext) -> Callable[[Emitted], None]:
    """Return a function that passes the sink's records to the task."""
    if not node.upserts:
        return context.emit
    emit = context.emit

    def emit_with_key(output: Emitted) -> None:
        if output[KEY] is None:
            raise _without_key(node, output[TOPIC])
        emit(output)

    return emit_with_key


def _by_inner_key(node: SinkNode, context: OperatorContext) -> Callable[[str, bytes], int] | None:
    """Make a function that returns the partition of a topic for a windowed key. None if keys aren't windowed, or if a
    partitioner chooses. The number of a topic's partitions doesn't change, so it is read only once."""
    serde, partitions_of = node.key, context.partitions_of
    if not node.by_inner_key or node.partitioner or not isinstance(serde, WindowedSerde | SessionWindowedSerde):
        return None
    window_bytes = serde.tail.size
    counts: dict[str, int] = {}

    def of_inner(topic: str, raw_key: bytes) -> int:
        if topic not in counts:
            counts[topic] = partitions_of(topic)
        return partition_of(raw_key[:-window_bytes], counts[topic])

    return of_inner


def _chosen(node: SinkNode, context: OperatorContext) -> Process:
    emit, record, name = _emit(node, context), context.record, context.node
    choose, partitions = _topic_chooser(node, context), _partition_chooser(node, context)
    key_serde, value_serde = _serdes(node)
    of_inner = _by_inner_key(node, context)

    def process(key: Any, value: Any, timestamp: int) -> None:
        topic = choose(key, value, timestamp)
        try:
            raw_key = None if key is None else key_serde.serializer(topic)(key)
            raw_value = None if value is None else value_serde.serializer(topic)(value)
        except Exception as error:
            raise _refused(node, topic, key, value, error) from error
        if of_inner is None or raw_key is None:
            chosen = partitions(topic, key, value)
        else:
            chosen = (of_inner(topic, raw_key),)
        for partition in chosen:
            emit((topic, raw_value, raw_key, partition, None, name, timestamp or first_timestamp(), record.headers))

    return process


def _topic_chooser(node: SinkNode, context: OperatorContext) -> Callable[[Any, Any, int], str]:
    topic, record = node.topic, context.record
    if isinstance(topic, str):
        return lambda *_: topic

    def choose(key: Any, value: Any, timestamp: int) -> str:
        source = record.metadata
        where = (None, -1, -1) if source is None else source
        chosen: Any = topic(key, value, SinkRecord(timestamp, list(record.headers or ()), *where))
        if not isinstance(chosen, str) or not chosen:
            raise TopologyError(f"the topic that sink {node.name} chose must be a str, not {chosen!r}")
        return chosen

    return choose


def _partition_chooser(node: SinkNode, context: OperatorContext) -> Callable[[str, Any, Any], Iterable[int]]:
    partitioner, partitions_of = node.partitioner, context.partitions_of
    dropped, name = context.dropped, context.node
    if partitioner is None:
        return lambda *_: _BY_PRODUCER

    def choose(topic: str, key: Any, value: Any) -> Iterable[int]:
        count = partitions_of(topic)
        chosen = partitioner(topic, key, value, count)
        if chosen is None:
            return _BY_PRODUCER
        partitions = (chosen,) if isinstance(chosen, int) else tuple(sorted(set(chosen)))
        for partition in partitions:
            if not 0 <= partition < count:
                raise TopologyError(f"the partitioner of sink {node.name} chose {partition} of {topic}'s {count}")
        if not partitions:
            dropped(name, "the partitioner chose no partition")
        return partitions

    return choose


def _serdes(node: SinkNode) -> tuple[Serde[Any], Serde[Any]]:
    assert isinstance(node.key, Serde)  # settled by `resolve`
    assert isinstance(node.value, Serde)
    return node.key, node.value


def _refused(node: SinkNode, topic: str, key: Any, value: Any, error: Exception) -> OutputSerializationError:
    """Make the error of a refused record. The key is serialised once more to find out which of both was refused. This
    costs little, as only refused records come here."""
    key_serde, value_serde = _serdes(node)
    origin, serde, refused = "value", value_serde, value
    try:
        key_serde.serialize(topic, key)
    except SerializationError:
        origin, serde, refused = "key", key_serde, key
    return OutputSerializationError(str(unwritable(serde, topic, refused, error)), topic, origin, node.name)


def _without_key(node: SinkNode, topic: str) -> OutputSerializationError:
    return OutputSerializationError(
        f"a record for topic {topic} has no key, and with upserts=True a record replaces the ones before of its key. "
        "Give it a key, drop it before the sink, or leave upserts=True out", topic, "key", node.name,
    )  # fmt: skip
