"""The operators of a join of two tables by foreign key: two on the left side, three on the right side. Between the
sides there is one topic in each direction.

| side | operator | does |
|---|---|---|
| left | `SendSubscriptions` | sends a subscription: the key of the right table that a row refers to |
| right | `KeepSubscriptions` | stores which rows of the left table refer to which key |
| right | `AnswerSubscription` | answers a subscription with the row of the right table |
| right | `AnswerSubscribers` | when a row of the right table changes, answers all subscriptions to it |
| left | `ResolveResponses` | joins an answer with the row that asked, if that row hasn't changed since |

*Guarantees*: the semantics are those of Kafka Streams. A response has the later of both rows' timestamps. If it was
sent because the right row has changed, it has the timestamp of that change. A response to a row that has changed since
is dropped and counted, because the new row has sent a subscription of its own. An inner join drops and counts a row
without a foreign key. A left join joins it with None (KIP-962).
*Assumes*: updates come as (new value, old value). If the serde of the left table's values reads bytes and writes the
value back, the bytes are the same. The left rows of a task are in the task's partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from milestones.common.records import Change
from milestones.common.serdes import Serde
from milestones.common.topology.joins import Joiner
from milestones.common.topology.operators.getters import Getter
from milestones.common.topology.operators.subscriptions import (
    ANSWER,
    ANSWER_IF_FOUND,
    UNSUBSCRIBE,
    UNSUBSCRIBE_AND_ANSWER,
    SubscriptionResponseWrapper,
    SubscriptionSerde,
    SubscriptionWrapper,
    foreign_key_topic,
    hash_of,
    hashed_value_topic,
    prefix_of,
    primary_key_topic,
    subscriber,
)
from milestones.common.topology.operators.tables import NULL_KEY
from milestones.common.topology.program import OperatorContext, Process, TableStore
from milestones.common.topology.serde_choice import Choice, settle

NULL_FOREIGN_KEY = "null foreign key"
STALE_RESPONSE = "a response to a row that has changed since"

Write = Callable[[Any], bytes]


class SubscriptionStore(TableStore, Protocol):
    """The methods of the store of subscriptions that the operators call. The store's keys and values are bytes."""

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[bytes, Any]]:
        """Yield the rows whose keys begin with `prefix`, each as (key, (value, timestamp))."""
        ...


class BoundLink(NamedTuple):
    """A `Link` in one task. `topic`: the full name of the topic of subscriptions. The serdes are settled."""

    topic: str
    primary_key: Serde[Any]
    value: Serde[Any]
    foreign_key: Serde[Any]


@dataclass(frozen=True)
class Link:
    """The names and serdes that all operators of one join share.

    `topic`: the topic of subscriptions, without the application id. `store`: the store of subscriptions. `primary_key`
    and `value`: the serdes of the left table. `foreign_key`: the serde of the right table's keys."""

    topic: str
    store: str
    primary_key: Choice
    value: Choice
    foreign_key: Choice

    def bind(self, context: OperatorContext) -> BoundLink:
        keys, values = (context.config.get(f"default_{what}_serde") for what in ("key", "value"))
        return BoundLink(
            f"{context.application_id}-{self.topic}",
            settle(self.primary_key, keys), settle(self.value, values), settle(self.foreign_key, keys),
        )  # fmt: skip


@dataclass(frozen=True)
class SendSubscriptions:
    """Sends the subscriptions of the left table's rows. `foreign_key(key, value)` returns the key that a row refers to.
    `left`: a row that refers to no key, or that is deleted, gets an answer, too."""

    link: Link
    foreign_key: Callable[[Any, Any], Any]
    left: bool

    def bind(self, context: OperatorContext) -> Process:
        return self._left(context) if self.left else self._inner(context)

    def _inner(self, context: OperatorContext) -> Process:
        foreign_key, (write, digest_of, send) = self.foreign_key, self._bound(context)
        dropped, node = context.dropped, context.node

        def process(key: Any, change: Change, timestamp: int) -> None:
            new, old = change
            digest = digest_of(new)
            former = None if old is None else foreign_key(key, old)
            wanted = None if new is None else foreign_key(key, new)
            if wanted is None:
                if new is not None:
                    dropped(node, NULL_FOREIGN_KEY)
                if former is not None:
                    send(key, digest, timestamp, (former, UNSUBSCRIBE_AND_ANSWER))
            elif former is None or write(former) == write(wanted):
                send(key, digest, timestamp, (wanted, ANSWER_IF_FOUND))
            else:
                send(key, digest, timestamp, (former, UNSUBSCRIBE), (wanted, ANSWER))

        return process

    def _left(self, context: OperatorContext) -> Process:
        foreign_key, (write, digest_of, send) = self.foreign_key, self._bound(context)

        def process(key: Any, change: Change, timestamp: int) -> None:
            new, old = change
            if new is None and old is None:
                return
            digest = digest_of(new)
            former = None if old is None else foreign_key(key, old)
            wanted = None if new is None else foreign_key(key, new)
            if former is None or (wanted is not None and write(former) == write(wanted)):
                send(key, digest, timestamp, (wanted, ANSWER))
            else:
                send(key, digest, timestamp, (former, UNSUBSCRIBE), (wanted, ANSWER))

        return process

    def _bound(self, context: OperatorContext) -> tuple[Write, Callable[[Any], bytes | None], Callable[..., None]]:
        """Return the serialiser of foreign keys, a function that hashes a row's value, and a function that sends a
        row's subscriptions. The value is hashed before user code may change it."""
        link, forward, partition = self.link.bind(context), context.forward, context.task_id.partition
        write_value = link.value.serializer(hashed_value_topic(link.topic))

        def digest_of(value: Any) -> bytes | None:
            return None if value is None else hash_of(write_value(value))

        def send(key: Any, digest: bytes | None, timestamp: int, *subscriptions: tuple[Any, int]) -> None:
            for foreign_key, instruction in subscriptions:
                forward(foreign_key, SubscriptionWrapper(digest, instruction, key, partition), timestamp)

        return link.foreign_key.serializer(foreign_key_topic(link.topic)), digest_of, send


@dataclass(frozen=True)
class KeepSubscriptions:
    """Stores the subscriptions to each foreign key, and passes them on."""

    link: Link

    def bind(self, context: OperatorContext) -> Process:
        store: SubscriptionStore = context.store(self.link.store)
        put, delete, link = store.put_raw, store.delete_raw, self.link.bind(context)
        write = SubscriptionSerde(link.primary_key).serializer(link.topic)
        write_primary_key = link.primary_key.serializer(primary_key_topic(link.topic))
        write_foreign_key = link.foreign_key.serializer(foreign_key_topic(link.topic))
        forward, dropped, node = context.forward, context.dropped, context.node

        def process(key: Any, subscription: SubscriptionWrapper, timestamp: int) -> None:
            instruction = subscription.instruction
            if key is not None:
                row = prefix_of(write_foreign_key(key)) + write_primary_key(subscription.primary_key)
                if instruction in (UNSUBSCRIBE, UNSUBSCRIBE_AND_ANSWER):
                    delete(row, timestamp)
                else:
                    put(row, write(subscription), timestamp)
            elif instruction != ANSWER:
                dropped(node, NULL_FOREIGN_KEY)
                return
            forward(key, subscription, timestamp)

        return process


@dataclass(frozen=True)
class AnswerSubscription:
    """Answers a subscription with the row of the right table, as its instruction says."""

    table: Getter

    def bind(self, context: OperatorContext) -> Process:
        get, forward = self.table.bind(context), context.forward

        def process(key: Any, subscription: SubscriptionWrapper, timestamp: int) -> None:
            digest, instruction, primary_key, partition = subscription
            if instruction == UNSUBSCRIBE:
                return
            row = None if key is None else get(key)
            if row is None and instruction == ANSWER_IF_FOUND:
                return
            value, stored = row or (None, timestamp)
            if instruction == UNSUBSCRIBE_AND_ANSWER:
                value = None
            forward(primary_key, SubscriptionResponseWrapper(digest, value, partition), max(timestamp, stored))

        return process


@dataclass(frozen=True)
class AnswerSubscribers:
    """Answers all subscriptions to a row of the right table, in the order of the rows' bytes."""

    link: Link

    def bind(self, context: OperatorContext) -> Process:
        answer = self.bind_new(context)

        def process(key: Any, change: Change, timestamp: int) -> None:
            answer(key, change[0], timestamp)

        return process

    def bind_new(self, context: OperatorContext) -> Process:
        """Make the closure that takes the row's new value only."""
        store: SubscriptionStore = context.store(self.link.store)
        scan, link = store.prefix_scan, self.link.bind(context)
        write = link.foreign_key.serializer(foreign_key_topic(link.topic))
        read = link.primary_key.deserializer(primary_key_topic(link.topic))
        forward, dropped, node = context.forward, context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                dropped(node, NULL_KEY)
                return
            prefix = prefix_of(write(key))
            for row, (subscription, _) in scan(prefix):
                digest, partition = subscriber(subscription)
                forward(read(row[len(prefix) :]), SubscriptionResponseWrapper(digest, value, partition), timestamp)

        return process


@dataclass(frozen=True)
class ResolveResponses:
    """Joins responses with the rows of the left table. `left`: if a response has no value, the row is joined with
    None."""

    link: Link
    table: Getter
    joiner: Joiner
    left: bool

    def bind(self, context: OperatorContext) -> Process:
        get, join, left, link = self.table.bind(context), self.joiner, self.left, self.link.bind(context)
        write = link.value.serializer(hashed_value_topic(link.topic))
        forward, dropped, node = context.forward, context.dropped, context.node

        def process(key: Any, response: SubscriptionResponseWrapper, timestamp: int) -> None:
            row = get(key)
            value, current = (None, None) if row is None else (row[0], hash_of(write(row[0])))
            digest, other, _ = response
            if digest != current:
                dropped(node, STALE_RESPONSE)
            elif other is None and (row is None or not left):
                forward(key, None, timestamp)
            else:
                forward(key, join(value, other), timestamp)

        return process
