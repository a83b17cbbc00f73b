"""Input at an even pace, and when its outputs can be read.

*Guarantees*: what `Paced` gives is a number each, in order; `Outputs` knows when each number's output was there for a
reader of committed records. Times are s since the epoch, by one clock: both run in this process.
*Assumes*: programs put each input's value out. Both threads, Python's, take turns with what else is done in here: that
is in all contenders' times alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from math import ceil

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.errors import BenchmarkError
from milestones.common.kafka.producer_log import UNWATCHED
from milestones.common.partitioner import partition_of

CALL_S = 30.0
TICK_S = 0.005
LOOK_S = 0.1
KEYS = 100
"""Of each partition."""


def keys_of(partitions: int, count: int = KEYS) -> list[list[bytes]]:
    """For each partition so many keys that Kafka's partitioner places there: so outputs lie where their inputs do."""
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    number = 0
    while any(len(keys) < count for keys in found):
        key = b"key-%06d" % number
        if len(keys := found[partition_of(key, partitions)]) < count:
            keys.append(key)
        number += 1
    return found


class Paced:
    """For one use, as a thread: `rate` records a second, in turn to each of the partitions that `keys` names. The value
    of each is its number; `given`: when it was made. `took_s`: how long the broker needed to take it."""

    def __init__(self, servers: str, topic: str, keys: Mapping[int, Sequence[bytes]], rate: float) -> None:
        self._topic, self._rate = topic, rate
        self._keys = [(partition, of) for partition, of in sorted(keys.items())]
        self._producer = Producer({"bootstrap.servers": servers, **UNWATCHED, "linger.ms": 2})
        self._refused: list[KafkaError] = []
        self.given: list[float] = []
        self.took_s: list[float] = []

    def __call__(self, stop: threading.Event) -> None:
        begun = time.monotonic()
        while not stop.wait(TICK_S):
            for _ in range(int((time.monotonic() - begun) * self._rate) - len(self.given)):
                self._give()
            self._producer.poll(0)
        left = self._producer.flush(CALL_S)
        self._producer.close()
        if left or self._refused:
            raise BenchmarkError(f"Kafka hasn't taken {left + len(self._refused)} records of the input")

    def _give(self) -> None:
        number = len(self.given)
        round_, at = divmod(number, len(self._keys))
        partition, keys = self._keys[at]
        self.given.append(time.time())
        self._producer.produce(
            self._topic, b"%d" % number, keys[round_ % len(keys)], partition, on_delivery=self._delivered
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
        else:
            self.took_s.append(message.latency() or 0.0)


class Outputs:
    """As a thread: reads the committed outputs in these partitions. `seen`: when those of each number were there."""

    def __init__(self, servers: str, topic: str, partitions: Sequence[int]) -> None:
        self.seen: dict[int, list[float]] = {}
        self._consumer = Consumer({
            "bootstrap.servers": servers, "group.id": "benchmarks-paced-reader", "enable.auto.commit": False,
            "isolation.level": "read_committed", "fetch.wait.max.ms": 50, "fetch.queue.backoff.ms": 10,
        })  # fmt: skip
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def __call__(self, stop: threading.Event) -> None:
        while not stop.is_set():
            # `consume` alone would wait until it has as many as it may give.
            if (first := self._consumer.poll(LOOK_S)) is None:
                continue
            messages = [first, *self._consumer.consume(10_000, 0)]
            now = time.time()
            for message in messages:
                if message.error() is None:
                    self.seen.setdefault(int(message.value() or b"-1"), []).append(now)
        self._consumer.close()


def latencies(given: Sequence[float], seen: Mapping[int, Sequence[float]], start: float, end: float) -> list[float]:
    """From an input's making to its output, in ms, ascending, of the inputs made between two times. `BenchmarkError`
    unless each input has its output, once."""
    wrong = [number for number in range(len(given)) if len(seen.get(number, ())) != 1]
    if wrong or len(seen) != len(given):
        twice = sum(len(times) > 1 for times in seen.values())
        raise BenchmarkError(f"{len(seen)} of {len(given)} inputs have an output, {twice} of them more than one")
    found = sorted(1000 * (seen[number][0] - at) for number, at in enumerate(given) if start <= at < end)
    if not found:
        raise BenchmarkError("no input was made while it was measured: give it more time, or more records")
    return found


def percentile(ascending: Sequence[float], share: float) -> float:
    """The least value that at least this share of the values, in per cent, don't exceed."""
    return ascending[max(0, ceil(len(ascending) * share / 100) - 1)]
