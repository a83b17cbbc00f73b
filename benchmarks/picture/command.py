"""What `python -m benchmarks picture` is told, and what it leaves.

*Guarantees*: an unknown scenario, and a page that can't be drawn, are refused before anything is measured.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import rich_click as click

from benchmarks import options
from benchmarks.errors import BenchmarkError
from benchmarks.job import COMMIT_INTERVAL_MS, EXACTLY_ONCE
from benchmarks.peers.declared import LIBRARIES
from benchmarks.picture.measuring import Found, Turns, failed, measure
from benchmarks.picture.page import page
from benchmarks.picture.scenarios import Scenario, Sizes, scenarios
from benchmarks.report import machine, write_json
from benchmarks.works import ALL_STAGES

__all__ = ("OPTIONS", "Found", "Sizes", "Turns", "failed", "measure", "must_draw", "wanted", "write")

PEERS: Final = "loop,kafka-streams,kafka-streams-tuned,quix,bytewax,faust"
OPTIONS: Final = options.together(
    options.stages(ALL_STAGES),
    click.option("--peers", "peer_names", default=PEERS, show_default=True, callback=options.words,
                 help="Others, with commas."),
    click.option("--scenarios", "names", default="", callback=options.words,
                 help="Those only whose names begin with one of these, with commas."),
    click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1)),
    click.option("--within", "within_s", default=600.0, show_default=True, type=click.FloatRange(min=10),
                 help="Seconds that a run may take."),
    options.json_file,
    click.option("--html", "page_file", type=options.NEW_FILE, help="Write the page here."),
    options.records(500_000),
    options.keys,
    options.counts("--partitions", "partition_counts", "1,4,16,64", "The axis of partitions."),
    options.counts("--bytes", "record_bytes", "100,1000,10000", "The axis of record sizes."),
    options.counts("--key-counts", "key_counts", "1000,100000,10000000", "The axis of keys."),
    options.counts("--rates", "rates", "1000,5000,10000", "Records a second, of the latencies."),
    options.seconds(20),
    options.warm(10),
    options.commit(int(COMMIT_INTERVAL_MS)),
    options.seed,
    options.guarantee_by(EXACTLY_ONCE),
)  # fmt: skip
EXPLAINED: Final = {
    "all": "acks=all; a commit every second, in `latency` every 100 ms; one broker, so one copy",
    "milestones": "both guarantees; state in RocksDB, a changelog",
    "kafka-streams": "both guarantees; state in RocksDB, a changelog; no cache, so that each record has an output",
    "loop": "commits as the others, under both guarantees; its state is in memory, logged, and never restored",
    **{name: library.promise for name, library in LIBRARIES.items()},
    "Spark": "ours: exactly once; its own writes nothing, its state is in checkpoints",
}


def wanted(sizes: Sizes, names: Sequence[str]) -> list[Scenario]:
    """The scenarios whose names begin with one of these; all, where there are none."""
    every = scenarios(sizes)
    found = [one for one in every if not names or one.name.startswith(tuple(names))]
    if missing := [name for name in names if not any(one.name.startswith(name) for one in found)]:
        known = ", ".join(one.name for one in every)
        raise click.BadParameter(f"there is no scenario {', '.join(missing)}, only {known}", param_hint="--scenarios")
    return found


def must_draw(page_file: Path | None) -> None:
    """`BenchmarkError` where a page is wanted and nothing can draw."""
    if page_file is not None and find_spec("matplotlib") is None:
        raise BenchmarkError("the page needs matplotlib: pip install 'milestones[bench]'")


def write(found: Sequence[Found], settings: Mapping[str, Any], json_file: Path | None, page_file: Path | None) -> None:
    """All that was found so far, as JSON and as a page, where they are wanted."""
    packages = {name: " ".join(library.requirements) for name, library in LIBRARIES.items()}
    if json_file is not None:
        told = {**settings, "packages": packages, "guarantees": EXPLAINED}
        write_json(json_file, told, scenarios=[one.as_json() for one in found])
    if page_file is not None:
        about = {"Packages": packages, "Machine": machine(), "Settings": settings}
        page_file.write_text(page(found, about, EXPLAINED), "utf-8")
