"""Keeps each key's last value, and puts it out, on a bare confluent-kafka loop: see `count/loop.py`."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.count.loop import Loop, check, run


class Last(Loop):
    """Without a state on disk."""

    def _process(self, totals: dict[bytes, Any], messages: list[Any]) -> None:
        self._make_room()
        for message in messages:
            check(message.error())
            key, value = message.key(), message.value()
            totals[key] = value
            self._producer.produce(self._changelog, value, key, message.partition(), check)
            self._producer.produce(self._output, value, key, -1, check)
            self._positions[message.partition()] = message.offset() + 1


if __name__ == "__main__":
    sys.exit(run(Last))
