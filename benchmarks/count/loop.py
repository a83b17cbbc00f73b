"""The count on a bare confluent-kafka loop, as fast as it gets: what a runtime is measured against.

It does what cannot be left out: fetch, parse, add up, write output and changelog, commit. It has no state on disk,
restores nothing, and loses everything when it fails.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.count import STORE
from benchmarks.job import Job

BATCH, WAIT_S, CALL_S = 1000, 0.05, 30.0
QUEUE = 100_000
CONSUMER = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 100_000,
}
PRODUCER = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": QUEUE,
    "queue.buffering.max.kbytes": 131_072,
    "delivery.report.only.error": True,
}


class Loop:
    """One consumer, one producer, one dict."""

    def __init__(self, job: Job) -> None:
        servers: dict[str, str | int | float | bool] = {"bootstrap.servers": job.bootstrap_servers}
        isolation = "read_committed" if job.exactly_once else "read_uncommitted"
        self._exactly_once, self._output = job.exactly_once, job.output
        self._interval_s = int(job.commit_interval_ms) / 1000
        self._changelog = f"{job.application_id}-{STORE}-changelog"
        self._consumer = Consumer(
            {**servers, **CONSUMER, "group.id": job.application_id, "isolation.level": isolation}
        )
        transactional = {"transactional.id": job.application_id} if job.exactly_once else {}
        self._producer = Producer({**servers, **PRODUCER, **transactional})
        self._positions: dict[int, int] = {}
        self._input = job.input
        self._partitions = self._prepare(AdminClient(servers))

    def _prepare(self, admin: AdminClient) -> int:
        partitions = len(admin.list_topics(self._input, timeout=CALL_S).topics[self._input].partitions)
        new = NewTopic(self._changelog, partitions, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([new])[self._changelog].result(CALL_S)
        self._consumer.subscribe([self._input])
        return partitions

    def run(self, stopping: list[int]) -> None:
        """Until `stopping` has something in it."""
        if self._exactly_once:
            self._producer.init_transactions(CALL_S)
            self._producer.begin_transaction()
        totals: dict[bytes, list[int]] = {}
        committed_s = time.monotonic()
        while not stopping:
            self._process(totals, self._consumer.consume(BATCH, WAIT_S))
            self._producer.poll(0)
            if time.monotonic() - committed_s >= self._interval_s:
                self._commit()
                committed_s = time.monotonic()
        self._commit()

    def _process(self, totals: dict[bytes, list[int]], messages: list[Any]) -> None:
        loads, dumps, positions = orjson.loads, orjson.dumps, self._positions
        produce, output, changelog = self._producer.produce, self._output, self._changelog
        self._make_room()
        for message in messages:
            if message.error() is not None:
                raise SystemExit(str(message.error()))
            key, partition, timestamp = message.key(), message.partition(), message.timestamp()[1]
            total = totals.get(key)
            if total is None:
                total = totals[key] = [0, 0]
            total[0] += 1
            total[1] += loads(message.value())["amount"]
            value = dumps({"count": total[0], "sum": total[1]})
            produce(changelog, value, key, partition, check, None, timestamp)
            produce(output, value, key, -1, check, None, timestamp)
            positions[partition] = message.offset() + 1

    def _make_room(self) -> None:
        while len(self._producer) > QUEUE - 2 * BATCH:  # so that no call that follows finds the queue full
            self._producer.poll(0.01)

    def _commit(self) -> None:
        offsets = [TopicPartition(self._input, *position) for position in self._positions.items()]
        if not offsets:
            return
        if self._exactly_once:
            group = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(offsets, group, CALL_S)
            self._producer.commit_transaction(CALL_S)
            self._producer.begin_transaction()
        else:
            self._producer.flush()
            self._consumer.commit(offsets=offsets, asynchronous=False)
        self._positions.clear()

    def close(self) -> None:
        if self._exactly_once:
            self._producer.abort_transaction(CALL_S)
        self._producer.close()
        self._consumer.close()


def check(error: KafkaError | None, _: object = None) -> None:
    """Ends the process where a record was refused, or couldn't be fetched."""
    if error is not None:
        raise SystemExit(f"a record was refused: {error}")


def run(kind: type[Loop]) -> int:
    """The exit code of a process that does this."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    loop = kind(Job.parse(sys.argv[1:]))
    loop.run(stopping)
    loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(run(Loop))
