"""Who takes part: ours at a stage, and the peers, by name.

*Guarantees*: a contender that can't run here is an error before anything is measured.
*Assumes*: a work has its programs in a folder of its own, or shares one: `app.py` (ours), `loop.py`, `<Name>.java`.
What those in Java have in common is in `java/`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.job import GUARANTEES, Job
from benchmarks.peers.declared import LIBRARIES, LOGGED, Changelog, Library
from benchmarks.peers.environment import python_of
from benchmarks.windows import KINDS, STATELESS
from milestones.common.kafka.embedded.jars import resolve
from milestones.flags import parse_milestones, stage_name

HERE = Path(__file__).parent
KAFKA_STREAMS_VERSION = "4.4.0"
"""The newest one, whatever the broker's: the peer is measured as its users have it."""
KAFKA_STREAMS = (
    f"org.apache.kafka:kafka-streams:{KAFKA_STREAMS_VERSION}",
    "com.fasterxml.jackson.core:jackson-databind:2.21.2",
    "org.slf4j:slf4j-nop:1.7.36",
)
KAFKA_STREAMS_JVM = ("-Xmx1g",)
"""A heap that doesn't depend on the machine's memory."""
WARM_TIMES = 4
"""A warm run has so many times the records: the JIT compilers need about a million to settle."""
CACHE_BYTES = 10 * 1024 * 1024
"""Of Kafka Streams where it has a cache: its default."""
CACHED = ("count", "commits")
"""The works that know which outputs a cache may leave out."""
OUTPUT, CHANGELOG = "output", "changelog"

_WINDOWS = [f"windows-{kind}" for kind in KINDS]
PROGRAMS = {"latency": "last", "skew": "last", "footprint": "last", **dict.fromkeys(_WINDOWS, "windows")}
"""The folder of a work's programs, where it isn't the work's own."""
RUNS: Mapping[str, Sequence[tuple[str, int, str]]] = {
    "count": (("cold", 1, ""), ("warm", WARM_TIMES, "")),
    "restore": (("cold", 1, ""), ("warm", WARM_TIMES, "")),
    **dict.fromkeys(_WINDOWS, (("warm", WARM_TIMES, ""),)),
    "latency": (("", 1, ""), ("linger 5", 1, "5")),
}
"""How Kafka Streams takes part in a work, unless once: names, how many times the records each gets, `work` of its job
where that isn't the work's own.
Its producer waits for 100 ms for more records, ours for 5: `latency` has it as it is, and as ours."""


@dataclass(frozen=True)
class Contender:
    """`command(job)` starts it. `times`: its records are multiplied by this number; `threads`: the number of threads
    that call user code; `workers`: the number of processes of one command that do; `instances`: the number of
    processes, where a work says it; `tasks`: the number of its tasks, where a work says it; `late_ms`: by how much the
    answers to its commits come later, where a work says it. `threaded`: whether it can have several threads; `thin`:
    which of its topics (`OUTPUT`, `CHANGELOG`) have the last value per key and commit only.
    `part`: the contender is given so many times fewer records; `guarantees`: the contender's, the strongest last;
    `changelog`: how to read it, where it has one; `prefixes`: how the names of a run's topics begin; `commits`: its
    progress is in the offsets that it commits, else in its outputs; `plain`: it writes windows and numbers as JSON;
    `peer`: not ours; `absent`: why it can't take part, if it can't."""

    name: str
    command: Callable[[Job], Sequence[str]]
    times: int = 1
    part: int = 1
    threads: int = 1
    instances: int = 1
    workers: int = 1
    tasks: int = 0
    late_ms: int = 0
    threaded: bool = True
    thin: frozenset[str] = frozenset()
    guarantees: Sequence[str] = GUARANTEES
    changelog: Changelog | None = LOGGED
    prefixes: Sequence[str] = ("{run}-",)
    commits: bool = True
    plain: bool = False
    peer: bool = False
    absent: str = ""

    def under(self, guarantees: Iterable[str]) -> list[str]:
        """Those of these guarantees that it has; its strongest one where it has none of them."""
        return [one for one in guarantees if one in self.guarantees] or [self.guarantees[-1]]


def program_of(work: str) -> str:
    """The folder with the programs of a work."""
    return PROGRAMS.get(work, work)


def with_threads(contenders: Iterable[Contender], counts: Sequence[int]) -> list[Contender]:
    """Each contender with each of these numbers of threads; once, with one, where it can't have several."""
    return [
        replace(one, threads=count, name=_named(one, count, counts, "thread"))
        for one, count in _each(contenders, counts)
    ]


def with_workers(contenders: Iterable[Contender], counts: Sequence[int]) -> list[Contender]:
    """Each of ours with each of these numbers of workers, and each peer with as many threads; once, with one, where it
    can't have several."""
    return [
        replace(one, threads=one.threads * count, name=_named(one, count, counts, "thread"))
        if one.peer
        else replace(one, workers=count, name=_named(one, count, counts, "worker"))
        for one, count in _each(contenders, counts)
    ]


def with_instances(contenders: Iterable[Contender], counts: Sequence[int]) -> list[Contender]:
    """Each contender with each of these numbers of instances; once, with one, where state can't move between them."""
    return [
        replace(one, instances=count, name=_named(one, count, counts, "instance"))
        for one, count in _each(contenders, counts)
    ]


def _each(contenders: Iterable[Contender], counts: Sequence[int]) -> list[tuple[Contender, int]]:
    return [(one, count) for one in contenders for count in (counts if one.threaded else [1])]


def with_tasks(contenders: Iterable[Contender], counts: Sequence[int]) -> list[Contender]:
    """Each contender with each of these numbers of tasks."""
    return [
        replace(one, tasks=count, name=_named(one, count, counts, "task")) for one in contenders for count in counts
    ]


def with_late_answers(contenders: Iterable[Contender], times_ms: Sequence[int]) -> list[Contender]:
    """Each contender with the answers to its commits so many ms late; each is named by that, 0 too."""
    return [
        replace(one, late_ms=late_ms, name=f"{one.name}, {late_ms:,} ms late")
        for one in contenders
        for late_ms in times_ms
    ]


def _named(contender: Contender, count: int, counts: Sequence[int], what: str) -> str:
    """A contender that has one number only needs no name for it."""
    told = len(counts) > 1 and contender.threaded
    return f"{contender.name}, {count} {what}{'s' * (count != 1)}" if told else contender.name


def ours(stage: str, work: str) -> Contender:
    """Milestones with the flags of `stage` (or a set of flags, joined by `+`). `ConfigError` for one that this version
    doesn't have."""
    flags = parse_milestones(stage)

    def command(job: Job) -> Sequence[str]:
        told = replace(job, stage=stage)
        return [sys.executable, "-m", f"benchmarks.{program_of(work)}.app", *told.arguments()]

    thin = {CHANGELOG} if "committed_collector" in flags else ()
    return Contender(f"milestones {stage_name(flags)}", command, thin=frozenset(thin))


def loop(work: str) -> list[Contender]:
    """The least that does the work: confluent-kafka and a dict, nothing restored, no scopes, no disk."""

    def command(job: Job) -> Sequence[str]:
        return [sys.executable, "-m", f"benchmarks.{program_of(work)}.loop", *job.arguments()]

    lacking = program_of(work) == "windows" and work != f"windows-{STATELESS}"
    absent = "has none: it does no windows and no joins" if lacking else ""
    return [Contender("loop", command, threaded=False, peer=True, absent=absent)]


def kafka_streams(work: str) -> list[Contender]:
    """The real one, as `RUNS` says: cold, as it starts, and warm, with enough records for its compilers."""
    return _kafka_streams(work, Contender("kafka-streams", Job.arguments, peer=True))


def kafka_streams_cached(work: str) -> list[Contender]:
    """The same with its cache: it puts out, and logs, the last value per key and commit."""
    if work not in CACHED:
        raise BenchmarkError(f"with a cache Kafka Streams leaves outputs out, which only {', '.join(CACHED)} can check")
    cached = Contender("kafka-streams-cached", Job.arguments, thin=frozenset({OUTPUT, CHANGELOG}), peer=True)
    return _kafka_streams(work, cached, str(CACHE_BYTES))


def kafka_streams_tuned(work: str) -> list[Contender]:
    """The same, without a cache, with the settings that its guides name for throughput, or our linger for `latency`."""
    tuned = Contender("kafka-streams-tuned", Job.arguments, peer=True)
    runs = RUNS.get(work, (("", 1, ""),))[-1:]
    return [replace(one, name=tuned.name) for one in _kafka_streams(work, tuned, settings="tuned", runs=runs)]


def _kafka_streams(
    work: str, like: Contender, cache_bytes: str = "0", settings: str = "-",
    runs: Sequence[tuple[str, int, str]] | None = None,
) -> list[Contender]:  # fmt: skip
    program = program_of(work).capitalize()
    java, classes = _compiled(_java(work))

    def command(job: Job, kind: str) -> Sequence[str]:
        told = replace(job, work=kind or job.work, cache_bytes=cache_bytes, settings=settings)
        return [java, *KAFKA_STREAMS_JVM, "-cp", classes, program, *told.arguments()]

    return [
        replace(like, name=f"{like.name} {name}".rstrip(), command=partial(command, kind=kind), times=times)
        for name, times, kind in runs or RUNS.get(work, (("", 1, ""),))
    ]


def _java(work: str) -> Path:
    return HERE / program_of(work) / f"{program_of(work).capitalize()}.java"


def of_library(library: Library, work: str) -> list[Contender]:
    """In an environment of its own. Where it has none for this work, or can't be installed: absent, with the reason."""
    declared = Contender(
        library.name, Job.arguments, part=library.part, threaded=False, guarantees=library.guarantees,
        thin=frozenset({CHANGELOG} if library.thin else ()), changelog=library.changelog, prefixes=library.prefixes,
        commits=library.commits, plain=True, peer=True,
    )  # fmt: skip
    if work not in library.programs:
        return [replace(declared, absent=f"has none: {library.lacks.get(work, 'no program here')}")]
    try:
        python = python_of(library.name, library.requirements)
    except BenchmarkError as error:
        return [replace(declared, absent=str(error))]

    def command(job: Job) -> Sequence[str]:
        module = f"benchmarks.peers.{library.name}"
        return [str(python), "-m", module, library.programs[work], *job.arguments()]

    return [replace(declared, command=command)]


PEERS: dict[str, Callable[[str], list[Contender]]] = {
    "loop": loop,
    "kafka-streams": kafka_streams,
    "kafka-streams-cached": kafka_streams_cached,
    "kafka-streams-tuned": kafka_streams_tuned,
    **{name: partial(of_library, library) for name, library in LIBRARIES.items()},
}


def peers(names: Iterable[str], work: str) -> list[Contender]:
    """The contenders that these names stand for."""
    found: list[Contender] = []
    for name in names:
        if name not in PEERS:
            raise BenchmarkError(f"there is no peer {name!r}, only {', '.join(PEERS)}")
        program = HERE / program_of(work) / "loop.py" if name == "loop" else _java(work)
        if name not in LIBRARIES and not program.exists():
            raise BenchmarkError(f"the peer {name} has no program for {work}: leave it out (--peers '')")
        found += PEERS[name](work)
    return found


def _compiled(source: Path) -> tuple[str, str]:
    """The `java` to run with, and the class path with `source`, compiled into the user's cache beside its jars."""
    java, javac = _jdk()
    jars = resolve(f"kafka-streams-{KAFKA_STREAMS_VERSION}", KAFKA_STREAMS)
    classes = jars.parent / f"{jars.name}-benchmarks"
    done = subprocess.run(
        [javac, "--release", "17", "-cp", f"{jars}/*", "-sourcepath", HERE / "java", "-d", classes, source],
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
