"""The command line: finding an application, settings, exit codes, what is printed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from milestones import StreamsConfig
from milestones.cli import main as program
from milestones.cli.loading import load, load_streams
from milestones.cli.main import invoke
from milestones.common.config import KEYS
from milestones.common.errors import KafkaUnreachableError, TopologyError
from milestones.common.topology import Topology
from milestones.flags import parse_milestones
from tests.milestones.cli.conftest import WORDS, plain
from tests.sources import ROOT


class FakeStreams:
    """Stands for `Streams`: notes what it was made of, runs at once."""

    made: list[FakeStreams]
    error: BaseException | None = None

    def __init__(self, topology: Topology, config: StreamsConfig | None = None, **settings: Any) -> None:
        config = StreamsConfig(**settings) if config is None else config
        parse_milestones(config.milestones)
        self.topology, self.config = topology, config
        FakeStreams.made.append(self)

    def with_config(self, config: StreamsConfig) -> FakeStreams:
        return FakeStreams(self.topology, config)

    def run(self) -> int:
        return 0 if self.error is None else 3


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeStreams]:
    FakeStreams.made, FakeStreams.error = [], None
    monkeypatch.setattr("milestones.client.streams.Streams", FakeStreams)
    return FakeStreams


def test_an_application_is_found_in_a_file_with_one_of_them(words: Path) -> None:
    assert isinstance(load(str(words)), Topology)
    assert isinstance(load(f"{words}:builder"), Topology)


def test_an_application_is_found_in_a_module_on_the_path(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(words.parent)
    words.rename(words.parent / "found_by_name.py")
    assert isinstance(load("found_by_name:builder"), Topology)


def test_a_function_may_make_the_application(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text(WORDS + "def make():\n    return builder\ndef needy(x):\n    return builder\n")
    assert isinstance(load(f"{path}:make"), Topology)
    with pytest.raises(TopologyError, match=r"needs arguments \(x\)"):
        load(f"{path}:needy")


def test_a_file_may_import_what_lies_beside_it(words: Path) -> None:
    (words.parent / "beside_it.py").write_text("NAME = 'lines'\n")
    words.write_text("from beside_it import NAME\n" + WORDS)
    assert isinstance(load(str(words)), Topology)


@pytest.mark.parametrize(
    ("app", "content", "why"),
    [
        ("missing.py", None, "there is no file"),
        ("no_such_module_here:x", None, "there is no module"),
        ("no.such.module:x", None, "there is no module"),
        ("not a module", None, "module:attribute"),
        ("{file}:wrong", WORDS, "has no 'wrong'; it has builder"),
        ("{file}", "x = 1\n", "no Streams, Topology or StreamsBuilder"),
        ("{file}", WORDS + "other = StreamsBuilder()\n", "which of builder, other"),
        ("{file}:x", "x = 1\n", "is a int"),
        ("{file}", "1 / 0\n", "line 1, raised ZeroDivisionError"),
        ("{file}", "x = 1\ndef broken(:\n", "app_under_test.py, line 2, raised SyntaxError: invalid syntax"),
        ("{file}", "raise SystemExit(4)\n", "raised SystemExit"),
    ],
)
def test_what_is_no_application_is_said_with_its_place(
    app: str, content: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "app_under_test.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(TopologyError, match=why):
        load(app.format(file=path))
    assert invoke(["describe", app.format(file=path)]) == 2
    captured = capsys.readouterr()
    assert "can't run this" in captured.err
    assert "Traceback" not in captured.err


def test_describe_prints_the_topology_as_text_and_as_mermaid(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["describe", str(words)]) == 0
    assert capsys.readouterr().out.startswith("Topologies:\n   Sub-topology: 0\n")
    assert invoke(["describe", str(words), "--mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart")


def test_settings_come_from_options_then_environment_then_file(
    words: Path, tmp_path: Path, fake: type[FakeStreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "words.toml"
    file.write_text('application_id = "filed"\npoll_ms = 1\nnum_stream_threads = 1\ncommit_interval_ms = 1\n')
    monkeypatch.setenv("MILESTONES_NUM_STREAM_THREADS", "2")
    monkeypatch.setenv("MILESTONES_COMMIT_INTERVAL_MS", "2")
    options = ["-c", str(file), "-b", "localhost:9092", "--set", "commit.interval.ms=3", "--stage", "baseline"]
    assert invoke(["run", str(words), *options]) == 0
    config = fake.made[-1].config
    assert (config.application_id, config.poll_ms) == ("filed", 1)
    assert (config.num_stream_threads, config.commit_interval_ms) == (2, 3)


def test_an_application_with_its_own_settings_keeps_them_unless_the_command_line_differs(
    tmp_path: Path, fake: type[FakeStreams]
) -> None:
    path, file = tmp_path / "own.py", tmp_path / "own.toml"
    path.write_text(
        "from milestones import StreamsBuilder, StreamsConfig\nfrom milestones.client.streams import Streams\n"
        "b = StreamsBuilder()\nb.stream('a').to('b')\n"
        "app = Streams(b.build(), StreamsConfig(application_id='own', bootstrap_servers='a:1', poll_ms=7))\n"
    )
    assert invoke(["run", f"{path}:app"]) == 0
    assert len(fake.made) == 1
    file.write_text("poll_ms = 1\nnum_stream_threads = 5\n")
    assert invoke(["run", f"{path}:app", "-c", str(file), "-b", "b:2"]) == 0
    config = fake.made[-1].config
    assert (config.application_id, config.bootstrap_servers) == ("own", "b:2")
    assert (config.poll_ms, config.num_stream_threads) == (7, 5)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], "MILESTONES_APPLICATION_ID"),
        (["-a", "w", "-b", "a:1", "--stage", "m9"], "no stage or flag 'm9'"),
        (["-a", "w", "-b", "a:1", "--set", "poll_ms=x"], "must be an integer"),
        (["-a", "w", "-b", "a:1", "--set", "poll_ms"], "KEY=VALUE"),
        ([], "or with -a ID"),
        (["-a", "w", "-b", "kafka"], "or with -b HOST:PORT"),
        (["-a", "w", "-b", "a:1", "--stage", ""], "it is empty"),
        (["-c", "no-such.toml"], "File 'no-such.toml' does not exist"),
        (["--frobnicate"], "frobnicate"),
    ],
)
def test_bad_settings_end_with_exit_code_2_before_anything_starts(
    options: list[str], shown: str, words: Path, fake: type[FakeStreams], capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", str(words), *options]) == 2
    assert shown in plain(capsys.readouterr().err)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_error_of_a_run_is_shown_on_a_terminal_beside_the_log_and_its_exit_code_returned(
    words: Path,
    fake: type[FakeStreams],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    fake.error = KafkaUnreachableError("no broker answered")
    assert invoke(["run", str(words), "-a", "words", "-b", "a:1"]) == 3
    assert ("no broker answered" in capsys.readouterr().err) == terminal


def test_an_error_is_plain_text_where_it_is_not_read_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "nowhere.py", "-a", "words"]) == 2
    told = capsys.readouterr().err
    assert "nowhere.py" in told
    assert set("│╭─").isdisjoint(told)


def test_run_keeps_the_logging_that_the_program_has_set_up(
    tmp_path: Path, fake: type[FakeStreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = tmp_path / "own_logs.py"
    app.write_text("import logging\nlogging.basicConfig(format='mine %(message)s')\n" + WORDS)
    monkeypatch.setattr(logging.root, "handlers", [])
    assert invoke(["run", str(app), "-a", "words", "-b", "a:1"]) == 0
    (handler,) = logging.root.handlers
    assert handler.format(logging.makeLogRecord({"msg": "it"})) == "mine it"


def test_verbose_shows_the_traceback_before_or_after_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "raises.py"
    path.write_text("1 / 0\n")
    for arguments in (["-v", "describe", str(path)], ["describe", str(path), "--verbose"]):
        assert invoke(arguments) == 2
        assert "Traceback" in capsys.readouterr().err


def test_a_secret_on_the_command_line_is_warned_of_as_all_users_can_read_it(
    words: Path, fake: type[FakeStreams], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["-a", "words", "-b", "here:1", "-s", "sasl.password=sesame", "-s", "sasl_username=ann"]
    assert invoke(["run", str(words), *given]) == 0
    said = capsys.readouterr().err
    assert said.count("warning: ") == 1
    assert "sasl_password is an argument of this process" in said
    assert "MILESTONES_SASL_PASSWORD" in said
    assert "sesame" not in said


def test_an_interrupt_ends_with_130(words: Path, fake: type[FakeStreams], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: FakeStreams) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "run", interrupted)
    assert invoke(["run", str(words), "-a", "words", "-b", "a:1"]) == 130


def test_an_unexpected_error_is_one_panel_with_exit_code_1(
    words: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Topology) -> Any:
        raise RuntimeError("broken inside")

    monkeypatch.setattr(Topology, "describe", broken)
    assert invoke(["describe", str(words)]) == 1
    shown = capsys.readouterr().err
    assert "RuntimeError: broken inside" in shown
    assert "--verbose" in shown


def test_stages_lists_all_of_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert invoke(["stages"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.split()}
    assert "stream threads" in lines["baseline"]
    assert "state_updater" in lines["m1"]
    assert "(needs polling_thread and fencing_tolerance)" in lines["m5"]


@pytest.mark.parametrize("command", ["", "run", "describe", "broker", "stages", "status", "reset", "demo"])
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*command.split(), "--help"]) == 0
    assert f"milestones {command}".strip() in capsys.readouterr().out


def test_without_arguments_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([]) == 0
    assert "milestones demo" in capsys.readouterr().out


def test_broker_hands_its_options_to_the_embedded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []

    def run_broker(data_dir: Path | None, port: int | None, properties: dict[str, str], log: object) -> int:
        seen.append((data_dir, port, properties))
        return 0

    monkeypatch.setattr("milestones.common.kafka.embedded.run_broker", run_broker)
    assert invoke(["broker", "-p", "9092", "-d", "data", "--property", "num.partitions=4"]) == 0
    assert seen == [(Path("data"), 9092, {"num.partitions": "4"})]
    assert invoke(["broker", "--property", "num.partitions"]) == 2


def test_demo_hands_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []

    def play(**options: object) -> int:
        seen.append(options)
        return 1

    monkeypatch.setattr("milestones.demo.run", play)
    assert invoke(["demo", "--seconds", "20", "--stage", "baseline"]) == 1
    assert seen == [{"seconds": 20.0, "stage": "baseline", "folder": None}]


def test_the_program_ends_the_process_with_the_commands_code() -> None:
    with pytest.raises(SystemExit) as caught:
        program(["stages", "--nonsense"])
    assert caught.value.code == 2


def test_a_program_with_its_own_settings_keeps_its_guarantee_under_the_short_options(
    fake: type[FakeStreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ROOT / "examples" / "word_count.py"
    monkeypatch.setattr("milestones.Streams", fake)
    assert invoke(["run", str(program), "-a", "words-2", "-b", "b:2"]) == 0
    config = fake.made[-1].config
    assert (config.application_id, config.bootstrap_servers) == ("words-2", "b:2")
    assert config.exactly_once


def test_the_settings_are_listed_and_explained_without_any_docs(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["config"]) == 0
    listed = capsys.readouterr().out
    assert [key for key in KEYS if key not in listed] == []
    assert invoke(["config", "MILESTONES_NUM_PROCESSING_THREADS"]) == 0
    assert "from stage m2 on" in capsys.readouterr().out
    assert invoke(["config", "consumer.fetch.min.bytes"]) == 0
    assert "main consumer and restore consumer as fetch.min.bytes" in capsys.readouterr().out
    assert invoke(["config", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("# Configuration")


@pytest.mark.parametrize(
    ("key", "why"),
    [("pol_ms", "poll_ms"), ("consumer_group_id", "application_id"), ("ssl_key_pem", "file"), ("topology", "config")],
)
def test_what_is_no_setting_is_explained_as_well(key: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["config", key]) == 2
    assert why in capsys.readouterr().err


OWN = """
from milestones import Streams, StreamsBuilder
builder = StreamsBuilder()
builder.stream("lines").to("shouts")
streams = Streams(builder, application_id="words", bootstrap_servers="localhost:9092", poll_ms=7)
"""


def warned(streams: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is warned of at a start."""
    monkeypatch.setattr(streams._supervisor, "begin", lambda: None)
    with caplog.at_level(logging.WARNING):
        streams.start()
    return [record.getMessage() for record in caplog.records]


def test_a_file_and_variables_that_lose_to_the_code_are_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, file = tmp_path / "own_words.py", tmp_path / "ov.toml"
    path.write_text(OWN)
    file.write_text('bootstrap_servers = "kafka.prod:9092"\napplication_id = "words"\nnum_stream_threads = 2\n')
    monkeypatch.setenv("MILESTONES_POLL_MS", "9")
    told = warned(load_streams(str(path), file, {}), caplog, monkeypatch)
    assert len(told) == 2
    assert f"bootstrap_servers from file {file} isn't used" in told[0] + told[1]
    assert "poll_ms from environment variable MILESTONES_POLL_MS isn't used" in told[0] + told[1]
    caplog.clear()
    given = {"bootstrap_servers": "kafka:9092", "poll_ms": "8"}
    assert warned(load_streams(str(path), file, given), caplog, monkeypatch) == []


LISTENING = OWN + """
from milestones import StateRestoreListener, UncaughtExceptionResponse

def listen(new, old): ...
def handle(error): return UncaughtExceptionResponse.REPLACE_THREAD

class Restoring(StateRestoreListener): ...

streams.set_state_listener(listen)
streams.set_uncaught_exception_handler(handle)
streams.set_global_state_restore_listener(Restoring())
streams.pause()
"""


def test_settings_of_the_command_line_leave_a_programs_listeners_and_its_handler_in_place(tmp_path: Path) -> None:
    path = tmp_path / "listening.py"
    path.write_text(LISTENING)
    streams = load_streams(str(path), None, {"poll_ms": "9"})
    supervisor = streams._supervisor
    assert (streams.config.poll_ms, streams.is_paused) == (9, True)
    assert supervisor.listener is not None
    assert (supervisor.listener.__name__, supervisor.handler.__name__) == ("listen", "handle")
    assert type(supervisor.listeners.restore).__name__ == "Restoring"


def test_a_setting_that_the_stage_does_not_use_is_named_at_the_start(
    words: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"application_id": "words", "num_processing_threads": "4", "restore_active_weight": "2"}
    told = warned(load_streams(str(words), None, {**given, "milestones": "m1"}), caplog, monkeypatch)
    (line,) = told
    assert line == (
        "config: num_processing_threads only counts for this instance's share of the tasks at stage m1: it needs "
        "processing_threads (m2)"
    )
    caplog.clear()
    assert warned(load_streams(str(words), None, {**given, "milestones": "m2"}), caplog, monkeypatch) == []


def test_an_application_that_leaves_the_address_open_takes_it_from_the_file(tmp_path: Path) -> None:
    path, file = tmp_path / "open_words.py", tmp_path / "ov.toml"
    path.write_text(OWN.replace(', bootstrap_servers="localhost:9092"', ""))
    file.write_text('bootstrap_servers = "kafka.prod:9092"\n')
    assert load_streams(str(path), file, {}).config.bootstrap_servers == "kafka.prod:9092"
    assert load_streams(str(path), None, {}).config.bootstrap_servers == "localhost:9092"
