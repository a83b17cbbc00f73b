"""Who takes part: ours at a stage, and the peers, by name.

*Guarantees*: a contender that can't run here is an error before anything is measured.
*Assumes*: a work has its programs in a folder of its own: `app.py` (ours), `loop.py`, `<Name>.java`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from milestones.common.kafka.embedded.jars import KAFKA_VERSION, resolve
from milestones.flags import parse_milestones, stage_name

HERE = Path(__file__).parent
KAFKA_STREAMS = (
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
    "com.fasterxml.jackson.core:jackson-databind:2.21.2",
    "org.slf4j:slf4j-nop:1.7.36",
)
KAFKA_STREAMS_JVM = ("-Xmx1g",)
"""A heap that doesn't depend on the machine's memory."""
WARM_TIMES = 4
"""A warm run has so many times the records: the JIT compilers need about a million to settle."""


@dataclass(frozen=True)
class Contender:
    """`command(job)` starts it. `times`: it is given so many times the records."""

    name: str
    command: Callable[[Job], Sequence[str]]
    times: int = 1


def ours(stage: str, work: str) -> Contender:
    """Milestones with the flags of `stage` (or a set of flags, joined by `+`). `ConfigError` for one that this version
    doesn't have."""
    name = stage_name(parse_milestones(stage))

    def command(job: Job) -> Sequence[str]:
        told = replace(job, stage=stage)
        return [sys.executable, "-m", f"benchmarks.{work}.app", *told.arguments()]

    return Contender(f"milestones {name}", command)


def loop(work: str) -> list[Contender]:
    """The least that does the work: confluent-kafka and a dict, nothing restored, no scopes, no disk."""

    def command(job: Job) -> Sequence[str]:
        return [sys.executable, "-m", f"benchmarks.{work}.loop", *job.arguments()]

    return [Contender("loop", command)]


def kafka_streams(work: str) -> list[Contender]:
    """The real one, twice: as it starts (cold), and with enough records for its compilers (warm)."""
    java, classes = _compiled(HERE / work / f"{work.capitalize()}.java")

    def command(job: Job) -> Sequence[str]:
        return [java, *KAFKA_STREAMS_JVM, "-cp", classes, work.capitalize(), *job.arguments()]

    return [Contender("kafka-streams cold", command), Contender("kafka-streams warm", command, WARM_TIMES)]


PEERS: dict[str, Callable[[str], list[Contender]]] = {"loop": loop, "kafka-streams": kafka_streams}
PROGRAMS = {"loop": "loop.py", "kafka-streams": "{}.java"}
"""The program of each; `{}` is the work's name."""


def peers(names: Iterable[str], work: str) -> list[Contender]:
    """The contenders that these names stand for."""
    found: list[Contender] = []
    for name in names:
        if name not in PEERS:
            raise BenchmarkError(f"there is no peer {name!r}, only {', '.join(PEERS)}")
        if not (HERE / work / PROGRAMS[name].format(work.capitalize())).exists():
            raise BenchmarkError(f"the peer {name} has no program for {work}: leave it out (--peers '')")
        found += PEERS[name](work)
    return found


def _compiled(source: Path) -> tuple[str, str]:
    """The `java` to run with, and the class path with `source`, compiled into the user's cache beside its jars."""
    java, javac = _jdk()
    jars = resolve(f"kafka-streams-{KAFKA_VERSION}", KAFKA_STREAMS)
    classes = jars.parent / f"{jars.name}-benchmarks"
    done = subprocess.run(
        [javac, "--release", "17", "-cp", f"{jars}/*", "-d", classes, source],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"{source.name} doesn't compile:\n{done.stderr}{done.stdout}")
    return java, os.pathsep.join([str(classes), f"{jars}/*"])


def _jdk() -> tuple[str, str]:
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin") if home else os.environ.get("PATH", os.defpath)
    java, javac = shutil.which("java", path=path), shutil.which("javac", path=path)
    if java is None or javac is None:
        where = "JAVA_HOME" if home else "PATH"
        raise BenchmarkError(
            f"the peer kafka-streams is compiled by javac, and {where} ({path}) has none: install a JDK of Java 17 or "
            "newer, or leave that peer out (--peers loop)"
        )
    return java, javac
