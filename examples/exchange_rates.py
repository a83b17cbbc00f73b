"""A call to a service for each record: payments in euros, at rates that another server knows.

A call is waiting, and on processing threads (`m2`) only the task of the record waits: eight threads make eight calls at
a time, while payments of one input partition stay in order. A task is with one thread at a time, so each keeps a
connection of its own. What a service is asked to do is outside of Kafka's transaction: after a failure the call is made
again, so it carries a key by which the service can tell (docs/blocking.md).

    mkdir rates && echo 0.92 > rates/usd && echo 1.16 > rates/gbp
    python -m http.server 8000 --bind 127.0.0.1 --directory rates
    milestones broker --port 9092
    python examples/console.py payments in-euros --keyed   # type `ann:100 usd`
    python examples/exchange_rates.py                      # stop the server for a while: nothing is lost
"""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException

from milestones import FixedKeyProcessor, FixedKeyProcessorContext, FixedKeyRecord, Streams, StreamsBuilder

SERVICE = "127.0.0.1:8000"
TIMEOUT_S = 5.0
"""Every call has one: a task that waits for ever never goes on."""


class ServiceError(Exception):
    """The service didn't say what was asked."""


class InEuros(FixedKeyProcessor[str, str, str]):
    """From `100 usd` to `92.00`."""

    def init(self, context: FixedKeyProcessorContext[str, str]) -> None:
        super().init(context)
        self.connection = HTTPConnection(SERVICE, timeout=TIMEOUT_S)

    def process(self, record: FixedKeyRecord[str, str]) -> None:
        amount, currency = record.value.split()
        euros = float(amount) * float(self.ask(f"/{currency}"))
        self.context.forward(record.with_value(f"{euros:.2f}"))

    def ask(self, path: str) -> bytes:
        try:
            self.connection.request("GET", path, headers={"Idempotency-Key": self.key()})
            answer = self.connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException):
            self.connection.close()  # the next call opens it again
            raise
        if answer.status != 200:
            raise ServiceError(f"{SERVICE}{path} answers {answer.status} {answer.reason}")
        return body

    def key(self) -> str:
        """The same whenever this record is processed."""
        record = self.context.record_metadata()
        assert record is not None  # only processors of punctuations have none
        return f"{record.topic}-{record.partition}@{record.offset}"

    def close(self) -> None:
        self.connection.close()


builder = StreamsBuilder()
payments = builder.stream("payments", key=str, value=str)
payments.process_values(InEuros).to("in-euros", value=str)

streams = Streams(
    builder,
    application_id="exchange-rates",
    processing_guarantee="exactly_once_v2",
    milestones="m2",
    num_processing_threads=8,
)

if __name__ == "__main__":
    raise SystemExit(streams.run())
