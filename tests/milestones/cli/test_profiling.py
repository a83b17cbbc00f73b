"""`milestones run --profile`: a table by node and by thread, at the end of every run, and stacks for flame graphs."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from milestones import Streams, StreamsBuilder, serdes
from milestones.cli.main import invoke
from milestones.cli.profiling import profiled, tree, view
from milestones.client.profiling import RunTimes
from milestones.common.errors import MilestonesError
from milestones.common.task.profile import Edges, Part, Spent
from milestones.common.task.timings import Cost, Costs, Timings
from milestones.instance.application import Application
from tests.common.task.harness import Harness

MS, SECOND = 1_000_000, 1_000_000_000
RECORDS = Part("work", "records")
Run = Callable[[Streams], int]


def one_record(streams: Streams) -> int:
    """What a run does, without a Kafka: a task processes a record."""
    Harness(streams.topology, profile=streams._supervisor.metrics.profile).start().pipe(("k", "v", 1), topic="lines")
    return 0


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Has `run` of a client do something else."""
    return lambda run: monkeypatch.setattr(Streams, "run", run)


def profile(words: Path, *options: str) -> int:
    return invoke(["run", str(words), "-a", "words", "-b", "a:1", *options])


def rows(text: str) -> dict[str, list[str]]:
    """The cells of a table's lines, by the first one."""
    lines = (line.split("  ") for line in text.splitlines())
    cells = ([cell.strip() for cell in line if cell.strip()] for line in lines)
    return {first: others for first, *others in filter(None, cells)}


def test_a_run_ends_with_what_each_node_cost(
    words: Path, instead: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    instead(one_record)
    assert profile(words, "--profile") == 0
    found = rows(capsys.readouterr().out)
    nodes = [name for name in found if name.startswith("KSTREAM")]
    assert nodes == ["KSTREAM-SOURCE-0000000000", "KSTREAM-MAPVALUES-0000000001", "KSTREAM-SINK-0000000002"]
    assert [found[name][0] for name in (*nodes, "deserialised: value")] == ["1"] * 4


def test_without_the_option_nothing_is_timed_or_printed(
    words: Path, instead: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    timed: list[object] = []
    instead(lambda streams: timed.append(streams._supervisor.metrics.profile) or 0)
    assert profile(words) == 0
    assert (timed, capsys.readouterr().out) == ([None], "")


def test_the_stacks_go_to_a_file_for_flame_graphs(
    words: Path, tmp_path: Path, instead: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    instead(one_record)
    file = tmp_path / "words.stacks"
    assert profile(words, "--profile-stacks", str(file)) == 0
    stacks = [line.rsplit(" ", 1) for line in file.read_text().splitlines()]
    assert stacks
    assert all(stack.split(";")[0] == "records" and us.isdigit() for stack, us in stacks)
    assert str(file) in capsys.readouterr().err.replace("\n", "")


def test_a_run_that_fails_ends_with_it_as_well(
    words: Path, instead: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(streams: Streams) -> int:
        one_record(streams)
        raise MilestonesError("on the way")

    instead(fail)
    assert profile(words, "--profile") == 1
    assert "KSTREAM-SINK-0000000002" in capsys.readouterr().out


def test_a_run_without_a_record_shows_its_nodes_without_numbers(
    words: Path, instead: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    instead(lambda _: 130)
    assert profile(words, "--profile") == 130
    assert rows(capsys.readouterr().out)["KSTREAM-SINK-0000000002"] == []


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")
def test_it_is_shown_at_each_sigusr1_and_the_handler_of_before_is_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    builder = StreamsBuilder()
    builder.stream("lines", key=serdes.STRING, value=serdes.STRING).to("out")
    streams = Streams(builder, application_id="app", bootstrap_servers="a:1", variables={})
    with profiled(streams, None):
        one_record(streams)
        signal.raise_signal(signal.SIGUSR1)
        first = capsys.readouterr().out
    assert "KSTREAM-SOURCE-0000000000" in first
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_client_that_runs_already_is_not_timed_in_part() -> None:
    class Running(Streams):
        def _before_start(self, what: str) -> None:
            raise MilestonesError(f"{what} can be set only before start()")

    builder = StreamsBuilder()
    builder.stream("lines").to("out")
    with (
        pytest.raises(MilestonesError, match="a profile"),
        profiled(Running(builder, application_id="app", bootstrap_servers="a:1", variables={}), None),
    ):
        pass


# -- the tables


def application() -> Application:
    """A stream that is sent on, and counted, after a merge of two ways."""
    builder = StreamsBuilder()
    stream = builder.stream("lines", key=serdes.STRING, value=serdes.STRING)
    stream.map_values(str.upper).merge(stream.map_values(str.lower)).to("out")
    stream.group_by_key().count("counts").to_stream().to("counts", value=serdes.LONG)
    builder.global_table("names", "names", key=serdes.STRING, value=serdes.STRING)
    streams = Streams(builder, application_id="app", bootstrap_servers="a:1", variables={})
    return streams._application


def shown(edges: Edges, threads: dict[str, Edges] | None = None, costs: Costs = Costs()) -> str:  # noqa: B008
    console = Console(file=io.StringIO(), width=120)
    times = RunTimes(
        10 * SECOND, 5 * SECOND, Timings(edges, costs), {name: Timings(of) for name, of in (threads or {}).items()}
    )
    console.print(view(times, application()))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_node_stands_below_the_one_that_its_records_come_from() -> None:
    (sub,) = application().subtopologies
    depths = dict(tree(sub.nodes))
    assert next(iter(depths)) == "KSTREAM-SOURCE-0000000000"
    assert set(depths) == {node.name for node in sub.nodes}
    assert depths["KSTREAM-MERGE-0000000003"] == depths["KSTREAM-MAPVALUES-0000000001"] + 1
    assert depths["KSTREAM-AGGREGATE-0000000005"] == depths["KSTREAM-MAPVALUES-0000000001"] == 2


def test_shares_are_of_all_that_tasks_did_and_calls_by_the_second_of_the_run() -> None:
    source, count = Part("node", "KSTREAM-SOURCE-0000000000"), Part("node", "KSTREAM-AGGREGATE-0000000005")
    put = Part("store", "counts", "put")
    found = rows(shown({
        (None, RECORDS): Spent(2, 1_000 * MS, 1_000 * MS, 1_000 * MS),
        (RECORDS, source): Spent(5_000, 900 * MS, 900 * MS, 900 * MS),
        (source, count): Spent(5_000, 800 * MS, 800 * MS, 500 * MS),
        (count, put): Spent(5_000, 200 * MS, 200 * MS, 200 * MS),
    }))  # fmt: skip
    assert found[count.name] == ["5,000", "500", "60.0%", "80.0%", "120.00", "50%"]
    assert found["counts: put"] == ["5,000", "500", "20.0%", "20.0%", "40.00", "100%"]
    assert found["records: taken, merged, kept for the commit"] == ["2", "0", "10.0%", "50,000.00", "100%"]


def test_the_nodes_of_global_stores_stand_below_those_of_tasks() -> None:
    globals_ = application().globals
    assert globals_ is not None
    source = Part("node", globals_.nodes[0].name)
    text = shown({(None, source): Spent(7, 100 * MS)})
    assert text.index("sub-topology 0") < text.index("global stores") < text.index(source.name)
    assert rows(text)[source.name][0] == "7"


def test_threads_say_what_they_do_most_first_and_what_others_take_of_the_cpu() -> None:
    rest, fetch, little = (Part("work", name) for name in ("the rest", "waits for input", "little"))
    text = shown({}, {"StreamThread-1": {
        (None, rest): Spent(10, 6 * SECOND, 6 * SECOND, 2 * SECOND),
        (rest, fetch): Spent(10, 4 * SECOND, 4 * SECOND, SECOND),
        (rest, little): Spent(1, MS, MS, MS),
    }})  # fmt: skip
    found = rows(text)
    assert found["waits for input"] == ["4.00 s", "40.0%", "25%"]
    assert found["the rest"] == ["2.00 s", "20.0%", "50%"]
    assert "little" not in found
    assert list(found).index("waits for input") < list(found).index("the rest")
    assert "CPU time of the process: 5.0 s; 3.0 s of it in other threads" in text


def test_what_the_profile_itself_takes_is_said() -> None:
    source = Part("node", "KSTREAM-SOURCE-0000000000")
    text = shown({(None, source): Spent(1_000_000, 1_000 * MS)}, costs=Costs(node=Cost(200, 50)))
    assert "took about 24% more" in text


def test_a_narrow_terminal_cuts_names_but_no_numbers() -> None:
    console = Console(file=io.StringIO(), width=70)
    source = Part("node", "KSTREAM-SOURCE-0000000000")
    times = RunTimes(SECOND, SECOND, Timings({(None, source): Spent(123_456, 1_000 * MS)}), {})
    console.print(view(times, application()))
    assert "123,456" in console.file.getvalue()  # type: ignore[attr-defined]
