"""Options of the source and the sink, checked: one table for each.

*Guarantees*: an option that isn't known is an error that lists those that are; what begins with `kafka.` goes to the
client.
*Assumes*: Spark has lower-cased nothing: names come as the user wrote them, or all in lower case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from milestones.common.config.clients import CONSUMER_DEFAULTS, CONSUMER_FIXED, PRODUCER_DEFAULTS, PRODUCER_FIXED
from milestones.common.errors import ConfigError

CLIENT = "kafka."
SERVERS, ISOLATION = "bootstrap.servers", "isolation.level"
EARLIEST, LATEST = "earliest", "latest"

READ = {
    name.lower(): name
    for name in (
        "subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "maxOffsetsPerTrigger", "failOnDataLoss",
        "includeHeaders",
    )
}  # fmt: skip
WRITE = {"topic": "topic"}
SPARKS_OWN = frozenset({"path", "checkpointlocation", "mergeschema"})

Start = str | Mapping[str, Mapping[str, int]]
"""`earliest`, `latest`, or by topic and partition an offset; -2 and -1 mean the same there."""


@dataclass(frozen=True)
class ReadOptions:
    """What a query reads. `client`: of the consumer, complete; `topics` or `pattern`, one of them."""

    client: Mapping[str, Any] = field(repr=False)
    topics: tuple[str, ...]
    pattern: str | None
    starting: Start
    ending: Start
    max_offsets: int | None
    fail_on_data_loss: bool
    headers: bool

    @property
    def committed(self) -> bool:
        return bool(self.client[ISOLATION] == "read_committed")

    @classmethod
    def of(cls, options: Mapping[str, str], *, stream: bool) -> ReadOptions:
        """`ConfigError` names the option."""
        given, client = _split(options, READ)
        topics = tuple(topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip())
        pattern = given.get("subscribePattern")
        if bool(topics) == bool(pattern):
            raise ConfigError("subscribe", given.get("subscribe"), "give either subscribe or subscribePattern")
        maximum = given.get("maxOffsetsPerTrigger")
        settings = {"group.id": "milestones-spark-source", ISOLATION: "read_committed", "fetch.wait.max.ms": 50}
        return cls(
            client={**CONSUMER_DEFAULTS, **settings, **client, **CONSUMER_FIXED},
            topics=topics,
            pattern=pattern,
            starting=_start("startingOffsets", given.get("startingOffsets", LATEST if stream else EARLIEST)),
            ending=_start("endingOffsets", given.get("endingOffsets", LATEST)),
            max_offsets=None if maximum is None else _positive("maxOffsetsPerTrigger", maximum),
            fail_on_data_loss=_flag("failOnDataLoss", given.get("failOnDataLoss", "true")),
            headers=_flag("includeHeaders", given.get("includeHeaders", "false")),
        )


@dataclass(frozen=True)
class WriteOptions:
    """What a query writes. `topic` None: each row says it."""

    client: Mapping[str, Any] = field(repr=False)
    topic: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        given, client = _split(options, WRITE)
        return cls({**PRODUCER_DEFAULTS, **client, **PRODUCER_FIXED}, given.get("topic"))


def _split(options: Mapping[str, str], known: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    given: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in options.items():
        if name.lower().startswith(CLIENT):
            client[name[len(CLIENT) :].lower()] = value
        elif name.lower() in known:
            given[known[name.lower()]] = value
        elif name.lower() not in SPARKS_OWN:
            there_are = ", ".join(sorted([*known.values(), f"{CLIENT}..."]))
            raise ConfigError(name, value, f"isn't an option of this format; there are {there_are}")
    if not client.get(SERVERS):
        raise ConfigError(f"{CLIENT}{SERVERS}", None, "has no default: give the brokers' addresses")
    return given, client


def _start(name: str, text: str) -> Start:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        found = json.loads(text)
        return {topic: {str(int(p)): int(at) for p, at in places.items()} for topic, places in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        example = '{"topic": {"0": 23}}'
        raise ConfigError(name, text, f"must be {EARLIEST}, {LATEST}, or JSON such as {example}") from error


def _positive(name: str, text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigError(name, text, "must be a number, at least 1")


def _flag(name: str, text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ConfigError(name, text, "must be true or false")
