"""The demo's application. Each instance is a process of its own, started with `python -m milestones.demo.app`.

All settings come from the environment (`MILESTONES_APPLICATION_ID`, `MILESTONES_BOOTSTRAP_SERVERS`, ...).

*Guarantees*: the process writes `Streams.status()` to standard output as a line of JSON, several times a second, and
nothing else. Its log goes to standard error. It ends when its standard input is closed, so that it can't outlive the
demo.
*Assumes*: the parent process reads the output.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from typing import Any

import orjson

from milestones import Status, Streams, StreamsBuilder, Topology, serdes
from milestones.demo.counting import add_word, no_words, words

LINES, WORD_COUNTS, LETTERS = "lines", "word-counts", "letters"
COUNTS_STORE, LETTERS_STORE = "counts", "by-letter"
REPORT_EVERY_S = 0.25
PATIENCE_S = 3.0
"""The longest time that a clean close may take after the parent process has died."""


def topology() -> Topology:
    """Returns the topology. It splits lines into words, counts each word, and computes sums per first letter."""
    builder = StreamsBuilder()
    all_words = builder.stream(LINES, value=serdes.STRING).flat_map_values(words)
    (
        all_words.group_by(lambda _, word: word, key=serdes.STRING)
        .count(COUNTS_STORE)
        .to_stream()
        .to(WORD_COUNTS, value=serdes.LONG)
    )
    (
        all_words.group_by(lambda _, word: word[0], key=serdes.STRING)
        .aggregate(no_words, add_word, LETTERS_STORE, value=serdes.JSON)
        .to_stream()
        .to(LETTERS, value=serdes.JSON)
    )
    return builder.build()


def as_json(status: Status) -> dict[str, Any]:
    """Returns the values of a status that are written as one line of JSON."""
    return {
        "state": status.state.value,
        "stage": status.stage,
        "tasks": {str(task): place for task, place in sorted(status.tasks.items())},
        "lag": sum(status.lags.values()),
        "restoring": {str(task): left for task, left in sorted(status.restoring.items())},
        "records": status.records,
        "generation": status.generation,
    }


def main() -> int:
    """Run the application until it is stopped. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    streams = Streams(topology())
    stopped = threading.Event()
    reporter = threading.Thread(target=_report, args=(streams, stopped), name="reporter", daemon=True)
    reporter.start()
    threading.Thread(target=_end_with_parent, args=(streams,), name="parent watch", daemon=True).start()
    try:
        return streams.run()
    finally:
        stopped.set()
        reporter.join()


def _report(streams: Streams, stopped: threading.Event) -> None:
    over = False
    while not over:
        over = stopped.wait(REPORT_EVERY_S)
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.buffer.write(orjson.dumps(as_json(streams.status())) + b"\n")
            sys.stdout.buffer.flush()


def _end_with_parent(streams: Streams) -> None:
    # Reads the descriptor directly: a buffered reader in a daemon thread would break the exit of the interpreter.
    while os.read(sys.stdin.fileno(), 1):
        pass
    if not streams.close(timeout_s=PATIENCE_S):
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
