"""Exception handlers: orders that can't be used go to a dead letter topic, the others are summed up per customer.

Two things may be wrong with an order: it isn't JSON (the deserialization handler decides), or something is missing in
it (the processing handler decides). Any other error stops the application: it would be a bug in this program. A dead
letter has the bytes of the order, and headers that say what was wrong and where the order came from (KIP-1034).

    milestones broker --port 9092
    python examples/console.py orders spent:long orders-dead-letters --keyed
        # type `ann:{"quantity": 2, "cents": 350}`, then `ann:{"quantity": 2}`, then `ann:hello`
    python examples/dead_letters.py
"""

from __future__ import annotations

from typing import Any

from milestones import ErrorContext, LogAndContinue, LogAndFail, Response, Streams, StreamsBuilder, serdes

DEAD_LETTERS = "orders-dead-letters"


def spend(_customer: str, order: dict[str, Any], cents: int) -> int:
    """What a customer has spent, with one order more."""
    return cents + int(order["quantity"]) * int(order["cents"])


def handle(context: ErrorContext, error: Exception) -> Response:
    """An incomplete order is the customer's mistake, everything else is ours."""
    handler = LogAndContinue(DEAD_LETTERS) if isinstance(error, KeyError) else LogAndFail()
    return handler(context, error)


builder = StreamsBuilder()
(
    builder.stream("orders", key=serdes.STRING, value=serdes.JSON)
    .group_by_key()
    .aggregate(int, spend, "spent", value=serdes.LONG)
    .to_stream()
    .to("spent")
)

SETTINGS: dict[str, Any] = {
    "deserialization_exception_handler": "log_and_continue",
    "processing_exception_handler": handle,
    "errors_dead_letter_queue_topic_name": DEAD_LETTERS,
}

streams = Streams(
    builder,
    application_id="orders",
    processing_guarantee="exactly_once_v2",
    **SETTINGS,
)

if __name__ == "__main__":
    raise SystemExit(streams.run())
