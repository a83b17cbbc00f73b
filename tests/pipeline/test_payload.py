"""The application on its way to other processes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from milestones import StreamsBuilder, StreamsConfig, Topology, TopologyError, serdes
from milestones.pipeline.hosting.payload import Payload, pack, unpack

CONFIG = StreamsConfig(application_id="a", bootstrap_servers="b:1", variables={})

USERS = """
from milestones import StreamsBuilder, serdes
LAYOUT = __import__("struct").Struct(">q")
def shout(text):
    return text.upper() + str(LAYOUT.size)
def topology():
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).map_values(shout).to("out")
    return builder.build()
"""

ELSEWHERE = """
import pickle, sys
from milestones.pipeline.hosting.payload import unpack
payload = pickle.loads(sys.stdin.buffer.read())
topology, config = unpack(payload)
from milestones import serdes
from milestones.testing import TopologyTestDriver
with TopologyTestDriver(topology) as driver:
    driver.create_input_topic("in", key=serdes.STRING, value=serdes.STRING).pipe("k", "hello")
    print(driver.create_output_topic("out", value=serdes.STRING).read_value(), config.application_id)
"""


def load(path: Path, name: str) -> ModuleType:
    path.write_text(USERS)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def in_another_process(payload: Payload) -> str:
    import pickle

    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=pickle.dumps(payload), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.mark.parametrize("near", [True, False])
def test_functions_of_a_file_that_a_command_has_loaded_arrive(
    near: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    module = load(tmp_path / "app.py", "_app_of_a_test")
    try:
        assert in_another_process(pack(module.topology(), CONFIG, near=near)) == "HELLO8 a"
    finally:
        del sys.modules["_app_of_a_test"]


def test_near_processes_look_for_modules_where_the_driver_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.syspath_prepend(str(tmp_path))
    module = load(tmp_path / "apps_own_module.py", "apps_own_module")
    payload = pack(module.topology(), CONFIG, near=True)
    assert b"upper" not in payload.topology
    assert in_another_process(payload) == "HELLO8 a"


def test_the_settings_arrive_as_they_are() -> None:
    _, config = unpack(pack(topology(str.upper), CONFIG, near=True))
    assert config == CONFIG


def test_what_cant_travel_is_an_error_that_says_what_to_do() -> None:
    lock = threading.Lock()
    with pytest.raises(TopologyError, match=r"can't be sent to Spark's processes: .*lock.*; make such objects"):
        pack(topology(lambda value: (lock, value)), CONFIG, near=True)


def topology(function: object) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).map_values(function).to("out")  # type: ignore[arg-type]
    return builder.build()
