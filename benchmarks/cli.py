"""The commands: one per work, and `profile`.

*Guarantees*: results on standard output, progress and errors on standard error; exit code 1 when a benchmark can't be
run or a result is wrong, 2 on wrong options.
*Assumes*: nothing.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import rich_click as click

from benchmarks import options
from benchmarks.alone import COMMANDS, out, progress
from benchmarks.cluster import JVM_OPTIONS, Cluster, proxied, running
from benchmarks.contenders import KAFKA_STREAMS_JVM, PEERS, WARM_TIMES, Contender, ours
from benchmarks.count.work import Count
from benchmarks.errors import BenchmarkError
from benchmarks.job import COMMIT_INTERVAL_MS, EXACTLY_ONCE
from benchmarks.moves import upgrade
from benchmarks.moves import work as moves
from benchmarks.opening import work as opening
from benchmarks.options import NEW_FILE, words
from benchmarks.picture import command as picture
from benchmarks.profiling import PARTS_TITLE, profiled
from benchmarks.report import YARDSTICK, plot, plot_shares, table, write_json
from benchmarks.rows import Row, Work, run
from benchmarks.spark import work as on_spark
from benchmarks.standbys import work as standbys
from benchmarks.windows import KINDS
from benchmarks.windows.work import Windows
from benchmarks.works import ALL_STAGES, WORKS, Measured, contenders, data_options
from milestones import MilestonesError
from milestones.cli.console import err
from milestones.flags import parse_milestones, stage_name

SETTINGS = {"warm_times": WARM_TIMES, "broker_jvm": JVM_OPTIONS, "kafka_streams_jvm": KAFKA_STREAMS_JVM}
"""What is the same for all contenders, for the JSON."""

SEVERAL = ("thread_counts", "instance_counts", "worker_counts", "task_counts", "late_ms")
"""Options of which each contender takes part once with each of their numbers."""
WARM = "kafka-streams warm"


@contextmanager
def _cluster(start: Callable[[Path], AbstractContextManager[Cluster]] = running) -> Iterator[tuple[Cluster, Path]]:
    """A broker, and a folder for runs, until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="milestones-bench-") as directory, start(Path(directory) / "kafka") as at:
        runs = Path(directory) / "runs"
        runs.mkdir()
        yield at, runs


def _measure(
    make: Callable[..., Work], contenders: Sequence[Contender], guarantees: Sequence[str], rounds: int,
    data: Mapping[str, Any], json_file: Path | None, settings: Mapping[str, Any], yardstick: str = YARDSTICK,
    start: Callable[[Path], AbstractContextManager[Cluster]] = running,
) -> tuple[str, Work, list[Row]]:  # fmt: skip
    """Have them do the work, show the table, write the JSON."""
    with _cluster(start) as (cluster, runs):
        work = make(cluster, runs, **data)
        rows = run(work, contenders, guarantees, rounds, data["seed"], progress)
    title = f"{work.name}: {work.title}, medians of {rounds}"
    out().print(table(title, work.figures, rows, yardstick))
    if json_file is not None:
        write_json(json_file, {"rounds": rounds, **settings, **data}, rows=[row.as_json() for row in rows])
    return title, work, rows


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """The same work on Milestones, on a bare client loop, and on Kafka Streams, on one embedded broker."""


def _command(measured: Measured) -> click.Command:
    @click.command(measured.name, help=(measured.work.__doc__ or "").splitlines()[0])
    @options.stages(measured.stages)
    @click.option("--peers", "peer_names", default=measured.peers, show_default=True, callback=words,
                  help=f"Others, with commas: {', '.join(PEERS)}.")  # fmt: skip
    @options.rounds
    @options.json_file
    @click.option("--plot", "plot_file", type=NEW_FILE, help="Draw (.svg, .png).")
    @measured.options
    def measure(
        stage_names: list[str],
        peer_names: list[str],
        rounds: int,
        json_file: Path | None,
        plot_file: Path | None,
        guarantees: list[str],
        **data: Any,
    ) -> None:
        counts: dict[str, Any] = {name: data.pop(name) for name in SEVERAL if name in data}
        title, work, rows = _measure(
            measured.work, contenders(measured.name, stage_names, peer_names, **counts), guarantees, rounds, data,
            json_file, {**SETTINGS, **counts, "commit_interval_ms": int(measured.commit_interval_ms)},
            measured.yardstick, proxied if measured.proxied else running,
        )  # fmt: skip
        if plot_file is not None:
            plot(plot_file, title, work.figures, rows)

    return measure


for _command_ in (*map(_command, WORKS), *COMMANDS):
    cli.add_command(_command_)


@cli.command("picture")
@picture.OPTIONS
def picture_(
    stage_names: list[str], peer_names: list[str], names: list[str], rounds: int, within_s: float,
    json_file: Path | None, page_file: Path | None, guarantees: list[str], **sizes: Any,
) -> None:  # fmt: skip
    """Ours on every stage beside all others, in every scenario. Takes hours: see README.md."""
    wanted = picture.wanted(picture.Sizes(**sizes), names)
    picture.must_draw(page_file)
    settings = {"rounds": rounds, "within_s": within_s, "stages": stage_names, **sizes, **SETTINGS}

    def keep(found: Sequence[picture.Found]) -> None:
        last = found[-1]
        out().print(table(f"{last.scenario.name}: {last.title}", last.figures, last.rows, WARM))
        picture.write(found, settings, json_file, page_file)

    with _cluster() as (cluster, runs):
        turns = picture.Turns(stage_names, peer_names, guarantees, rounds, sizes["seed"], within_s)
        found = picture.measure(cluster, runs, wanted, turns, progress, keep)
    if wrong := picture.failed(found):
        raise BenchmarkError(f"ours failed: {', '.join(wrong)}")


@cli.command("spark")
@click.option("--contenders", "names", default=",".join(on_spark.NAMES), show_default=True, callback=words)
@options.rounds
@options.json_file
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(min=10_000))
@options.keys
@options.seed
@options.guarantee_by(EXACTLY_ONCE)
def spark_(names: list[str], rounds: int, json_file: Path | None, guarantees: list[str], **data: int) -> None:
    """A running count on Spark: ours, groupBy().count(), transformWithState."""
    _measure(on_spark.OnSpark, on_spark.contenders(names), guarantees, rounds, data, json_file, {})


@cli.command("windows")
@options.stages("baseline")
@click.option("--peers", "peer_names", default="kafka-streams", show_default=True, callback=words,
              help="Others, with commas: kafka-streams.")  # fmt: skip
@click.option("--kinds", default=",".join(KINDS), show_default=True, callback=options.words_of("kind", KINDS),
              help="With commas.")  # fmt: skip
@options.rounds
@options.json_file
@click.option("--plot", "plot_file", type=NEW_FILE, help="Draw shares of Kafka Streams (.svg, .png).")
@options.records(500_000)
@click.option("--keys", default=10_000, show_default=True, type=click.IntRange(1, 1_000_000))
@options.commit(int(COMMIT_INTERVAL_MS))
@options.seed
@options.guarantee
def windows_(
    stage_names: list[str], peer_names: list[str], kinds: list[str], rounds: int, json_file: Path | None,
    plot_file: Path | None, guarantees: list[str], **data: int,
) -> None:  # fmt: skip
    """Windows, sessions and joins, and the plain count beside them, as shares of Kafka Streams."""
    rows = list[Row]()
    with _cluster() as (cluster, runs):
        for kind in kinds:
            work, who = Windows(cluster, runs, kind, **data), contenders(f"windows-{kind}", stage_names, peer_names)
            found = run(work, who, guarantees, rounds, data["seed"], progress)
            out().print(table(f"{work.name}: {work.title}, medians of {rounds}", work.figures, found, WARM))
            rows += found
            if json_file is not None:
                write_json(json_file, {"rounds": rounds, **data, **SETTINGS}, rows=[row.as_json() for row in rows])
            if plot_file is not None:
                shown = [figure for figure in work.figures if figure.name.startswith("warm_")]
                plot_shares(plot_file, f"medians of {rounds}", shown, rows, WARM)


@cli.command("moves")
@click.option("--upgrade", "stages", callback=words, default="", metavar="FROM,TO",
              help="Instead: a rolling restart of three instances from one stage to the other, and back.")  # fmt: skip
@click.option("--records", default=250_000, show_default=True, type=click.IntRange(min=600), help="Keys of the state.")
@click.option("--gigabytes", type=click.FloatRange(0.001, 100), help="Of state, instead of `--records`.")
@click.option("--value-bytes", default=4_096, show_default=True, type=click.IntRange(16, 100_000))
@options.rate(50.0, 1000, "Records a second in each partition while tasks move.")
@click.option("--recovery-lag", type=click.IntRange(min=0), show_default=f"{moves.RECOVERY_LAG}, with --upgrade "
              f"{upgrade.RECOVERY_LAG}", help="acceptable_recovery_lag.")  # fmt: skip
@click.option("--threads", default=4, show_default=True, type=click.IntRange(1, 64), help="With --upgrade.")
@click.option("--standbys", default=1, show_default=True, type=click.IntRange(0, 2), help="With --upgrade.")
@click.option("--static", is_flag=True, help="With --upgrade: members are static.")
@options.seed
@options.keep
@options.json_file
@options.guarantee
def moves_(
    stages: list[str], guarantees: list[str], gigabytes: float | None, threads: int, standbys: int, static: bool,
    recovery_lag: int | None, keep: Path | None, json_file: Path | None, **settings: Any,
) -> None:  # fmt: skip
    """What it costs to move tasks with much state: scale-out, scale-in, kill -9; or a rolling restart."""
    if gigabytes is not None:
        settings["records"] = int(gigabytes * 1e9 / settings["value_bytes"])
    usual = upgrade.RECOVERY_LAG if stages else moves.RECOVERY_LAG
    settings["recovery_lag"] = usual if recovery_lag is None else recovery_lag
    if stages:
        settings |= {"threads": threads, "standbys": standbys, "static": static}
        _upgrade(stages, guarantees, keep, json_file, settings)
    else:
        _moves(guarantees, keep, json_file, settings)


def _moves(guarantees: list[str], keep: Path | None, json_file: Path | None, settings: Mapping[str, Any]) -> None:
    found: list[moves.Move] = []
    with _cluster() as (at, runs):
        for guarantee in guarantees:
            where = _made((keep or runs) / guarantee)
            for move in moves.Moves(at, where, moves.Setup(**settings, guarantee=guarantee), progress).measure():
                progress(f"{guarantee}: {move}")
                found.append(move)
    title = f"moves: {_state(settings)}, {settings['rate']:.0f} records/s and task"
    out().print(moves.table(title, found))
    if json_file is not None:
        write_json(json_file, settings, moves=[asdict(move) for move in found])


def _upgrade(
    stages: list[str], guarantees: list[str], keep: Path | None, json_file: Path | None, settings: Mapping[str, Any]
) -> None:
    if len(stages) != 2:
        raise click.BadParameter("name two stages, with a comma", param_hint="--upgrade")
    first, second = (stage_name(parse_milestones(stage)) for stage in stages)
    found: list[upgrade.Restart] = []
    with _cluster() as (at, runs):
        for guarantee in guarantees:
            where = _made((keep or runs) / guarantee)
            setup = upgrade.Setup((first, second), guarantee, **settings)
            for restart in upgrade.Upgrade(at, where, setup, progress).measure():
                progress(str(restart))
                found.append(restart)
    members = "static" if settings["static"] else "dynamic"
    title = f"moves: {first} to {second} and back, {_state(settings)}, {members} members, {setup.partitions} tasks"
    out().print(upgrade.table(title, found))
    if json_file is not None:
        write_json(json_file, {**settings, "upgrade": [first, second]}, restarts=[asdict(one) for one in found])


def _state(settings: Mapping[str, Any]) -> str:
    size = settings["records"] * settings["value_bytes"] / 1e9
    return f"{settings['records']:,} keys, {size:.2f} GB of state"


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


@cli.command("standbys")
@click.option("--stages", "stage_names", default=ALL_STAGES, show_default=True, callback=words)
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(min=10_000),
              help="That the active tasks of each of two instances restore.")  # fmt: skip
@click.option("--seed", default=1, show_default=True)
def standbys_(stage_names: list[str], records: int, seed: int) -> None:
    """How standbys get on beside active tasks that restore on the same thread."""
    found: dict[str, Mapping[str, Sequence[standbys.Moment]]] = {}
    with _cluster() as (at, runs):
        for stage in stage_names:
            where = runs / stage
            where.mkdir()
            found[stage] = standbys.measure(at, where, stage, records, seed, progress)
    out().print(standbys.table(f"standbys: {records:,} records of active tasks on each of two instances", found))


@cli.command("opening")
@click.option("--stages", "stage_names", default="m1,m2,m3", show_default=True, callback=words)
@click.option("--rate", default=5.0, show_default=True, type=click.FloatRange(1, 100),
              help="Records a second in each of the 64 partitions.")  # fmt: skip
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--calls", is_flag=True, help="Then a call of user code takes as long, too.")
@options.keep
@options.guarantee
def opening_(
    stage_names: list[str], rate: float, rounds: int, calls: bool, keep: Path | None, guarantees: list[str]
) -> None:
    """What a store that takes 12 s to open keeps up, among 64 tasks of three stores."""
    found: list[opening.Opened] = []
    with _cluster() as (at, runs):
        work = opening.Opening(at, keep or runs, rate, calls=calls)
        for stage, guarantee, _ in itertools.product(stage_names, guarantees, range(rounds)):
            found.append(work.measure(stage, guarantee))
            progress(str(found[-1]))
    out().print(opening.table(f"opening: 64 tasks of three stores, {rate:g} records/s and task, in s", found))


@cli.command("snapshot")
@click.option("--stages", "stage_names", default=ALL_STAGES, show_default=True, callback=words)
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(min=1000))
@click.option("--tail", default=0.001, show_default=True, type=click.FloatRange(0, 1),
              help="Share of as many records again that come after the snapshot.")  # fmt: skip
@options.rounds
@click.option("--seed", default=1, show_default=True)
@click.option("--live", is_flag=True, help="Those that a running instance makes (m6), and what they cost it.")
@click.option("--every", default=30_000, show_default=True, help="ms between two of them, with --live.")
def snapshot_(
    stage_names: list[str], records: int, tail: float, rounds: int, seed: int, live: bool, every: int
) -> None:
    """Restore from snapshots, and by replay. Needs the extra `spark` too, but with --live."""
    from benchmarks.snapshot import work as snapshot

    if live:
        _live_snapshots(records, tail, rounds, seed, every)
        return
    with _cluster() as (at, runs):
        work = snapshot.Snapshot(at, runs, records, tail, seed, stage_names)
        made = work.prepare(progress)
        with snapshot.serving(runs / "snapshots") as served:
            found = snapshot.measure(work, rounds, seed, served, progress)
    title = f"snapshot: {records:,} records, and {records * tail:,.0f} after that; medians of {rounds}"
    out().print(snapshot.table(title, found, made))


def _live_snapshots(records: int, tail: float, rounds: int, seed: int, every_ms: int) -> None:
    from benchmarks.snapshot import live
    from benchmarks.snapshot.work import serving

    with _cluster() as (at, runs):
        counted = live.count(
            live.LiveCount(at, runs, records, max(1, records // 10), seed), every_ms, rounds, seed, progress
        )
        sizes = live.delta_share(runs, records, seed)
        work = live.LiveSnapshot(at, runs, records, tail, seed, [live.STAGE])
        work.prepare(progress)
        with serving(runs / "snapshots") as served:
            found = live.restored(work, rounds, served, progress)
    title = f"snapshots of a running instance: {records:,} records, every {every_ms} ms; medians of {rounds}"
    out().print(live.table(title, counted, sizes, found))


@cli.command("audit")
@click.option("--records", default=5_000_000, show_default=True, type=click.IntRange(min=10_000))
@click.option("--keys", default=100_000, show_default=True, type=click.IntRange(100, 1_000_000))
@click.option("--seed", default=1, show_default=True)
@click.option("--memory", default="2g", show_default=True, help="Of Spark's Java process.")
@click.option("--report", type=NEW_FILE, help="Write the audit's page here.")
def audit_(records: int, keys: int, seed: int, memory: str, report: Path | None) -> None:
    """Find a lost record, a duplicate, a swap and a wrong store value among millions. Needs the extra `spark` too."""
    from benchmarks.audit import work as audit

    with _cluster() as (at, _):
        planted = audit.plant(at, records, keys, seed, progress)
        found = audit.measure(at, memory, report, progress)
    out().print(audit.table(f"audit: {records:,} records, {keys:,} keys", planted, found))
    audit.check(planted, found)


@cli.command()
@click.option("--stage", default="baseline", show_default=True, help="Stage, or flags joined by +.")
@click.option("--rate", default=200, show_default=True, help="Samples per second.")
@click.option("--top", default=25, show_default=True, help="Functions in the table.")
@data_options
def profile(stage: str, rate: int, top: int, guarantees: list[str], **data: int) -> None:
    """Where the stream thread of the count on Milestones spends its time, by part and by function."""
    contender = ours(stage, Count.name)
    with _cluster() as (cluster, runs):
        work = Count(cluster, runs, **data)
        work.prepare([contender])
        for guarantee in guarantees:
            result = profiled(work, contender, guarantee, rate)
            out().print(result.parts_table(f"{contender.name}, {guarantee}: {PARTS_TITLE}"))
            out().print(result.functions_table(top))


def main() -> int:
    """The exit code."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (BenchmarkError, MilestonesError) as error:
        err().print(f"[red]benchmarks:[/red] {error}", highlight=False)
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    return os.EX_OK
