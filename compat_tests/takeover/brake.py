"""A step that takes its time, so that an application can be met in the middle of its input.

*Guarantees*: the log says with which offset it begins, once per source topic and task.
*Assumes*: it stands right behind a source.
"""

from __future__ import annotations

import logging
import time

from milestones import FixedKeyProcessor, FixedKeyRecord

log = logging.getLogger("compat_tests")

BEGINS = "begins with "
"""What the log says, followed by topic/partition/offset."""


class Brake(FixedKeyProcessor):
    """Hands records on, slowly."""

    def __init__(self, pause_us: int) -> None:
        self._pause_s = pause_us / 1_000_000
        self._begun = set[str]()

    def process(self, record: FixedKeyRecord) -> None:
        at = self.context.record_metadata()
        assert at is not None  # only a punctuation has none
        if at.topic not in self._begun:
            self._begun.add(at.topic)
            log.info("%s%s/%d/%d", BEGINS, at.topic, at.partition, at.offset)
        if self._pause_s:
            time.sleep(self._pause_s)
        self.context.forward(record)
