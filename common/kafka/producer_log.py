"""`ProducerWatch`: reads the events in a producer's log that a commit must know, and that the client tells nowhere
else.

*Guarantees*: each line is read before later delivery reports of the client.
*Assumes*: the client was made with a `ProducerWatch` as its `logger`, and with the settings of `watched`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from milestones.common.kafka.transaction_offsets import ProducerIdentity

_IDENTITY = re.compile(r": Acquired PID\{Id:(\d+),Epoch:(\d+)\}")
_WAS_UP = re.compile(r" \(after \d+ms in state UP\b")

BREAKS: Mapping[str, Any] = {"log_level": 6, "log.connection.close": True}
"""Settings that make the client log broken connections."""


UNWATCHED: Mapping[str, Any] = {"enable.idempotence": True, "max.in.flight": 1}
"""Settings of a producer without a `ProducerWatch`: with one batch under way, none is taken for written because a later
one is (see `ProducerWatch.assumed`)."""


def watched(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A producer's settings, with those that make the client log the watched events."""
    debug = filter(None, ("eos", settings.get("debug")))
    return {**settings, **(BREAKS if "transactional.id" in settings else {}), "debug": ",".join(debug)}


class ProducerWatch:
    """The `logger` of a producer: notes the watched events, and passes all other lines on to `to`.

    `lost`: a connection that was up has broken, or a request had no answer in time; a broker that closes an idle
    connection doesn't count. `assumed`: records were taken for written, as a later batch of their partition was. An
    idempotent producer of librdkafka does so also where Kafka has answered that it did *not* write them: a leader that
    isn't ready yet refuses the first batches, then takes the next one, as it knows nothing of the producer and so
    accepts any sequence number. Then these records are lost (https://github.com/confluentinc/confluent-kafka-go/issues/921).
    `identity`: that of a transactional producer; None before it has one.
    *Concurrency*: a client logs while it is polled, in the thread that polls; `log` only sets flags.
    """

    lost: bool
    assumed: bool

    def __init__(self, to: logging.Logger, *, everything: bool = False) -> None:
        """`everything`: the user has asked for the client's log for debugging."""
        self._to, self._least = to, logging.NOTSET if everything else logging.INFO
        self.lost = self.assumed = False
        self.identity: ProducerIdentity | None = None

    def log(self, level: int, text: str, *args: object) -> None:
        facility = args[0] if args else ""
        if facility == "IMPLICITACK":
            self.assumed = True
        elif facility == "GETPID" and (acquired := _IDENTITY.search(str(args[-1]))):
            self.identity = ProducerIdentity(int(acquired[1]), int(acquired[2]))
        elif facility == "REQTMOUT" or (facility == "FAIL" and _WAS_UP.search(str(args[-1]))):
            self.lost = True
        if level >= self._least:
            self._to.log(level, text, *args)
