"""Runs the demo, from the broker's start to the check of the result.

*Guarantees*: at the end, even after an error, instances, feeder and broker have ended.
*Assumes*: the main thread calls it.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from milestones import MilestonesError
from milestones.common.kafka.embedded.command import sigterm_interrupts
from milestones.demo.check import Check, DemoResult, checks, decoded, most_frequent
from milestones.demo.counting import PlainCount, plain_count
from milestones.demo.story import Story
from milestones.demo.text import lines as text_lines
from milestones.demo.view import Display
from milestones.embedded import KAFKA_VERSION, EmbeddedKafka
from milestones.flags import parse_milestones, stage_names
from milestones.serdes import LONG

_TOP = 15
_INTERRUPTED = 130


def play(console: Console | None, seconds: float, stage: str | None, lines: int | None, folder: Path | None) -> int:
    """Run the demo. See `milestones.demo.run`."""
    console = console or Console()
    # The log lines of clients about a stopped broker aren't shown on the screen, unless the user has set up logging.
    logging.getLogger("milestones.librdkafka").addHandler(logging.NullHandler())
    try:
        with sigterm_interrupts():
            return _play(console, seconds, stage, lines, folder)
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started has ended", highlight=False)
        return _INTERRUPTED
    except (MilestonesError, KafkaException) as error:
        console.print(f"[bold red]the demo failed:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return error.exit_code if isinstance(error, MilestonesError) else 1


def _play(console: Console, seconds: float, stage: str | None, lines: int | None, folder: Path | None) -> int:
    stage = stage or stage_names()[-1]
    parse_milestones(stage)
    text = text_lines()[:lines]
    if not text:
        raise MilestonesError(f"lines={lines}: the demo needs at least one line of its text")
    characters = sum(map(len, text))
    console.print(
        "[bold]Milestones[/]: a stateful, exactly-once stream application on a real Kafka. "
        f"It counts the words of {len(text):,} lines ({characters / 1e6:.1f} MB) of the American Standard Version "
        f"(1901), which flow in within {seconds:.0f} s; half-way one of its two instances is killed.",
        highlight=False,
    )
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise MilestonesError(f"folder {folder} is not empty: give the demo a new one")
    with ExitStack() as stack:
        display = Display(console)
        broker = EmbeddedKafka(folder and folder / "kafka", log=display.event)
        display.event(f"Apache Kafka {KAFKA_VERSION}: the first time its jars are downloaded, about 60 MB")
        kafka = stack.enter_context(broker)
        # The instances' folder is in the broker's directory, which is deleted even if this process is killed.
        instances = folder or kafka.data_dir / "demo"
        story = Story(display, kafka, text, seconds, stage, instances)
        stack.callback(story.close)
        with display:
            outcome = story.tell()
        plain = plain_count(text)
        _print_top(console, outcome)
        return _print_checks(console, checks(outcome, plain), plain)


def _print_top(console: Console, outcome: DemoResult) -> None:
    table = Table("", "", show_header=False, box=None)
    table.columns[1].justify = "right"
    console.print(f"\n[bold]The {_TOP} most frequent words[/]", highlight=False)
    for word, count in most_frequent(decoded(outcome.word_counts, LONG), _TOP):
        table.add_row(word, f"{count:,}")
    console.print(table, "")


def _print_checks(console: Console, results: list[Check], plain: PlainCount) -> int:
    for check in results:
        mark = "[green]holds[/]" if check.holds else "[bold red]WRONG[/]"
        wrong = f": [red]{escape(check.wrong)}[/]" if check.wrong else ""
        console.print(f"{mark}  {escape(check.claim)}{wrong}", highlight=False, soft_wrap=True)
    if all(check.holds for check in results):
        console.print(f"[bold green]All {plain.total:,} words were counted exactly once.[/]", highlight=False)
        return 0
    console.print("[bold red]The result is wrong.[/]", highlight=False)
    return 1
