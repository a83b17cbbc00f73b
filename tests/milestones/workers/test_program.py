"""`streams.run(workers=...)`: from which programs it works, and what it says where it can't."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milestones.workers.program import same_command

PROGRAM = """
import sys
from milestones import Streams, StreamsBuilder
builder = StreamsBuilder()
builder.stream("in").to("out")
streams = Streams(builder, application_id="app", bootstrap_servers="localhost:1", state_dir={state!r},
                  request_timeout_ms=1_000, client_id="me")
print("begins with", sys.argv[1:], streams.config.state_dir, flush=True)

def main():
    code = streams.run(workers={workers!r})
    print("after run:", code, repr(streams.error), flush=True)
    sys.exit(code)

if __name__ == "__main__":
    main()
"""
UNREACHABLE = 3
"""The exit code of a program whose Kafka isn't there."""


def written(folder: Path, workers: object = 2, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(PROGRAM.format(state=str(folder / "state"), workers=workers))
    return path


def run(*arguments: object, cwd: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, input=text, capture_output=True, text=True, timeout=110, check=False)


def by_path(folder: Path) -> list[object]:
    return ["-X", "utf8", written(folder), "one", "--two"]


def by_relative_path(folder: Path) -> list[object]:
    written(folder)
    return ["program.py", "one", "--two"]


def by_module(folder: Path) -> list[object]:
    written(folder)
    return ["-m", "program", "one", "--two"]


def by_package(folder: Path) -> list[object]:
    (folder / "package").mkdir()
    written(folder).rename(folder / "package" / "__main__.py")
    return ["-m", "package", "one", "--two"]


def after_a_change_of_directory(folder: Path) -> list[object]:
    path = written(folder)
    (folder / "elsewhere").mkdir()
    changed = f"import os\ndef main():\n    os.chdir('{folder}/elsewhere')"
    path.write_text(path.read_text().replace("def main():", changed))
    return ["program.py", "one", "--two"]


@pytest.mark.parametrize(
    "start",
    [
        by_path, by_module, after_a_change_of_directory,
        *(pytest.param(start, marks=pytest.mark.nightly) for start in (by_relative_path, by_package)),
    ],
)  # fmt: skip
def test_a_program_is_run_once_more_for_each_worker_and_goes_on_after_run_only_in_the_parent(
    tmp_path: Path, start: Callable[[Path], list[object]]
) -> None:
    ended = run(*start(tmp_path), cwd=tmp_path)
    assert ended.returncode == UNREACHABLE, ended.stderr
    state = tmp_path / "state"
    lines = ended.stdout.splitlines()
    begins = f"begins with ['one', '--two'] {state}"
    assert lines == [begins, f"[1/2] {begins}", f"[2/2] {begins}", "after run: 3 None"]
    assert f"state in {state / 'worker-2'}" in ended.stderr
    assert "ended with exit code 3: worker " in ended.stderr.splitlines()[-1]


def test_one_worker_is_the_program_itself(tmp_path: Path) -> None:
    ended = run(written(tmp_path, workers=1), cwd=tmp_path)
    assert ended.returncode == UNREACHABLE
    assert ended.stdout.splitlines()[1].startswith("after run: 3 KafkaUnreachableError")
    assert "state in " + str(tmp_path / "state") in ended.stderr


@pytest.mark.parametrize("workers", [0, "many", 1.5, True])
def test_a_number_that_cant_be_is_an_error_before_anything_starts(tmp_path: Path, workers: object) -> None:
    ended = run(written(tmp_path, workers), cwd=tmp_path)
    assert "must be a number from 1 to 1024, or auto" in ended.stderr.splitlines()[-1]
    assert len(ended.stdout.splitlines()) == 1


def test_a_program_from_standard_input_is_refused(tmp_path: Path) -> None:
    ended = run("-", cwd=tmp_path, text=written(tmp_path).read_text())
    assert ended.returncode == 1
    assert "this program was read from standard input: write the program into a file" in ended.stderr


def test_an_interactive_interpreter_is_refused(tmp_path: Path) -> None:
    ended = run("-i", "-c", "import program; program.main()", cwd=written(tmp_path).parent, text="")
    assert "an interactive interpreter has no program" in ended.stderr


def test_a_process_of_multiprocessing_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "starts.py").write_text(
        "import multiprocessing, program\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=program.main)\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    ended = run("starts.py", cwd=tmp_path)
    assert "this process was started by multiprocessing" in ended.stderr


def test_a_thread_is_refused_as_it_gets_no_signals(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace(
        "\n    main()", "\n    import threading\n    thread = threading.Thread(target=main)\n    thread.start()"
    ))  # fmt: skip
    assert "in another thread use start(), wait() and close()" in run(path, cwd=tmp_path).stderr


def test_an_error_of_a_worker_before_its_start_is_one_line_with_its_label(tmp_path: Path) -> None:
    path = written(tmp_path)
    fails = "    import os\n    if '_MILESTONES_WORKER' in os.environ: 1 / 0\n    code = "
    path.write_text(path.read_text().replace("    code = ", fails))
    ended = run(path, cwd=tmp_path)
    assert ended.returncode == 1
    assert [line for line in ended.stderr.splitlines() if "ZeroDivisionError" in line] == [
        "[1/2] ZeroDivisionError: division by zero"
    ]


def test_the_commands_line_is_kept_and_the_place_follows_the_name_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ["-v", "run", "run", "--workers", "4"]
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "/bin/milestones", *arguments])
    found = same_command(arguments, "run", ["--worker", "2/4"])
    assert found == [
        sys.executable, "-X", "dev", "/bin/milestones", "-v", "run", "--worker", "2/4", "run", "--workers", "4"
    ]
    assert same_command(["run", "x.py"], "run", [])[1:] == ["-m", "milestones.cli", "run", "x.py"]
