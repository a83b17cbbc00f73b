"""A test that hangs in spite of its time-out: the run goes on without it, and says where it hung."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from compat_tests.harness import hangs

hangs.GRACE_S = 1

def pytest_configure(config):
    hangs.register(config)
    hangs.register(config)  # as with two files that want it
"""
HANGS = {
    "a call": """
import ctypes

def test_hangs():
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # no signal ends it, and it has the interpreter's lock
""",
    "a teardown": """
import threading

import pytest

@pytest.fixture
def left_running():
    end = threading.Event()
    yield
    end.wait()

def test_hangs(left_running):
    threading.Event().wait()
""",
    "a setup": """
import ctypes

import pytest

@pytest.fixture
def made():
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)

def test_hangs(made):
    pass
""",
}
OTHERS = """
def test_passes():
    pass

def test_passes_too():
    pass
"""


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the small suite in `folder`: its exit code, and what it printed."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 1\n")
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", ".", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**own, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
def test_a_worker_that_hangs_in_spite_of_a_time_out_ends_and_the_run_goes_on(tmp_path: Path, hang: str) -> None:
    (tmp_path / "test_it.py").write_text(hang + OTHERS)
    code, text = run(tmp_path, "-n", "2")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "crashed while running 'test_it.py::test_hangs'" in text
    assert "2 passed" in text
    assert "Timeout (0:00:02)!" in text  # faulthandler's head, before the stacks
    assert 'test_it.py", line' in text


def test_without_workers_the_process_ends_with_all_stacks(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HANGS["a teardown"])
    code, text = run(tmp_path)
    assert code == 1
    assert "in left_running" in text


@pytest.mark.parametrize(
    "test",
    ["@pytest.mark.timeout(0)\ndef test_has_no_time_out():\n    time.sleep(2.5)\n",
     "@pytest.mark.timeout(30)\ndef test_has_a_longer_one():\n    time.sleep(2.5)\n",
     "@pytest.mark.timeout(timeout=30)\ndef test_names_it():\n    time.sleep(2.5)\n"],
    ids=["none", "its own", "its own, by name"],
)  # fmt: skip
def test_a_test_has_the_time_that_its_own_time_out_gives(tmp_path: Path, test: str) -> None:
    (tmp_path / "test_it.py").write_text(f"import time\n\nimport pytest\n\n{test}")
    assert run(tmp_path)[0] == 0


def test_a_phase_that_ends_in_time_leaves_no_clock_behind(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_ends_in_time():\n    pass\n")
    long = "import time\n\nimport pytest\n\n@pytest.mark.timeout(0)\ndef test_takes_long():\n    time.sleep(2.5)\n"
    (tmp_path / "test_b.py").write_text(long)
    assert run(tmp_path)[0] == 0
