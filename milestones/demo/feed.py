"""`Feeder`: sends the lines of the text to a topic, at an even rate.

*Guarantees*: every line is written once, in order per partition. If Kafka refuses a line, this is an error.
*Assumes*: the topic exists.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from milestones import MilestonesError

_TICK_S = 0.05
_FLUSH_S = 60.0


class Feeder(threading.Thread):
    """Writes line `i` to partition `i % partitions`, all of them within `seconds`.

    *Owns*: its producer. *Receives*: a request to stop. *Publishes*: `sent`, the number of lines sent so far;
    `finished`, True once Kafka has all lines; `error`, the error that ended the thread.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, lines: Sequence[str], partitions: int, seconds: float
    ) -> None:
        super().__init__(name="feeder", daemon=True)
        # Sends one batch at a time. Otherwise librdkafka may take a batch for written that Kafka has refused.
        safely = {"enable.idempotence": True, "max.in.flight": 1}
        self._settings = {"bootstrap.servers": bootstrap_servers, **safely, "linger.ms": 5}
        self._topic, self._lines, self._partitions, self._seconds = topic, lines, partitions, seconds
        self._stop_requested = threading.Event()
        self.sent: int = 0
        self.finished: bool = False
        self.error: BaseException | None = None

    def run(self) -> None:
        producer = Producer(self._settings, logger=logging.getLogger("milestones.librdkafka"))
        try:
            self._feed(producer)
        except BaseException as error:
            self.error = error
        producer.purge()
        producer.close()

    def close(self) -> None:
        """Stop sending, and wait for the end of the thread."""
        self._stop_requested.set()
        if self.ident is not None:
            self.join()

    def _feed(self, producer: Producer) -> None:
        begun = time.monotonic()
        while self.sent < len(self._lines) and not self._stop_requested.wait(_TICK_S):
            elapsed = time.monotonic() - begun
            due = len(self._lines) * elapsed / self._seconds if self._seconds > 0 else len(self._lines)
            for _ in range(self.sent, min(len(self._lines), int(due))):
                self._send(producer, self.sent)
            producer.poll(0)
            self._raise_error()
        if not self._stop_requested.is_set():
            left = producer.flush(_FLUSH_S)
            self._raise_error()
            if left:
                raise MilestonesError(f"Kafka did not take {left} lines of the text within {_FLUSH_S:.0f} s")
            self.finished = True

    def _send(self, producer: Producer, index: int) -> None:
        while True:
            try:
                producer.produce(
                    self._topic,
                    self._lines[index],
                    partition=index % self._partitions,
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                producer.poll(_TICK_S)
        self.sent = index + 1

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.error = self.error or KafkaException(error)

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error
