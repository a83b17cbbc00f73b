"""Try an example by hand: creates its topics, sends what you type, prints what comes out.

    python examples/console.py INPUT OUTPUT... [--keyed] [--bootstrap-servers localhost:9092]

With `--keyed` a line `key:value` is sent with that key. An output named `topic:long` has numbers as values. At the
end of its input it goes on until no result has come for a few seconds.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 2
ANSWER_S = 5.0
QUIET_S = 3.0


def create(servers: str, topics: list[str]) -> None:
    """Create those topics that don't exist."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        admin.list_topics(timeout=ANSWER_S)
    except KafkaException as error:
        sys.exit(f"no Kafka answered at {servers} within {ANSWER_S:g} s ({error.args[0].str()}); is it running?")
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        error = future.exception()
        if error is not None and error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise error


class Results:
    """Prints the committed records of `outputs` (topic -> kind) as they come, in a thread of its own."""

    def __init__(self, servers: str, outputs: dict[str, str]) -> None:
        self._servers, self._outputs = servers, outputs
        self._last = time.monotonic()
        threading.Thread(target=self._show, daemon=True).start()

    def wait_until_quiet(self) -> None:
        """Wait until nothing has come for `QUIET_S` seconds, counted from now."""
        began = time.monotonic()
        while (left := max(began, self._last) + QUIET_S - time.monotonic()) > 0:
            time.sleep(left)

    def _show(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"console-{uuid4()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(list(self._outputs))
        while True:
            message = consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            self._last = time.monotonic()
            topic, key, value = message.topic() or "", message.key() or b"", message.value() or b""
            is_long = self._outputs[topic] == "long"
            text = int.from_bytes(value, "big", signed=True) if is_long else value.decode("utf-8", "replace")
            print(f"{topic}: {key.decode('utf-8', 'replace')} = {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("outputs", nargs="+", metavar="output")
    parser.add_argument("--keyed", action="store_true", help="what is before the first colon of a line is its key")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    arguments = parser.parse_args()
    outputs = {topic: kind for topic, _, kind in (output.partition(":") for output in arguments.outputs)}
    create(arguments.bootstrap_servers, [arguments.input, *outputs])
    results = Results(arguments.bootstrap_servers, outputs)
    producer = Producer({"bootstrap.servers": arguments.bootstrap_servers, "partitioner": "murmur2_random"})
    for line in map(str.strip, sys.stdin):
        key, colon, value = line.partition(":") if arguments.keyed else ("", "", line)
        producer.produce(arguments.input, value if colon else line, key if colon else None)
        producer.poll(0)
    producer.flush()
    results.wait_until_quiet()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
