"""The bytes between the two sides of a join by foreign key. Hashes were computed by Kafka Streams 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common import serdes
from milestones.common.topology.operators.subscriptions import (
    ANSWER,
    ANSWER_IF_FOUND,
    UNSUBSCRIBE,
    SubscriptionResponseSerde,
    SubscriptionResponseWrapper,
    SubscriptionSerde,
    SubscriptionWrapper,
    hash_of,
    prefix_of,
    subscriber,
)

HASHES = {
    "": "9d2764a018e329428c3cf3b035938518",
    "e5f12c55dd85": "4a3bbe4a26e6fad1cb9d2385c894498d",
    "9878f9e93df1f658367aca28": "b1c72876f6a9a8c7919d04ea2946d7c0",
    "4f1ce8b1698341734a6823ce02043e016b": "dedf25f8105866653408bd521b7d4567",
    "214a2ddab82fec85c0b9fe0549c475be5b88": "c06e285a4b02546bb39228721a9a41ac",
}
DIGEST = bytes(range(16))
SUBSCRIPTIONS: Any = SubscriptionSerde(serdes.BYTES)
RESPONSES: Any = SubscriptionResponseSerde(serdes.BYTES)

DIGESTS = st.none() | st.binary(min_size=16, max_size=16)
KEYS = st.binary(max_size=5)


@pytest.mark.parametrize(("data", "hashed"), HASHES.items())
def test_the_hash_is_that_of_kafka_streams(data: str, hashed: str) -> None:
    assert hash_of(bytes.fromhex(data)).hex() == hashed


@pytest.mark.parametrize(
    ("subscription", "data"),
    [
        (SubscriptionWrapper(DIGEST, ANSWER_IF_FOUND, b"key", 7), b"\x01\x03" + DIGEST + b"key\x00\x00\x00\x07"),
        (SubscriptionWrapper(None, ANSWER, b"key", 7), b"\x81\x02key\x00\x00\x00\x07"),
        (SubscriptionWrapper(DIGEST, UNSUBSCRIBE, b"key", None), b"\x00\x00" + DIGEST + b"key"),
        (SubscriptionWrapper(None, ANSWER, b"", None), b"\x80\x02"),
    ],
)
def test_a_subscription_has_the_bytes_of_its_version(subscription: SubscriptionWrapper, data: bytes) -> None:
    assert SUBSCRIPTIONS.serialize("t", subscription) == data
    assert SUBSCRIPTIONS.deserialize("t", data) == subscription
    assert subscriber(data) == (subscription.digest, subscription.partition)


@given(st.builds(SubscriptionWrapper, DIGESTS, st.integers(0, 3), KEYS, st.none() | st.integers(0, 2**31 - 1)))
def test_a_subscription_is_read_as_it_was_written(subscription: SubscriptionWrapper) -> None:
    assert SUBSCRIPTIONS.deserialize("t", SUBSCRIPTIONS.serialize("t", subscription)) == subscription


@given(DIGESTS, KEYS)
def test_a_response_is_read_as_it_was_written_but_for_a_value_without_bytes(digest: bytes | None, value: bytes) -> None:
    response = SubscriptionResponseWrapper(digest, value, 5)
    read = RESPONSES.deserialize("t", RESPONSES.serialize("t", response))
    assert read == (digest, value or None, None)


def test_a_response_without_a_value_is_its_hash() -> None:
    assert RESPONSES.serialize("t", SubscriptionResponseWrapper(DIGEST, None)) == b"\x00" + DIGEST
    assert RESPONSES.serialize("t", SubscriptionResponseWrapper(None, None)) == b"\x80"


@given(KEYS, KEYS, KEYS)
def test_no_key_of_a_subscription_begins_as_those_of_another_foreign_key(one: bytes, other: bytes, key: bytes) -> None:
    assert (prefix_of(other) + key).startswith(prefix_of(one)) is (one == other)


@pytest.mark.parametrize(
    ("serde", "data", "why"),
    [
        (SUBSCRIPTIONS, b"", "a subscription of 0 bytes is cut off"),
        (SUBSCRIPTIONS, b"\x01\x03short", "a subscription of 7 bytes is cut off"),
        (SUBSCRIPTIONS, b"\x81\x03abc", "a subscription of 5 bytes is cut off"),
        (SUBSCRIPTIONS, b"\x82\x03", "a subscription has version 2, and none above 1 is known"),
        (SUBSCRIPTIONS, b"\x80\x09", "9 is no instruction of a subscription"),
        (RESPONSES, b"\x81", "a response to a subscription has version 1, and none above 0 is known"),
        (RESPONSES, b"\x00abc", "a response to a subscription of 4 bytes is cut off"),
    ],
)
def test_what_cannot_be_read_is_told(serde: Any, data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        serde.deserializer("t")(data)
