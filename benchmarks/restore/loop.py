"""A store that is restored by confluent-kafka and rocksdict alone: batches as they come, into one database per
partition, with its offset."""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from rocksdict import Options, Rdict, WriteBatch

from benchmarks.job import Job
from benchmarks.restore import ENDED, STARTED, STORE

BATCH, WAIT_S, CALL_S = 4_000, 0.1, 30.0
STAMP = struct.Struct(">q").pack


def main() -> int:
    """The exit code."""
    job = Job.parse(sys.argv[1:])
    topic = f"{job.application_id}-{STORE}-changelog"
    consumer = Consumer({
        "bootstrap.servers": job.bootstrap_servers, "group.id": job.application_id, "enable.partition.eof": True,
        "isolation.level": "read_committed", "fetch.queue.backoff.ms": 10, "queued.min.messages": 100_000,
        "enable.auto.commit": False, "auto.offset.reset": "error",
    })  # fmt: skip
    found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
    stores = {partition: Rdict(str(Path(job.state_dir) / str(partition)), _options()) for partition in found.partitions}
    counts = dict.fromkeys(stores, 0)
    for partition in stores:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), CALL_S)
        print(STARTED, round(time.time() * 1000), end, flush=True)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in stores])
    left = set(stores)
    while left:
        batches: dict[int, WriteBatch] = {}
        ended: list[int] = []
        for message in consumer.consume(BATCH, WAIT_S):
            partition = message.partition() or 0
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.append(partition)
                continue
            batch = batches.get(partition)
            if batch is None:
                batch = batches[partition] = WriteBatch(raw_mode=True)
            batch.put(message.key() or b"", STAMP(message.timestamp()[1]) + (message.value() or b""))
            counts[partition] += 1
        for partition, batch in batches.items():
            batch.put(b"offset", STAMP(counts[partition]))
            stores[partition].write(batch)
        for partition in ended:
            left.discard(partition)
            print(ENDED, round(time.time() * 1000), counts[partition], flush=True)
    while True:
        time.sleep(1)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    return options


if __name__ == "__main__":
    sys.exit(main())
