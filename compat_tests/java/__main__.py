"""Runs the bench against Java: `python -m compat_tests.java --examples 100`.

*Guarantees*: exit code 0 when no topology differs but as declared, 1 otherwise, 2 for arguments that make no sense and
where there is no Java or no jar.
*Assumes*: nothing.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.progress import track
from rich.table import Table

from compat_tests.java.bench import ABSENT, CACHES, DECLARED, DIFFERS, EQUAL, Compared, Line, absent, check, some_cases
from compat_tests.java.comparing import DifferenceError
from compat_tests.java.jvm import BenchError, Java
from compat_tests.java.ours import Ours, OursInItsOrder
from compat_tests.java.plan_program import caches_of, entry_of
from compat_tests.java.plans import random_plan_of
from compat_tests.java.topologies import ALL
from compat_tests.java.ways import difference_between_ways
from milestones.common.kafka.embedded.errors import EmbeddedKafkaError

EXAMPLES, PLAN_EXAMPLES = 100, 3
"""Cases of each topology, and of each plan. The first case that hypothesis makes has no step."""
WAYS = 3
"""In how many ways our side runs a case of a plan, besides the plain one."""
WIDTH = 132
"""Columns where there is no terminal."""
FAILS_TO_MERGE = "Found a null keyChangingChild node"
"""Java's error where `merge.repartition.topics` meets a merge of merges; see the declared differences."""
STYLES = {EQUAL: "green", DIFFERS: "bold red", DECLARED: "yellow", ABSENT: "dim"}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.java", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["topologies", "plans"], default="topologies",
                        help="topologies by name (the default), or random plans of operators")
    parser.add_argument("--examples", type=_count,
                        help=f"cases per topology; default: {EXAMPLES}, of each plan {PLAN_EXAMPLES}")
    parser.add_argument("--count", type=_count, default=100, help="how many plans; default: %(default)s")
    parser.add_argument("--ours", action="store_true",
                        help="run plans on our side only: with restarts, roll-backs, long commits, several partitions")
    parser.add_argument("--seed", type=int, help="of the cases; default: another one each time")
    parser.add_argument("--topology", action="append", metavar="NAME", help="only this one; may be given several times")
    parser.add_argument("--cache", action="append", type=_bytes, metavar="BYTES",
                        help="of the record cache, may be given several times; 0 compares every record, more the last "
                        f"one per key; default: {' and '.join(map(str, CACHES))}")  # fmt: skip
    return parser.parse_args()


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError
    return count


def _bytes(text: str) -> int:
    size = int(text)
    if size < 0:
        raise ValueError
    return size


def chosen(java_names: Collection[str], wanted: Iterable[str] | None) -> list[str]:
    """The topologies to run, in Java's order. `BenchError` for one that neither side has, or only ours."""
    unknown = sorted({*ALL, *(wanted or ())}.difference(java_names))
    if unknown:
        raise BenchError(f"Java has no topology {', '.join(unknown)}: see {', '.join(java_names)}")
    names = set(wanted or java_names)
    return [name for name in java_names if name in names]


def table(lines: Iterable[Line]) -> Table:
    """A line per topology."""
    shown = Table(title="Against Kafka Streams", caption="the texts of describe() are compared for all that are here")
    shown.add_column("topology", no_wrap=True)
    for column in ("examples", "topics", "changelogs", "records", "last rows", "errors"):
        shown.add_column(column, justify="right")
    shown.add_column("result", no_wrap=True)
    for line in lines:
        of = line.compared
        topics = len(of.topics) - of.changelogs
        counts = (of.examples, topics, of.changelogs, of.records, of.rows, of.errors)
        numbers = ["" if line.result == ABSENT else f"{count:,}" for count in counts]
        result = f"{line.result}: {line.why}" if line.result == DECLARED else line.result
        shown.add_row(line.topology, *numbers, result, style=STYLES[line.result])
    return shown


def run(arguments: argparse.Namespace, seed: int, out: Console) -> list[Line]:
    """Run what the arguments ask for."""
    if arguments.what == "plans":
        running = run_ours if arguments.ours else run_plans
        return running(arguments.count, arguments.examples or PLAN_EXAMPLES, seed, out)
    with Java() as java:
        names, ours = chosen(java.names(), arguments.topology), Ours(ALL)
        here = [ALL[name] for name in names if name in ALL]
        caches = arguments.cache or CACHES
        lines = [
            check(entry, ours, java, arguments.examples or EXAMPLES, seed, caches)
            for entry in track(here, "topologies", console=out, transient=True)
        ]
        return lines + absent(name for name in names if name not in ALL)


def run_plans(count: int, examples: int, seed: int, out: Console) -> list[Line]:
    """Run `count` random plans. The same seed gives the same plans."""
    with Java() as java:
        return [
            _compared(random_plan_of(seed, number), f"{seed} {number}", java, examples, seed)
            for number in track(range(count), "plans", console=out, transient=True)
        ]


def _compared(plan: str, ways: str, java: Java, examples: int, seed: int) -> Line:
    """Compare a plan with Java, and in some ways, by the seed `ways`, with itself."""
    entry = entry_of(plan)
    ours, in_its_order = (kind({entry.name: entry}) for kind in (Ours, OursInItsOrder))
    try:
        return check(
            entry, ours, java, examples, seed, caches_of(entry), shrink=False, otherwise=in_its_order,
            also=lambda case: difference_between_ways(entry, case, ways, WAYS),
        )  # fmt: skip
    except BenchError as error:
        if FAILS_TO_MERGE not in str(error):
            raise
        return Line(entry.name, DECLARED, Compared(), "Java can't merge its repartition topics")


def run_ours(count: int, examples: int, seed: int, out: Console) -> list[Line]:
    """As `run_plans`, on our side only."""
    numbers = track(range(count), "plans", console=out, transient=True)
    return [_alone(random_plan_of(seed, number), f"{seed} {number}", examples) for number in numbers]


def _alone(plan: str, ways: str, examples: int) -> Line:
    entry, compared = entry_of(plan), Compared()
    for case in some_cases(entry.inputs, examples, ways):
        found = difference_between_ways(entry, case, ways, WAYS)
        compared.examples += 1
        if found is not None:
            return Line(entry.name, DIFFERS, compared, str(DifferenceError(found, case)))
    return Line(entry.name, EQUAL, compared)


def _command_of(line: Line, arguments: argparse.Namespace, seed: int) -> str:
    """The arguments that compare a topology, or the plans, once more."""
    if arguments.what == "plans":
        of = "plans --ours" if arguments.ours else "plans"
        return f"{of} --count {arguments.count} --seed {seed} --examples {arguments.examples or PLAN_EXAMPLES}"
    return f"--topology {line.topology} --seed {seed} --examples {arguments.examples or EXAMPLES}"


def told(lines: Sequence[Line]) -> str:
    """What random plans came to."""
    results = Counter(f"{line.result}: {line.why}" if line.result == DECLARED else line.result for line in lines)
    compared = [line.compared for line in lines]
    numbers = {what: sum(getattr(one, what) for one in compared) for what in ("examples", "records", "rows", "errors")}
    counts = ", ".join(f"{number:,} {what}" for what, number in numbers.items())
    return f"{len(lines)} plans, {counts}: " + "; ".join(f"{times} {result}" for result, times in results.most_common())


def main() -> int:
    arguments = parsed()
    seed = random.randrange(1_000_000) if arguments.seed is None else arguments.seed
    out, began = Console(width=None if sys.stdout.isatty() else WIDTH), time.monotonic()
    logging.disable(logging.WARNING)  # the skipped records of thousands of tasks
    try:
        lines = run(arguments, seed, out)
    except (BenchError, EmbeddedKafkaError) as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.what == "plans":
        print(told(lines))
    else:
        out.print(table(lines))
    failures = [line for line in lines if line.result == DIFFERS]
    for line in failures:
        again = f"again with {_command_of(line, arguments, seed)}"
        out.print(f"\n[bold red]{line.topology}[/]: {again}", highlight=False, soft_wrap=True)
        out.print(line.why, markup=False, highlight=False, soft_wrap=True)
    print(f"seed {seed}, {time.monotonic() - began:.0f} s, {len(failures)} of {len(lines)} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
