"""Other libraries as contenders: who takes part, under which guarantee, and what is said of one that can't."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from rich.console import Console

from benchmarks import contenders
from benchmarks.contenders import HERE, Contender, of_library, peers
from benchmarks.errors import BenchmarkError
from benchmarks.job import AT_LEAST_ONCE, EXACTLY_ONCE, GUARANTEES, Job
from benchmarks.peers import environment
from benchmarks.peers.declared import BYTEWAX, FAUST, LIBRARIES, QUIX
from benchmarks.peers.environment import python_of
from benchmarks.report import table
from benchmarks.rows import Figure, Row, run
from benchmarks.windows import COUNT, KINDS, STATELESS, TUMBLING
from benchmarks.windows.data import LONG, START, packed

JOB = Job("b:1", "count-7", EXACTLY_ONCE, "count-input-1", "out", "state")
FIGURES = (Figure("speed", "records/s"),)
ENDED = BenchmarkError("it ended by itself\nits log")


class Fake:
    """A work that takes no time; of each contender in `fails` the runs of these numbers, from 1 on, fail."""

    name = "fake"
    figures = FIGURES

    def __init__(self, error: Exception = ENDED, **fails: set[int]) -> None:
        self._error, self._fails = error, fails
        self.runs, self.prepared = list[tuple[str, str]](), list[str]()

    def prepare(self, contenders: Iterable[Contender]) -> None:
        self.prepared = [one.name for one in contenders]

    def measure(self, contender: Contender, guarantee: str) -> Mapping[str, float]:
        self.runs.append((contender.name, guarantee))
        if sum(name == contender.name for name, _ in self.runs) in self._fails.get(contender.name, ()):
            raise self._error
        return {"speed": 1.0}


def contender(name: str, **given: Any) -> Contender:
    return Contender(name, Job.arguments, peer=True, **given)


def measured(work: Fake, *who: Contender, guarantees: Iterable[str] = (EXACTLY_ONCE,)) -> list[Row]:
    return run(work, who, list(guarantees), rounds=3, seed=1, log=lambda _: None)


def test_a_peer_that_fails_twice_is_out_and_its_row_says_when_and_why_while_the_others_go_on() -> None:
    work = Fake(b={1, 2})
    first, second = measured(work, contender("a"), contender("b"))
    assert (len(first.rounds), first.said) == (3, "")
    assert (second.rounds, second.said.splitlines()[0]) == ([], "failed in round 1 of 3: it ended by itself")
    assert work.runs.count(("b", EXACTLY_ONCE)) == 2
    assert second.as_json()["said"] == second.said


@pytest.mark.parametrize("error", [BenchmarkError("it ended"), KafkaException("the broker is away")])
def test_a_peer_that_fails_once_goes_on_and_its_row_says_so(error: Exception) -> None:
    _, row = measured(Fake(error, b={2}), contender("a"), contender("b"))
    assert (len(row.rounds), row.said) == (2, f"failed in round 2 of 3: {error}")


def test_a_peer_that_fails_before_the_first_round_goes_on_too() -> None:
    row, _ = measured(Fake(a={1}), contender("a"), contender("b"))
    assert len(row.rounds) == 3
    assert row.said.startswith("failed in the run before the first round")


def test_a_failure_of_ours_ends_the_benchmark() -> None:
    with pytest.raises(BenchmarkError, match="it ended by itself"):
        measured(Fake(ours={2}), replace(contender("ours"), peer=False))


def test_who_is_absent_has_a_row_that_says_why_and_needs_no_input() -> None:
    work = Fake()
    rows = measured(work, contender("a", absent="has none: it has no windows"), contender("b"))
    assert (rows[0].rounds, rows[0].said) == ([], "has none: it has no windows")
    assert (work.prepared, {name for name, _ in work.runs}) == (["b"], {"b"})
    assert "speed" not in rows[0].as_json()
    text = StringIO()
    Console(file=text, width=120).print(table("title", FIGURES, rows))
    assert f"a, {EXACTLY_ONCE}: has none: it has no windows" in " ".join(text.getvalue().split())


def test_a_contender_takes_part_under_the_guarantees_that_it_has_or_its_strongest() -> None:
    weak = contender("weak", guarantees=(AT_LEAST_ONCE,))
    assert weak.under([EXACTLY_ONCE]) == weak.under(GUARANTEES) == [AT_LEAST_ONCE]
    assert contender("both").under(GUARANTEES) == list(GUARANTEES)
    rows = measured(Fake(), weak, contender("both"))
    assert [(row.contender, row.guarantee) for row in rows] == [("weak", AT_LEAST_ONCE), ("both", EXACTLY_ONCE)]


def test_a_library_has_a_program_for_each_work_or_a_reason_why_not() -> None:
    works = {"count", "latency", "restore", *(f"windows-{kind}" for kind in KINDS)}
    for library in LIBRARIES.values():
        assert library.programs.keys() | library.lacks.keys() == works
        assert not library.programs.keys() & library.lacks.keys()
        source = ast.parse((HERE / "peers" / f"{library.name}.py").read_text())
        texts = {node.value for node in ast.walk(source) if isinstance(node, ast.Constant)}
        written = {name for name in texts if isinstance(name, str)} | {"windows-table-join"}
        assert set(library.programs.values()) <= written


def test_a_bare_loop_has_no_windows() -> None:
    absent = {kind: peers(["loop"], f"windows-{kind}")[0].absent for kind in KINDS}
    assert {kind for kind, why in absent.items() if not why} == {STATELESS}


def test_what_a_library_lacks_is_said_without_installing_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "python_of", pytest.fail)
    (found,) = of_library(BYTEWAX, f"windows-{TUMBLING}")
    assert found.absent == "has none: its windows put out their count at their end only"


def test_a_library_runs_in_its_own_environment_and_is_absent_where_that_cant_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contenders, "python_of", lambda name, requirements: Path("/env") / name)
    (found,) = peers(["faust"], "count")
    assert found.command(JOB) == ["/env/faust", "-m", "benchmarks.peers.faust", "count", *JOB.arguments()]

    def refuse(name: str, requirements: Iterable[str]) -> Path:
        raise BenchmarkError("faust can't be installed: no such version")

    monkeypatch.setattr(contenders, "python_of", refuse)
    (found,) = peers(["faust"], "count")
    assert found.absent == "faust can't be installed: no such version"


def test_each_library_s_changelog_is_found_and_read_by_the_record_s_key() -> None:
    fields = {"store": "totals", "application_id": JOB.application_id, "input": JOB.input}
    assert QUIX.changelog is not None
    assert QUIX.changelog.topic.format(**fields) == "changelog__count-7--count-input-1--default"
    assert QUIX.changelog.key(b'customer-000001|"total"') == b"customer-000001"
    assert FAUST.changelog is not None
    assert FAUST.changelog.topic.format(**fields) == "count-7-totals-changelog"
    assert FAUST.changelog.key(b"customer-000001") == b"customer-000001"
    assert BYTEWAX.changelog is None
    assert any(QUIX.changelog.topic.format(**fields).startswith(one.format(run="count-7")) for one in QUIX.prefixes)


def test_numbers_and_windows_in_json_are_compared_as_the_others_write_them() -> None:
    assert packed(COUNT, b"a", b"7") == (b"a", LONG.pack(7))
    assert packed(TUMBLING, b"a", b'{"start":60000,"count":2}') == (b"a" + START.pack(60_000), LONG.pack(2))
    assert packed(STATELESS, b"a", b'{"id":1}') == (b"a", b'{"id":1}')
    for wrong in (b"x", b'"7"', b"[]", None):
        assert packed(COUNT, b"a", wrong) == (b"a", wrong)
        assert packed(TUMBLING, b"a", wrong) == (b"a", wrong)


def test_an_environment_is_made_once_and_again_where_it_wasn_t_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    codes = [0, 1, 0, 0]

    def called(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command[2])
        if command[2] == "venv":
            Path(command[3]).mkdir()
        return subprocess.CompletedProcess(command, codes.pop(0), "", "no matching distribution")

    monkeypatch.setattr(environment.subprocess, "run", called)
    with pytest.raises(BenchmarkError, match="thing can't be installed: no matching distribution"):
        python_of("thing", ["thing==1"], tmp_path)
    python = python_of("thing", ["thing==1"], tmp_path)
    assert python_of("thing", ["thing==1"], tmp_path) == python
    assert calls == ["venv", "pip", "venv", "pip"]
    assert python.parent.parent.parent == tmp_path


def test_a_pip_that_isnt_there_or_takes_too_long_is_an_error_of_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(command: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, 600)

    monkeypatch.setattr(environment.subprocess, "run", late)
    with pytest.raises(BenchmarkError, match="can't be installed"):
        python_of("thing", ["thing==1"], tmp_path)
