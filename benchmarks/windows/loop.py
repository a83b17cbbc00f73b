"""The kind `stateless` on a bare confluent-kafka loop: see `count/loop.py`. There is none of the others."""

from __future__ import annotations

import sys
from typing import Any

import orjson

from benchmarks.count.loop import Loop, check, run


class Stateless(Loop):
    """Without a changelog."""

    def _process(self, totals: dict[bytes, Any], messages: list[Any]) -> None:
        self._make_room()
        for message in messages:
            check(message.error())
            sale = orjson.loads(message.value())
            if sale["amount"] % 10 > 0:
                value = orjson.dumps({"id": sale["id"], "amount": sale["amount"]})
                self._producer.produce(self._output, value, message.key(), -1, check)
            self._positions[message.partition()] = message.offset() + 1


if __name__ == "__main__":
    sys.exit(run(Stateless))
