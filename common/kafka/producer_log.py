"""What a producer tells of in its log only, and what a commit must know.

*Guarantees*: each line is looked at before the delivery reports that the client makes after it.
*Assumes*: the client was made with this as its `logger`, and with `watched(...)` as its settings.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

_WAS_UP = re.compile(r" \(after \d+ms in state UP\b")

BREAKS: Mapping[str, Any] = {"log_level": 6, "log.connection.close": True}
"""Settings with which connections that break are told of."""


UNWATCHED: Mapping[str, Any] = {"enable.idempotence": True, "max.in.flight": 1}
"""Settings of a producer whose log nobody reads: with one batch under way none is taken for written as a later one is
(see `ProducerWatch.assumed`)."""


def watched(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A producer's settings, and those with which it says what is watched for."""
    debug = filter(None, ("eos", settings.get("debug")))
    return {**settings, **(BREAKS if "transactional.id" in settings else {}), "debug": ",".join(debug)}


class ProducerWatch:
    """What a producer has as its `logger`: it notes what it watches for, and hands on to `to` what is for people.

    `lost`: a connection that was up has broken, or a request had no answer in time; a broker that closes an idle
    connection doesn't count. `assumed`: records were taken for written, as a later batch of their partition was. An
    idempotent producer of librdkafka does so also where Kafka has answered that it did *not* write them: a leader that
    isn't ready yet refuses the first batches, then takes the next one, as it knows nothing of the producer and so
    accepts any sequence number. Then these records are lost (https://github.com/confluentinc/confluent-kafka-go/issues/921).
    *Concurrency*: a client logs while it is polled, in whichever thread that is; this sets flags.
    """

    def __init__(self, to: logging.Logger, *, everything: bool = False) -> None:
        """`everything`: the user has asked for what the client logs for debugging."""
        self._to, self._least = to, logging.NOTSET if everything else logging.INFO
        self.lost = self.assumed = False

    def log(self, level: int, text: str, *args: object) -> None:
        facility = args[0] if args else ""
        if facility == "IMPLICITACK":
            self.assumed = True
        elif facility == "REQTMOUT" or (facility == "FAIL" and _WAS_UP.search(str(args[-1]))):
            self.lost = True
        if level >= self._least:
            self._to.log(level, text, *args)
