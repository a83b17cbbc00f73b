"""What goes in and comes out while tasks move.

*Guarantees*: each thread in here ends with its block; an error of one is raised at its end.
*Assumes*: the times of the reader are those of a consumer of committed records, a few ms late.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.cluster import Row
from benchmarks.moves import PARTITIONS
from milestones import TopicPartition as Place
from milestones.common.kafka.producer_log import UNWATCHED
from milestones.testing import KafkaProbe

CALL_S = 30.0
TICK_S = 0.02
LOOK_S = 0.02
NOISE_BYTES = 1 << 22


class Values:
    """Values that don't compress, by seed."""

    def __init__(self, size: int, seed: int) -> None:
        self._rng, self._size = random.Random(seed), size
        self._noise = self._rng.randbytes(NOISE_BYTES + size)

    def __call__(self) -> bytes:
        at = self._rng.randrange(NOISE_BYTES)
        return self._noise[at : at + self._size]


def state(topic: str, records: int, values: Values, partitions: int = PARTITIONS) -> Iterator[Row]:
    """A record for each of `records` keys."""
    now_ms = int(time.time() * 1000)
    for number in range(records):
        partition = number % partitions
        yield topic, partition, key(partition, number // partitions), values(), now_ms, None


def key(partition: int, number: int) -> bytes:
    return b"%d-%08d" % (partition, number)


@contextmanager
def thread(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """`work(stop)` in a thread of its own, until the end of the block."""
    stop = threading.Event()
    with ThreadPoolExecutor(1, name) as pool:
        running = pool.submit(work, stop)
        try:
            yield
        finally:
            stop.set()
    running.result()


class Feeder:
    """`rate` records a second for each partition, evenly, for keys that are there already. `on`: whether it does.
    `given`: how many there are so far."""

    def __init__(
        self, servers: str, topic: str, records: int, values: Values, rate: float, partitions: int = PARTITIONS
    ) -> None:
        self._topic, self._records, self._values, self._rate = topic, records, values, rate
        self._partitions, self.given = partitions, 0
        self._producer = Producer({"bootstrap.servers": servers, **UNWATCHED, "linger.ms": 0})
        self.on = threading.Event()

    def __call__(self, stop: threading.Event) -> None:
        rng = random.Random(1)
        due = time.monotonic()
        while not stop.is_set():
            if self.on.is_set() and time.monotonic() >= due:
                for partition in range(self._partitions):
                    some = key(partition, rng.randrange(self._records // self._partitions))
                    self._producer.produce(self._topic, self._values(), some, partition)
                self.given += self._partitions
                due = max(due + 1 / self._rate, time.monotonic() - 1.0)
            self._producer.poll(0)
            stop.wait(min(TICK_S, max(0.0, due - time.monotonic())) if self.on.is_set() else TICK_S)
        self._producer.flush(CALL_S)


class Reader:
    """When committed outputs were there, by partition."""

    def __init__(self, servers: str, topic: str, partitions: int = PARTITIONS) -> None:
        self.seen: list[list[float]] = [[] for _ in range(partitions)]
        self._consumer = Consumer({
            "bootstrap.servers": servers, "group.id": "benchmarks-moves-reader", "enable.auto.commit": False,
            "isolation.level": "read_committed", "fetch.wait.max.ms": 20, "auto.offset.reset": "latest",
        })  # fmt: skip
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        for place in places:
            place.offset = self._consumer.get_watermark_offsets(place, CALL_S)[1]
        self._consumer.assign(places)

    def __call__(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for message in self._consumer.consume(1_000, 0.01):
                if message.error() is None:
                    self.seen[message.partition() or 0].append(time.time())
        self._consumer.close()


class Stable:
    """When the last stable offset of each partition of a topic has reached where the partition ended at first."""

    def __init__(self, servers: str, topic: str) -> None:
        self._probe = KafkaProbe(servers)
        self._places = [Place(topic, partition) for partition in range(PARTITIONS)]
        self.at: dict[int, float] = {}

    def __call__(self, stop: threading.Event) -> None:
        ends = self._probe.ends(self._places)
        while not stop.is_set():
            for place, offset in self._probe.ends(self._places, stable=True).items():
                if offset >= ends[place]:
                    self.at.setdefault(place.partition, time.time())
            stop.wait(LOOK_S)
