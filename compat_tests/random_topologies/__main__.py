"""Runs random cases on a real broker: `python -m compat_tests.random_topologies --seeds 1-60 --broker process`.

*Guarantees*: exit code 0 when all were as promised, 1 otherwise, 2 for arguments that make no sense.
*Assumes*: nothing.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from compat_tests import GUARANTEES
from compat_tests.harness import brokers
from compat_tests.random_topologies.campaign import TRIES, Campaign
from compat_tests.random_topologies.cases import Case, mixed, random_case
from milestones.flags import stage_names


def seeds(text: str) -> Iterable[int]:
    """`7`, `1-60`, or `100-` for no end."""
    first, dash, last = text.partition("-")
    if not dash:
        return [int(first)]
    return itertools.count(int(first)) if not last else range(int(first), int(last) + 1)


def cases(arguments: argparse.Namespace, broker_faults: bool) -> Iterator[Case]:
    """What the arguments ask for."""
    if arguments.case is not None:
        yield from [arguments.case] * arguments.times
        return
    guarantees = [arguments.guarantee] if arguments.guarantee else GUARANTEES
    for seed in arguments.seeds:
        for guarantee in guarantees:
            case = random_case(seed, guarantee, quick=arguments.quick, broker_faults=broker_faults)
            case = mixed(case, arguments.beside) if arguments.beside else case
            yield from [case] * arguments.times


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.random_topologies", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=seeds, help="7, 1-60, or 100- for no end")
    what.add_argument("--case", type=Case.parse, help="a case in text, as a failure prints it")
    parser.add_argument("--guarantee", choices=GUARANTEES, help="default: both")
    parser.add_argument("--stage", default=stage_names()[-1], help="default: the newest, %(default)s")
    parser.add_argument("--beside", help="a stage that some instances are of while the others are of --stage")
    parser.add_argument("--broker", default="auto", help="auto, testcontainers, process, HOST:PORT")
    parser.add_argument("--quick", action="store_true", help="without faults that take long")
    parser.add_argument("--times", type=int, default=1, help="run each case so many times")
    parser.add_argument("--tries", type=int, default=TRIES, help="runs that shrinking a failure may take")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no case after so long")
    parser.add_argument("--directory", type=Path, help="where logs of failures stay; default: a new one")
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    choice, note = brokers.resolve(arguments.broker)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="random-topologies-"))
    print(f"logs of failures: {directory}" + (f"; {note}" if note else ""), flush=True)
    until = time.monotonic() + arguments.minutes * 60
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that broker and applications are ended too
    with brokers.running(choice, directory / "broker") as broker:
        say = lambda text: print(text, flush=True)  # noqa: E731
        campaign = Campaign(broker, choice, arguments.stage, directory, arguments.tries, say)
        campaign.run(cases(arguments, broker.has_faults), until)
    print(f"{campaign.done} cases, {len(campaign.failures)} failed")
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main())
