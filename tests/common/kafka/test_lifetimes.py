"""What Kafka's client is given lives as long as the client needs it, though nothing else holds it.

As `tests/common/state/test_lifetimes.py`: freed memory is overwritten at once. Needs no broker.
"""

from __future__ import annotations

import os
import subprocess
import sys

USER = """
import gc, logging
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())

def fresh(text, *values):
    return bytes(bytearray(text % values))  # an object that nothing else holds

def producer():
    logger = logging.Logger("client")
    logger.addHandler(Lines())
    failed = lambda error: errors.append(error.code())
    settings = {"bootstrap.servers": "127.0.0.1:1", "error_cb": failed, "debug": "msg"}
    return Producer(settings, logger=logger)

def produce(number):
    key, value = fresh(b"key-%06d", number), fresh(b"value-%06d", number)
    headers = [("h-%d" % number, fresh(b"header-%06d", number))]
    report = lambda error, message: told.append((number, message.key(), message.value()))
    client.produce("topic", value, key, 0, on_delivery=report, headers=headers)

errors, lines, told = [], [], []
client = producer()
for number in range(2000):
    produce(number)
gc.collect()
again = [fresh(b"other-%06d", number) for number in range(2000)]  # takes memory that was freed
client.purge()
client.flush(10)
while not errors:
    client.poll(0.1)
assert told == [(number, b"key-%06d" % number, b"value-%06d" % number) for number in range(2000)], told[:2]
assert lines
waiting = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}).list_consumer_groups(request_timeout=0.5)
gc.collect()
assert waiting.result(20).errors  # the client is gone, its answer comes
print("right")
"""


def test_the_client_holds_what_it_was_given_and_what_waits_for_it() -> None:
    # glibc overwrites what is freed, and Python takes even small objects from it.
    scribbled = {**os.environ, "MALLOC_PERTURB_": "165", "PYTHONMALLOC": "malloc"}
    command = [sys.executable, "-c", USER]
    done = subprocess.run(command, env=scribbled, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")
