"""An application on a real broker: topics of its own, instances of it, what it has put out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from milestones import Streams, StreamsBuilder, StreamsState, serdes
from milestones.cli.main import invoke
from milestones.testing import KafkaProbe, KafkaRecord, NotYet, TopicTail, until
from tests.topics import named

WAIT_S = 60

STAGES = pytest.mark.parametrize(
    ("stage", "guarantee"),
    [
        ("baseline", "at_least_once"),
        pytest.param("m3", "exactly_once_v2", marks=pytest.mark.nightly),
        ("m6", "exactly_once_v2"),
    ],
)
"""Of each way to commit one, and both guarantees."""


class App:
    """`app["in"]` is the name of its topic "in". Instances that are started are closed at the end."""

    def __init__(self, kafka: str, path: Path, stack: ExitStack) -> None:
        self.kafka, self.id, self.probe, self._stack = kafka, named("app"), KafkaProbe(kafka), stack
        self.path = path
        self.instances: list[Streams] = []
        self._tails: dict[str, TopicTail] = {}
        self._taken = Counter[str]()

    def __getitem__(self, name: str) -> str:
        return f"{self.id}-{name}"

    def create(self, topics: dict[str, int], **settings: str) -> App:
        self.probe.create({self[name]: partitions for name, partitions in topics.items()}, settings)
        return self

    def write(self, *values: str | bytes, to: str = "in", key: str = "key", **where: Any) -> None:
        self.probe.write(self[to], *values, key=key, **where)

    def counting(self, change: Callable[[Any], Any] = lambda value: value) -> StreamsBuilder:
        """in -> each value changed -> its key's count -> out, with a store "counts"."""
        builder = StreamsBuilder()
        lines = builder.stream(self["in"], key=serdes.STRING, value=serdes.STRING).map_values(change)
        lines.group_by_key().count("counts").to_stream().to(self["out"], key=serdes.STRING, value=serdes.LONG)
        return builder

    def streams(self, builder: StreamsBuilder, name: str = "one", **settings: Any) -> Streams:
        """An instance, not started, with a state directory of its `name`."""
        defaults = {"commit_interval_ms": 100, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 200}
        streams = Streams(
            builder, application_id=self.id, bootstrap_servers=self.kafka, state_dir=str(self.path / name),
            **{**defaults, **settings},
        )  # fmt: skip
        self.instances.append(streams)
        self._stack.callback(streams.close)
        return streams

    def start(self, builder: StreamsBuilder, name: str = "one", **settings: Any) -> Streams:
        streams = self.streams(builder, name, **settings)
        streams.start()
        return streams

    @contextmanager
    def running(self, builder: StreamsBuilder, name: str = "one", **settings: Any) -> Iterator[Streams]:
        streams = self.start(builder, name, **settings)
        yield streams
        streams.close()

    def take(self, name: str, count: int) -> list[KafkaRecord]:
        """The next `count` committed records of a topic with one partition."""
        if name not in self._tails:
            self._tails[name] = self._stack.enter_context(self.probe.tail(self[name]))
        tail, first = self._tails[name], self._taken[name]
        self._taken[name] += count
        self.until(lambda: tail.has(first + count), f"{count} more records in {name}")
        return tail.rows[first : first + count]

    def reset(self, *options: str) -> None:
        """`milestones reset`, once Kafka knows of no member any more."""
        asked = ["reset", "-a", self.id, "-b", self.kafka, *options, "--execute"]
        self.until(lambda: invoke(asked) == 0, "the reset is done")

    def until(self, condition: Callable[[], object], what: str) -> None:
        until(lambda: condition() or NotYet(str([streams.status() for streams in self.instances])), what, WAIT_S)

    def runs(self, streams: Streams, tasks: int, threads: int = 1) -> None:
        """Wait until it processes so many tasks, by so many threads."""

        def running() -> bool:
            status = streams.status()
            roles = Counter(status.tasks.values())
            return streams.state is StreamsState.RUNNING and (roles["running"], len(status.threads)) == (tasks, threads)

        self.until(running, f"{threads} threads process {tasks} tasks")
