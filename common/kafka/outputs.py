"""Hands outputs of an `OutputProducer` to the client, and makes errors and reports about single ones.

*Guarantees*: the functions keep no state.
*Assumes*: the thread that owns the producer calls them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import starmap
from operator import itemgetter, length_hint
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import TopicMetadata  # type: ignore[attr-defined]

from milestones.common.errors import ProductionError
from milestones.common.kafka.clients import text_of
from milestones.common.records import TOPIC, UNKNOWN_TIMESTAMP, Emitted, Output, TaskId, with_report

WHY_S = 1.0
"""The time-out of the question to Kafka why outputs wait."""

NAMED = 10
"""The most topics or partitions that a text names."""

AT_ONCE: Final = 1_000
"""The most outputs that one call of C code hands over. The call holds the GIL: 0.45 ms for 1,000 outputs of 100 bytes.
This is a tenth of the time after which Python takes the GIL from a thread."""

Report = Callable[..., None]

_TOPIC = itemgetter(TOPIC)


def unwritable(task: TaskId, output: Output, error: Exception) -> ProductionError:
    """Returns the error for an output that the client can't send because one of its fields has a wrong type or
    value."""
    return ProductionError(
        f"task {task}: Kafka's client can't take a record for {output.topic!r} of {output.node}, with timestamp "
        f"{output.timestamp!r}, partition {output.partition!r}, headers {output.headers!r:.200}, a key of "
        f"{type(output.key).__qualname__} and a value of {type(output.value).__qualname__}: {error}; mend the serde, "
        "the partitioner or the handler that made it",
        task,
    )


def reported(message: Message) -> Output:
    """Returns the output that a delivery report is about. The report has no timestamp and no node."""
    partition: int | None = message.partition()
    return Output(
        topic=message.topic() or "",
        partition=-1 if partition is None else partition,
        key=message.key(),
        value=message.value(),
        timestamp=UNKNOWN_TIMESTAMP,
        headers=message.headers(),  # type: ignore[arg-type]  # bytes, as we sent them
        node="",
    )


def with_reports(outputs: Sequence[Emitted], reports: Mapping[int, Report]) -> Sequence[Emitted]:
    """Returns the outputs, those at the indexes in `reports` with their delivery report."""
    if not reports:
        return outputs
    reporting = list(outputs)
    for index, report in reports.items():
        reporting[index : index + 1] = with_report(outputs[index : index + 1], report)
    return reporting


def hand_over(produce: Callable[..., None], outputs: Sequence[Emitted], report: Report | None) -> int:
    """Give outputs to the client, in order, until `produce` refuses one of them. Returns how many `produce` has taken.
    The error isn't raised: the caller gives the refused output to `produce` once more.

    `report`: the delivery report of each output. If it is None, outputs have their own reports, or none."""
    for begin in range(0, len(outputs), AT_ONCE):
        chunk = outputs[begin : begin + AT_ONCE]
        if report is not None:
            chunk = with_report(chunk, report)
        left = iter(chunk)
        try:
            deque(starmap(produce, left), 0)  # calls `produce` for each output, and nothing else
        except (BufferError, KafkaException, TypeError, ValueError, OverflowError):
            return begin + len(chunk) - length_hint(left) - 1
    return len(outputs)


def last_of_changelogs(outputs: Sequence[Emitted], changelogs: Collection[str]) -> set[int]:
    """Returns the index of the last output to each of `changelogs`. All outputs are of one task, which writes to one
    partition of each changelog."""
    missing, last = set(changelogs), set[int]()
    if not missing or missing.isdisjoint(map(_TOPIC, outputs)):  # always so from m5 on
        return last
    for index in range(len(outputs) - 1, -1, -1):
        if not missing:
            break
        topic = outputs[index][TOPIC]
        if topic in missing:
            missing.discard(topic)
            last.add(index)
    return last


class WhyFull(NamedTuple):
    """The reason why outputs wait, as a text for people. `missing`: topics of the outputs that don't exist."""

    text: str
    missing: tuple[str, ...] = ()


def why_full(producer: Producer, topics: Collection[str]) -> WhyFull:
    """Ask Kafka why outputs for these topics wait. Returns a text that names missing topics or partitions without a
    leader. An empty `topics` means that the client knows none of the outputs' topics yet."""
    if not topics:
        return WhyFull(
            "the client knows none of their topics yet; check that each topic that the application writes to exists"
        )
    try:
        found = producer.list_topics(timeout=WHY_S).topics
    except KafkaException as error:
        return WhyFull(f"Kafka can't be asked why: {text_of(error)}; check that the brokers are up")
    missing = tuple(sorted(set(topics) - found.keys()))
    if missing:
        named = ", ".join(missing[:NAMED])
        return WhyFull(f"there is no topic {named}, or this principal may not see it; create what is missing", missing)
    return WhyFull(_why_slow(found, topics))


def _why_slow(found: Mapping[str, TopicMetadata], topics: Collection[str]) -> str:
    lacking = [
        f"{topic}-{one.id}" for topic in sorted(topics) for one in found[topic].partitions.values() if one.leader < 0
    ]
    if lacking:
        more = "" if len(lacking) <= NAMED else f" and {len(lacking) - NAMED} more"
        return f"without a leader: {', '.join(lacking[:NAMED])}{more}; check the brokers that have their replicas"
    return (
        f"all partitions of {', '.join(sorted(topics))} have a leader; check that enough of their replicas are in sync "
        "(min.insync.replicas), and how loaded the brokers are"
    )
