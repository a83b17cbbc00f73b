"""Exception handlers: orders that can't be used go to a dead letter topic, the others are summed up per customer.

Two things may be wrong with an order: it isn't one (the deserialization handler decides), or nothing is ordered (the
processing handler decides). Any other error stops the application: it would be a bug in this program. A dead letter has
the bytes of the order, and headers that say what was wrong and where the order came from (KIP-1034).

    milestones broker --port 9092
    python examples/console.py orders spent:long orders-dead-letters --keyed
        # type `ann:{"quantity": 2, "cents": 350}`, then `ann:{"quantity": 0, "cents": 350}`, then `ann:hello`
    python examples/dead_letters.py
"""

from __future__ import annotations

from dataclasses import dataclass

from milestones import ErrorContext, LogAndContinue, LogAndFail, Response, Streams, StreamsBuilder

DEAD_LETTERS = "orders-dead-letters"


@dataclass
class Order:
    """Read from JSON, as its type says."""

    quantity: int
    cents: int


class NothingOrderedError(Exception):
    """An order of nothing."""


def spend(_customer: str, order: Order, cents: int) -> int:
    """What a customer has spent, with one order more."""
    if order.quantity < 1:
        raise NothingOrderedError(f"the quantity is {order.quantity}")
    return cents + order.quantity * order.cents


def handle(context: ErrorContext, error: Exception) -> Response:
    """An order of nothing is the customer's mistake, everything else is ours."""
    handler = LogAndContinue(DEAD_LETTERS) if isinstance(error, NothingOrderedError) else LogAndFail()
    return handler(context, error)


builder = StreamsBuilder()
(
    builder.stream("orders", key=str, value=Order)
    .group_by_key()
    .aggregate(int, spend, "spent", value=int)
    .to_stream()
    .to("spent")
)

streams = Streams(
    builder,
    application_id="orders",
    processing_guarantee="exactly_once_v2",
    deserialization_exception_handler="log_and_continue",
    processing_exception_handler=handle,
    errors_dead_letter_queue_topic_name=DEAD_LETTERS,
)

if __name__ == "__main__":
    raise SystemExit(streams.run())
