"""The logs of a process: the level and the form that the settings say; a program that has set them up keeps its own."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from milestones import StreamsConfig
from milestones.client.logs import JsonLines, log_to_stderr

log = logging.getLogger("milestones.stream_thread.loop")


class Process:
    """A program that sets up its logs as ours do, unless it has `handlers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self._stderr = monkeypatch, io.StringIO()

    def begin(self, *settings: str, handlers: Sequence[logging.Handler] = (), verbose: bool = False) -> None:
        self._patch.setattr(sys, "stderr", self._stderr)
        self._patch.setattr(logging.root, "handlers", list(handlers))
        log_to_stderr(*settings, verbose=verbose)

    @property
    def lines(self) -> list[str]:
        return self._stderr.getvalue().splitlines()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    level = logging.root.level
    yield Process(monkeypatch)
    logging.captureWarnings(False)
    logging.root.setLevel(level)


def test_a_program_that_has_set_up_its_logs_keeps_its_set_up(process: Process) -> None:
    own: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = own.append  # type: ignore[assignment,method-assign]
    process.begin("DEBUG", "json", handlers=[handler])
    log.warning("hello")
    assert (len(own), process.lines) == (1, [])


@pytest.mark.parametrize(
    ("level", "seen"), [("DEBUG", ["debug", "info", "error"]), ("INFO", ["info", "error"]), ("ERROR", ["error"])]
)
def test_what_is_of_a_lesser_level_isn_t_logged(process: Process, level: str, seen: list[str]) -> None:
    process.begin(level)
    for name in ("debug", "info", "error"):
        getattr(log, name)("this is %s", name)
    assert [line.rpartition(" ")[2] for line in process.lines] == seen


def test_verbose_shows_all_with_the_thread_and_the_logger(process: Process) -> None:
    process.begin("ERROR", verbose=True)
    log.debug("hello")
    assert "[MainThread] milestones.stream_thread.loop: hello" in process.lines[0]


def test_a_line_of_json_is_one_event_whatever_it_holds(process: Process) -> None:
    process.begin("INFO", "json")
    try:
        raise ValueError("two\nlines, and a half of a letter: \ud800")
    except ValueError:
        log.exception("task %s: \x1b[31m\nfails \udfff", "0_1", extra={"task": "0_1", "odd": object(), "time": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("a warning of Python's", RuntimeWarning, stacklevel=1)
    event, warning = (json.loads(line) for line in process.lines)
    assert list(event)[:5] == ["time", "level", "logger", "thread", "message"]
    assert event["time"].endswith("+00:00")
    assert (event["level"], event["logger"], event["thread"]) == ("ERROR", log.name, "MainThread")
    assert "task 0_1: \x1b[31m\nfails" in event["message"]
    assert event["error"].startswith("Traceback")
    assert "two\nlines" in event["error"]
    assert (event["task"], "object" in event["odd"]) == ("0_1", True)
    assert (warning["logger"], "a warning of Python's" in warning["message"]) == ("py.warnings", True)


def test_a_very_long_traceback_is_shortened(process: Process) -> None:
    process.begin("INFO", "json")
    log.error("fails", exc_info=ValueError("x" * 1_000_000))
    assert len(process.lines[0]) < 30_000


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_an_event_that_can_t_be_shown_costs_no_other_one(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    process.begin("INFO", "json")
    log.info("first", extra={"what": Unshowable()})
    log.info("second")
    assert "second" in process.lines[-1]


@pytest.mark.parametrize(("key", "value"), [("log_level", "LOUD"), ("log_format", "xml")])
def test_a_level_or_form_that_there_is_none_of_is_refused(key: str, value: str) -> None:
    settings: dict[str, Any] = {"application_id": "a", key: value}
    with pytest.raises(Exception, match=f"{key}.*must be one of"):
        StreamsConfig(**settings)


def test_a_record_without_arguments_is_a_line_as_well() -> None:
    assert json.loads(JsonLines().format(logging.makeLogRecord({"msg": "100 %"})))["message"] == "100 %"


def test_a_program_that_is_run_logs_as_its_settings_say(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from milestones import StreamsBuilder\nbuilder = StreamsBuilder()\nbuilder.stream('in').to('out')\n"
    )
    settings = [f"--set={pair}" for pair in ("log_format=json", "request_timeout_ms=500", f"state_dir={tmp_path}")]
    program = "from milestones.cli.main import main; main()"
    command = [sys.executable, "-c", program, "run", str(app), "-a", "a", "-b", "127.0.0.1:1", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 3, done.stderr
    assert "a runs on 127.0.0.1:1" in events[0]["message"]
    assert "no broker of bootstrap_servers" in events[-1]["message"]
