"""The counted process: the parts of a stage do a work, one after the other. A mock broker of the client supplies the
records. By the time of the other parts it is gone, so outputs stay in the queue of the client.

| part | whose work |
|---|---|
| consume | the client's `consume` |
| dispatch | from a fetched batch to the tasks' input buffers: `AssignedConsumer.fetch`, `TaskInput.add` |
| process | `Task.process`; from m2 on the scheduler's and the worker's too: topology, serdes, stores |
| send | taken outputs, handed to the producer; from m5 on they are kept by interval |
| freeze | the boundary of a commit |
| changelog | from m5 on: the changelog records of the commit, made and handed to the producer |
| apply | the confirmed commit goes to RocksDB |

*Guarantees*: the same arguments make the same work, in one thread, by a clock that stands still.
*Assumes*: prints one line of JSON, for `work.py`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from confluent_kafka import Message, Producer

from benchmarks.instructions.counters import Counter, Kind
from benchmarks.instructions.functions import observed
from benchmarks.instructions.parts import Parts
from benchmarks.instructions.programs import Program, program
from benchmarks.job import EXACTLY_ONCE
from milestones.client.process_runner import long_lived
from milestones.common.config import StreamsConfig
from milestones.common.config.clients import main_consumer
from milestones.common.config.clients import producer as producer_settings
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.kafka.producer import OutputProducer
from milestones.common.partitioner import partition_of
from milestones.common.records import TopicPartition

INPUT, OUTPUT, NAME = "in", "out", "instructions"
PARTS: Final = ("consume", "dispatch", "process", "send", "freeze", "changelog", "apply")
"""In the order of a record's way."""
PARTITIONS: Final = 4
"""As many as the mock broker gives a topic that it doesn't know."""
BATCH: Final = 500
"""Records of a fetch."""
BROKER_S: Final = 120.0
"""How long the mock broker may take. Under valgrind everything takes up to fifty times as long."""
HOUR_MS: Final = 3_600_000
NO_BROKER: Final = {
    "bootstrap.servers": "127.0.0.1:1", "reconnect.backoff.ms": HOUR_MS, "reconnect.backoff.max.ms": HOUR_MS,
}  # fmt: skip
"""Nothing listens at this address, and the client doesn't try it often."""
ROOM: Final = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_000_000}
FIRST_MS: Final = 1_700_000_000_000


@dataclass(frozen=True)
class Plan:
    """`intervals` commits of `records` each, after one that isn't counted. `work`: of `programs.WORKS`. `by_function`:
    the counted commits are observed by `functions.observed`."""

    stage: str
    work: str
    kind: Kind
    by_function: bool
    records: int
    intervals: int
    keys: int
    seed: int

    @classmethod
    def parse(cls, text: str) -> Plan:
        """The plan in `text`, JSON."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """This plan as JSON."""
        return json.dumps(asdict(self))

    @property
    def total(self) -> int:
        """Records in all."""
        return self.counted + self.records

    @property
    def counted(self) -> int:
        """Records of the commits that are counted."""
        return self.intervals * self.records


class Fetched:
    """A client's consumer whose records are here by now."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = iter(messages)

    def consume(self, most: int, _timeout_s: float) -> list[Message]:
        """The next ones."""
        return list(islice(self._messages, most))


def run(plan: Plan, directory: Path, counts: Path) -> dict[str, object]:
    """Do it, and say what `counters.counted` needs. `counts`: what `counters.wrapped` has filled."""
    counter = Counter(plan.kind, counts)
    config = StreamsConfig(
        variables={}, application_id=NAME, bootstrap_servers="none:1", state_dir=str(directory),
        milestones=plan.stage, processing_guarantee=EXACTLY_ONCE,
    )  # fmt: skip
    given = program(plan.work, INPUT)
    partitions = {TopicPartition(topic, part): 0 for topic in given.inputs for part in range(PARTITIONS)}
    messages = _fed_and_consumed(plan, given, config, partitions, counter)
    consumer = AssignedConsumer({**main_consumer(config, NAME), **NO_BROKER})
    consumer.assign(partitions)
    client, consumer._consumer = consumer._consumer, Fetched(messages)  # type: ignore[assignment]
    producer = _queueing_producer(config)
    parts = Parts(plan.stage, config, consumer, producer, counter, given, OUTPUT, PARTITIONS)
    pairs: list[tuple[str, str]] = []
    observing = observed(counts, pairs) if plan.by_function else nullcontext()
    # Long-lived, as in `milestones run`: else a part has a collection of all that was imported, or none.
    with long_lived(), observing:
        parts.interval(plan.records // BATCH, BATCH, told=False)
        with counter.counting():
            for _ in range(plan.intervals):
                parts.interval(plan.records // BATCH, BATCH, told=True)
    parts.close()
    client.close()
    return {**counter.report(), "pairs": pairs}


def _queueing_producer(config: StreamsConfig) -> OutputProducer:
    """Returns a producer that keeps what it is given. It does what one in an open transaction does; the client itself
    knows of no transaction, which would need a broker."""
    producer = OutputProducer({**producer_settings(config, NAME), **NO_BROKER, **ROOM})
    producer.transactional = producer.in_transaction = True
    return producer


def _fed_and_consumed(
    plan: Plan, given: Program, config: StreamsConfig, partitions: Mapping[TopicPartition, int], counter: Counter
) -> Sequence[Message]:
    writer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", **ROOM})
    brokers = writer.list_topics(timeout=BROKER_S).brokers.values()
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    for number, (topic, key, value) in enumerate(given.records(plan.total, plan.records, plan.keys, plan.seed)):
        writer.produce(topic, value, key, partition_of(key, PARTITIONS), timestamp=FIRST_MS + number)
    if writer.flush(BROKER_S):
        raise SystemExit("the mock broker doesn't take the input")
    consumer = AssignedConsumer({**main_consumer(config, NAME), "bootstrap.servers": servers})
    consumer.assign(partitions)
    messages = sorted(_consumed(consumer, plan, counter), key=_place)
    consumer.close()
    return messages


def _consumed(consumer: AssignedConsumer, plan: Plan, counter: Counter) -> list[Message]:
    """All records. Those of the first interval count, too: the client is the same from its first call on."""
    found: list[Message] = []
    with counter.counting():
        while len(found) < plan.total:
            taken = consumer._consumer.consume(BATCH, BROKER_S)
            if not taken:
                raise SystemExit(
                    f"the mock broker gives nothing after {len(found):,} of {plan.total:,} records: it keeps 5 MB of a "
                    "partition, so take fewer --records or --intervals"
                )
            found += taken
        counter.mark("consume")
    return found


def _place(message: Message) -> tuple[int, str, int, int]:
    """In each fetch what was written at that time, by partition: in which order the broker answers is chance."""
    fetch = (message.timestamp()[1] - FIRST_MS) // BATCH
    return fetch, message.topic() or "", message.partition() or 0, message.offset() or 0


if __name__ == "__main__":
    print(json.dumps(run(Plan.parse(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))), flush=True)
    os._exit(os.EX_OK)  # a client would wait for the broker that its outputs never reach
