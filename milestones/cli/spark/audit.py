"""`milestones spark audit`: checks an application's outputs and stores against its inputs.

*Guarantees*: the exit code is 1 if something is certainly wrong, else 0.
*Assumes*: the same version of the application's code has written the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from milestones.cli.console import FAILED, OK, out
from milestones.cli.spark.sessions import Start, on_spark
from milestones.common.records import TopicPartition

if TYPE_CHECKING:
    from milestones.client.streams import Streams
    from milestones.pipeline.audit import Audited, AuditReport

SHOWN = 5
"""The most examples that the terminal shows per topic and store. The page shows more."""


def _begin(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for text in values:
        at, equals, offset = text.rpartition("=")
        topic, dash, number = at.rpartition("-")
        if not (equals and dash and topic and number.isdigit() and offset.isdigit()):
            raise click.BadParameter(f"{text!r} isn't TOPIC-PARTITION=OFFSET, such as orders-0=1500")
        found[TopicPartition(topic, int(number))] = int(offset)
    return found


@click.command()
@click.argument("app")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with plots here (HTML).")
@click.option(
    "--begin",
    multiple=True,
    metavar="TOPIC-PARTITION=OFFSET",
    callback=_begin,
    help="The offset at which the application began with an input partition. Default: 0. May be repeated.",
)
@click.option("--work", metavar="URL", help="A folder that Spark's executors share; only needed on other machines.")
@on_spark
def audit(
    streams: Streams,
    start: Start,
    report: Path | None,
    begin: Mapping[TopicPartition, int],
    work: str | None,
) -> int:
    """Check an application's outputs and stores against its inputs.

    Reads the committed records of inputs, outputs and changelogs. Processes the inputs with the topology once more, on
    Spark and without writing anything, and compares the results. Reports lost, duplicate, unexpected, wrong, reordered
    and misplaced records, and store entries that are lost, unexpected or wrong. The application may run at the same
    time. Kafka must still have all records of the inputs.

    \b
    Examples:
      milestones spark audit words.py
      milestones spark audit words.py --report audit.html
      milestones spark audit words.py -b kafka:9092 --begin lines-0=1500 --begin lines-1=0
    """
    with start("audit") as spark:
        from milestones.pipeline.audit import audit as audited
        from milestones.pipeline.audit.page import write_page

        found = audited(streams.topology, spark, begin=begin, work=work, config=streams.config)
    _show(found)
    if report is not None:
        write_page(found, report)
        out().print(f"the report: {report}", soft_wrap=True)
    return OK if found.ok else FAILED


def _show(found: AuditReport) -> None:
    from milestones.pipeline.audit import Problem

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("output or store", "should be", "is", *(problem.value for problem in Problem)):
        table.add_column(heading, justify="left" if heading == "output or store" else "right")
    for what, items in (("", found.topics), ("store ", found.stores)):
        for one in items:
            counts = (f"{one.counts[p]:,}" if one.counts.get(p) else "–" for p in Problem)
            name = f"{what}{one.name}{' (doubtful)' if one.doubts else ''}"
            table.add_row(name, f"{one.expected:,}", f"{one.actual:,}", *counts)
    out().print(table)
    for one in [*found.topics, *found.stores]:
        _examples(one)
    for text in [*found.notes, *(f"sub-topology {sub} isn't looked at: {why}" for sub, why in found.skipped.items())]:
        out().print(f"note: {text}", soft_wrap=True, highlight=False, markup=False)
    verdict = "nothing is wrong" if found.ok else f"{found.wrong:,} problems"
    doubtful = f", {found.doubtful:,} differences are doubtful" if found.doubtful else ""
    live = "; the application runs: what was under way is left out" if found.live else ""
    out().print(f"{found.records:,} input records in {found.seconds:.1f} s: {verdict}{doubtful}{live}", highlight=False)


def _examples(one: Audited) -> None:
    for doubt in one.doubts if one.found else ():
        out().print(f"{one.name} need not come out the same a second time: {doubt}", soft_wrap=True, markup=False)
    for each in one.examples[:SHOWN]:
        line = f"{each.problem.value}: {each.where} key {each.key}"
        line += f": should be {each.expected or '–'}, is {each.actual or '–'}"
        source = f" (of {each.source})" if each.source else ""
        out().print(line + source, soft_wrap=True, highlight=False, markup=False)
