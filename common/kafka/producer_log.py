"""`ProducerWatch`: reads events that a commit must know of from a producer's log. The client reports them nowhere else.

*Guarantees*: each log line is read before any delivery report that the client makes later.
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
"""Settings of a producer without a `ProducerWatch`. It sends one batch at a time, so the client never takes a batch for
written only because a later one was (see `ProducerWatch.assumed`)."""


def watched(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a producer's settings, completed by those that make the client log the watched events."""
    debug = filter(None, ("eos", settings.get("debug")))
    return {**settings, **(BREAKS if "transactional.id" in settings else {}), "debug": ",".join(debug)}


class ProducerWatch:
    """The `logger` of a producer. It notes the watched events, and passes log lines on to the logger `to`.

    `lost`: True once a working connection has broken, or a request got no answer in time. A broker that closes an idle
    connection doesn't count.

    `assumed`: True once the client has taken records for written because a later batch of their partition was written.
    librdkafka's idempotent producer does so even if Kafka has answered that it did *not* write them. This happens when
    a new leader refuses the first batches because it isn't ready, then accepts the next one: it doesn't know the
    producer yet, so it accepts any sequence number. The refused records are lost
    (https://github.com/confluentinc/confluent-kafka-go/issues/921).

    `identity`: the producer id and epoch of a transactional producer; None before Kafka has given them.

    *Concurrency*: a client logs during a poll, in the thread that polls. `log` only sets flags.
    """

    lost: bool
    assumed: bool

    def __init__(self, to: logging.Logger, *, everything: bool = False) -> None:
        """`everything`: pass on debug lines, too, because the user has set `debug`."""
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
