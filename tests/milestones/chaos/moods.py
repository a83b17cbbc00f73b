"""What the Kafka of a campaign is up to, and what its polling thread has waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException

from milestones.common.steps import AT_ONCE_MS

REFUSED = KafkaError(KafkaError.INVALID_RECORD)
MAY_BE_TAKEN = KafkaError(KafkaError.INVALID_RECORD, "a test", False, True)
"""The same, of a record that may be taken when it is sent again."""
UNDELIVERED = KafkaException(KafkaError(KafkaError._TIMED_OUT, "undelivered", False, False, True))
FORBIDDEN, IS_TOO_LARGE = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
REFUSES = "the broker refuses a record"
OF_ONE_TASK = (REFUSES, "Kafka refused a batch of records", "undelivered")
"""Texts of transactions' failures that are one task's."""


@dataclass
class Moods:
    """What Kafka is up to. `trouble`: how probably a call of a producer goes wrong; `stale`: the next offsets are
    refused for their generation; `refused`: keys whose outputs the broker refuses, with `error`; `renewal_steps`: how
    often a new producer is looked at before it is ready; `undelivered`: keys whose outputs no broker takes in time;
    `forbidden`: keys whose outputs are for a topic without rights; `too_large`: keys whose outputs the client itself
    refuses; `room`: how many outputs a call of `send` finds room for."""

    trouble: float = 0.0
    stale: bool = False
    refused: set[bytes] = field(default_factory=set)
    error: KafkaError = REFUSED
    renewal_steps: int = 0
    undelivered: set[bytes] = field(default_factory=set)
    forbidden: set[bytes] = field(default_factory=set)
    too_large: set[bytes] = field(default_factory=set)
    room: int | None = None

    def calm(self) -> None:
        self.trouble, self.stale, self.renewal_steps, self.room = 0.0, False, 0, None
        for keys in (self.refused, self.undelivered, self.forbidden, self.too_large):
            keys.clear()


THE_GROUP = "the group"


@dataclass
class Waits:
    """The waits of the polling thread. `others`: what other threads do meanwhile; `polling`: whether the polling thread
    is what runs now; `longest`: of each kind of wait, what was asked for, ms; `spent`: of each call of Kafka, the time
    that it was waited for since the last look at the group; `longest_spent`: the longest of these; `repeated`: calls
    that are repeated for longer before tasks are given away."""

    most_ms: int
    others: Callable[[], None] = lambda: None
    polling: Callable[[], bool] = lambda: False
    longest: Counter[str] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    longest_spent: Counter[str] = field(default_factory=Counter)
    repeated: Mapping[str, int] = field(default_factory=dict)

    def ask(self, what: str, ms: int) -> None:
        """The thread that runs asks for a wait of so long."""
        if self.polling():
            self.longest[what] = max(ms, self.longest[what])

    def spend(self, what: str, ms: int) -> None:
        """So long it has waited for this call, or the group for it."""
        self.spent[what] += ms
        self.longest_spent[what] = max(self.spent[what], self.longest_spent[what])

    def too_long(self) -> dict[str, int]:
        """The waits that were longer than they may be. A call is waited for in steps: the last one may be too long."""
        asked = {what: ms for what, ms in self.longest.items() if ms > self.most_ms}
        most_ms = {what: self.repeated.get(what, self.most_ms) + AT_ONCE_MS for what in self.longest_spent}
        return asked | {what: ms for what, ms in self.longest_spent.items() if ms > most_ms[what]}
