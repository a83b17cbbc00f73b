"""Try an example by hand: creates its topics, sends what you type, prints what comes out.

    python examples/console.py INPUT OUTPUT... [--bootstrap-servers localhost:9092]

A line `key:value` is sent with that key, any other without one. An output named `topic:long` has numbers as values.
"""

from __future__ import annotations

import argparse
import sys
import threading
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 2


def create(servers: str, topics: list[str]) -> None:
    """Create those topics that don't exist."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        error = future.exception()
        if error is not None and error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise error


def show(servers: str, outputs: dict[str, str]) -> None:
    """Print the committed records of `outputs` (topic -> kind) as they come."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"console-{uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(list(outputs))
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        topic, value = message.topic() or "", message.value() or b""
        text = (
            int.from_bytes(value, "big", signed=True) if outputs[topic] == "long" else value.decode("utf-8", "replace")
        )
        print(f"{topic}: {(message.key() or b'').decode('utf-8', 'replace')} = {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("outputs", nargs="+", metavar="output")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    arguments = parser.parse_args()
    outputs = {topic: kind for topic, _, kind in (output.partition(":") for output in arguments.outputs)}
    create(arguments.bootstrap_servers, [arguments.input, *outputs])
    threading.Thread(target=show, args=(arguments.bootstrap_servers, outputs), daemon=True).start()
    producer = Producer({"bootstrap.servers": arguments.bootstrap_servers})
    for line in map(str.strip, sys.stdin):
        key, colon, value = line.partition(":")
        producer.produce(arguments.input, value if colon else line, key if colon else None)
        producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    main()
