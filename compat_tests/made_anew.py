"""`python -m compat_tests.made_anew`: deletes input topics and makes them anew under applications, again and again.

Each run is an application of its own, which has processed five records of its input. The topic is deleted and made anew
at once, with fewer, as many, or more records than that, while the application runs or while it is stopped. Then either
it ends with exit code 2 and a line that names the topic, or it processes every record of the new one; anything else is
`SILENT`. The table has a row per kind of application, and counts of outcomes over all runs.

*Guarantees*: exit code 1 when a run was silent. What was run is printed, not what was asked for.
*Assumes*: a machine with Java for the embedded broker, or `--bootstrap-servers`.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from milestones import Streams, StreamsBuilder, serdes
from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.common.kafka.failures import is_passing
from milestones.testing import DeadlineError, KafkaProbe, until

FORMER: Final = 5
"""Records of the former topic, all processed and committed."""
COUNTS: Final = {"fewer": 3, "as many": 5, "more": 8}
WAIT_S: Final = 120.0

EXIT, ALL, SILENT = "exit 2", "every record", "SILENT"


@dataclass(frozen=True)
class Cell:
    """A kind of run."""

    source: str
    count: str
    stage: str
    guarantee: str
    when: str

    def __str__(self) -> str:
        return " | ".join((self.source, self.count, self.stage, self.guarantee, self.when))


def cells() -> list[Cell]:
    """All kinds, those that differ most beside one another."""
    made = product(
        ("by name", "by pattern"), COUNTS, ("baseline", "m3", "m6"), ("at_least_once", "exactly_once_v2"),
        ("running", "stopped"),
    )  # fmt: skip
    return [Cell(*one) for one in made]


class Run:
    """One application, and its topics."""

    def __init__(self, kafka: str, path: Path, cell: Cell, reset: str) -> None:
        self.cell, self.id, self.path, self.reset = cell, f"anew-{uuid.uuid4().hex[:10]}", path, reset
        self.kafka, self.probe = kafka, KafkaProbe(kafka)
        self.source, self.out = f"{self.id}-in", f"{self.id}-out"

    def topology(self) -> StreamsBuilder:
        source: Any = self.source if self.cell.source == "by name" else re.compile(f"{self.source}.*")
        builder = StreamsBuilder()
        lines = builder.stream(source, key=serdes.STRING, value=serdes.STRING)
        lines.group_by(lambda _, line: line, key=serdes.STRING).count("counts").to_stream().to(
            self.out, key=serdes.STRING, value=serdes.LONG
        )
        return builder

    @contextmanager
    def running(self) -> Iterator[Streams]:
        streams = Streams(
            self.topology(), application_id=self.id, bootstrap_servers=self.kafka, state_dir=str(self.path / self.id),
            milestones=self.cell.stage, processing_guarantee=self.cell.guarantee, auto_offset_reset=self.reset,
            commit_interval_ms=100,
        )  # fmt: skip
        try:
            streams.start()
            yield streams
        finally:
            streams.close()

    def processed(self) -> set[str]:
        return {(record.key or b"").decode() for record in self.probe.read(self.out)}

    def outcome(self, streams: Streams, new: set[str]) -> str:
        """How it ends: whichever comes first."""
        with suppress(DeadlineError):
            until(lambda: streams.error is not None or new <= self.processed(), "it ends, or all is processed", WAIT_S)
            return ALL if streams.error is None else self.heard(streams.error)
        ends = self.probe.ends(self.probe.places([self.source]))
        print(f"{self.cell}: {streams.status()}, committed {self.committed()}, ends {ends}", file=sys.stderr)
        return SILENT

    def heard(self, error: BaseException) -> str:
        """What is said of an error that ends the application."""
        named = isinstance(error, SourceTopicError) and error.exit_code == 2 and self.source in str(error)
        return EXIT if named else type(error).__name__

    def make_anew(self) -> set[str]:
        """Faster than any look at the topics; the records of the new one."""
        self.probe.make_anew({self.source: 1})
        lines = [f"new {number}" for number in range(COUNTS[self.cell.count])]
        self.probe.write(self.source, *lines, key="key")
        return set(lines)

    def committed(self) -> list[int]:
        """What is committed by now; nothing while Kafka can't say: a transaction pends, or a broker that has just
        started has no coordinator yet."""
        try:
            return list(self.probe.committed(self.id).values())
        except KafkaException as exception:
            if not is_passing(exception):
                raise
            return []

    def read_the_former(self) -> None:
        former = {f"old {number}" for number in range(FORMER)}
        until(lambda: self.committed() or self.reset == "earliest", "it has begun", WAIT_S)
        self.probe.write(self.source, *sorted(former), key="key")
        until(lambda: former <= self.processed(), "what was there is processed", WAIT_S)
        until(lambda: FORMER in self.committed(), "and committed", WAIT_S)

    def run(self) -> str:
        """The outcome."""
        self.probe.create({self.source: 1, self.out: 1})
        with self.running() as streams:
            self.read_the_former()
            if self.cell.when == "running":
                return self.outcome(streams, self.make_anew())
        new = self.make_anew()
        try:
            with self.running() as streams:
                return self.outcome(streams, new)
        except MilestonesError as error:
            return self.heard(error)


def run_one(kafka: str, path: Path, cell: Cell, reset: str) -> str:
    """The outcome of a run; what kept it from having one."""
    try:
        return Run(kafka, path, cell, reset).run()
    except (DeadlineError, KafkaException, MilestonesError) as error:
        traceback.print_exception(error)
        return f"not run: {type(error).__name__}"


def table(found: dict[Cell, Counter[str]]) -> str:
    """A row per cell that was run."""
    rows = ["source | records | stage | guarantee | application | runs | outcomes", "---|---|---|---|---|---|---"]
    for cell, outcomes in found.items():
        told = ", ".join(f"{outcome}: {count}" for outcome, count in sorted(outcomes.items()))
        rows.append(f"{cell} | {outcomes.total()} | {told}")
    total = sum(found.values(), Counter[str]())
    rows.append(f"all | | | | | {total.total()} | " + ", ".join(f"{one}: {n}" for one, n in sorted(total.items())))
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Delete input topics and make them anew under applications.")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each kind")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no run after so long")
    parser.add_argument("--at-once", type=int, default=4, help="applications at a time")
    parser.add_argument("--reset", default="earliest", help="auto_offset_reset")
    parser.add_argument("--bootstrap-servers", help="by default an embedded broker")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    found: dict[Cell, Counter[str]] = {}
    began_s = time.monotonic()
    end_s = began_s + asked.minutes * 60
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = asked.bootstrap_servers
        if kafka is None:
            kafka = stack.enter_context(EmbeddedKafka(path / "kafka")).bootstrap_servers
        pool = stack.enter_context(ThreadPoolExecutor(asked.at_once))

        def one(cell: Cell) -> tuple[Cell, str] | None:
            return None if time.monotonic() > end_s else (cell, run_one(kafka, path, cell, asked.reset))

        for cell_and_outcome in pool.map(one, cells() * asked.rounds):
            if cell_and_outcome is not None:
                cell, outcome = cell_and_outcome
                found.setdefault(cell, Counter())[outcome] += 1
                print(f"{cell}: {outcome}", file=sys.stderr, flush=True)
    print(table(found))
    runs = sum(outcomes.total() for outcomes in found.values())
    print(f"{runs} runs in {time.monotonic() - began_s:.0f} s, {asked.at_once} at once")
    return int(any(SILENT in outcomes for outcomes in found.values()))


if __name__ == "__main__":
    sys.exit(main())
