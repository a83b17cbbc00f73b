from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compat_tests.harness import matrix
from compat_tests.harness.matrix import FAILED, NOT_RUN, PASSED, SKIPPED, UNFINISHED
from compat_tests.harness.report import Case, Results

COUNT = "compat_tests/cases/test_topologies.py::test_a_count_is_exact"
CRASH = "compat_tests/cases/test_crashes.py::test_a_crash_is_survived"


def phase(when: str, outcome: str = "passed", seconds: float = 1.0, text: str = "") -> Any:
    """One phase of a test, as pytest reports it."""
    return SimpleNamespace(
        when=when,
        outcome=outcome,
        passed=outcome == "passed",
        failed=outcome == "failed",
        skipped=outcome == "skipped",
        duration=seconds,
        longrepr=("file", 1, text) if outcome == "skipped" else text,
        longreprtext=text,
    )


@pytest.fixture
def results() -> Results:
    return Results(seed=4711, broker="testcontainers")


def passes(results: Results, id: str) -> None:
    for when in ("setup", "call", "teardown"):
        results.add(id, phase(when), "pytest ...", [])


def fails(results: Results, id: str, text: str, logs: list[Path], when: str = "call") -> None:
    results.add(id, phase("setup"), "pytest 'again'", [])
    results.add(id, phase(when, "failed", text=text), "pytest 'again'", logs)


def written(results: Results, folder: Path, planned: tuple[str, ...] = ()) -> tuple[str, str]:
    results.write(folder, planned)
    return (folder / "matrix.md").read_text("utf-8"), (folder / "matrix.html").read_text("utf-8")


class Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name == "href" and value]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_failure_can_be_read_before_the_run_is_over(results: Results, tmp_path: Path) -> None:
    log, id = tmp_path / "one.log", f"{CRASH}[baseline-exactly_once_v2]"
    log.write_text("what it said", "utf-8")
    fails(results, id, "E lost", [log])
    results.cases[id].keep(tmp_path / "report")
    (kept,) = (tmp_path / "report").iterdir()
    assert "E lost" in (kept / "failure.txt").read_text("utf-8")
    assert (kept / "one.log").read_text("utf-8") == "what it said"


def test_the_matrix_has_a_column_per_stage_and_guarantee_rows_by_file_and_totals(
    results: Results, tmp_path: Path
) -> None:
    for stage in ("m2", "baseline", "m1"):
        for guarantee in ("exactly_once_v2", "at_least_once"):
            passes(results, f"{COUNT}[{stage}-{guarantee}]")
    fails(results, f"{CRASH}[baseline-exactly_once_v2-commit.after-flush]", "E lost", [])
    passes(results, f"{CRASH}[baseline-exactly_once_v2-commit.before-flush]")
    passes(results, "compat_tests/cases/test_config.py::test_a_wrong_key[baseline]")
    disk = "compat_tests/cases/test_full_disk.py::test_a_full_disk[baseline-at_least_once]"
    results.add(disk, phase("setup", "skipped", text="Skipped: mounting needs root"), "pytest ...", [])
    text, page = written(results, tmp_path / "report")
    columns = [
        "baseline, at_least_once",
        "baseline, exactly_once_v2",
        "baseline, either guarantee",
        *(f"{stage}, {guarantee}" for stage in ("m1", "m2") for guarantee in ("at_least_once", "exactly_once_v2")),
    ]
    assert f"| case | {' | '.join(columns)} |" in text
    assert "| a count is exact | ✓ 3.0 s | ✓ 3.0 s |  | ✓ 3.0 s" in text
    shown = re.findall(r"<th>(\w+)<br><small>([\w ]+)</small>", page)
    assert [", ".join(pair) for pair in shown] == columns
    assert re.findall(r"^## (.*)", text, re.MULTILINE)[-4:] == ["config", "crashes", "full disk", "topologies"]
    rows = re.findall(r"^\| (a crash.*?) \|", text, re.MULTILINE)
    assert rows == ["a crash is survived (commit.after-flush)", "a crash is survived (commit.before-flush)"]
    assert "| baseline | exactly_once_v2 | 2 | 1 | 0 | 8.0 s |" in text
    assert "| m1 | at_least_once | 1 | 0 | 0 | 3.0 s |" in text
    assert "**8 passed, 1 failed, 1 skipped**" in text
    assert "seed 4711, broker testcontainers" in text
    assert "Skipped: mounting needs root" in text
    assert "Skipped: mounting needs root" in page


def test_failures_of_one_name_in_two_files_and_of_endless_parameters_are_all_kept(
    results: Results, tmp_path: Path
) -> None:
    for file in ("one", "two"):
        for end in ("x", "y"):
            id = f"compat_tests/cases/test_{file}.py::test_it[baseline-{'long' * 100}{end}]"
            fails(results, id, f"E {file} {end}", [])
    written(results, tmp_path / "report")
    kept = "".join(path.read_text() for path in (tmp_path / "report").glob("*/failure.txt"))
    assert all(f"E {file} {end}" in kept for file in ("one", "two") for end in ("x", "y"))


def test_a_failure_links_to_its_errors_its_command_and_its_logs(results: Results, tmp_path: Path) -> None:
    logs = [tmp_path / "one.log", tmp_path / "never-written.log"]
    logs[0].write_text("what the instance said")
    fails(results, f"{CRASH}[baseline-exactly_once_v2]", "lost (1)\n    the output of in-0@7", logs)
    folder = tmp_path / "report"
    text, page = written(results, folder)
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert sorted(set(links)) == sorted(set(Links(page).found))
    assert {Path(link).name for link in links} == {"failure.txt", "one.log"}
    assert all((folder / link).exists() for link in links)
    failure = next(folder.glob("*/failure.txt")).read_text()
    assert "pytest 'again'" in failure
    assert "in-0@7" in failure
    assert "## Failures" in text
    assert "lost (1)" in text


def test_a_case_in_which_the_run_was_interrupted_is_not_shown_as_passed(results: Results, tmp_path: Path) -> None:
    planned = tuple(f"{CRASH}[baseline-{guarantee}]" for guarantee in ("at_least_once", "exactly_once_v2"))
    done = f"{COUNT}[baseline-at_least_once]"
    passes(results, done)
    results.add(planned[0], phase("setup"), "pytest ...", [])
    text, page = written(results, tmp_path / "report", (done, *planned))
    assert "| a crash is survived | … | · |" in text
    assert "**1 passed, 1 interrupted, 1 not run; this run was ended early**" in text
    assert "the run ended before it" in text
    assert 'class="outcome interrupted"' in page
    assert 'class="outcome not-run"' in page


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        ([phase("setup"), phase("call"), phase("teardown")], PASSED),
        ([phase("setup"), phase("call"), phase("teardown", "failed", text="E a topic stays")], FAILED),
        ([phase("setup", "failed", text="E no broker"), phase("teardown")], FAILED),
        ([phase("setup"), phase("call", "failed", text="E"), phase("teardown")], FAILED),
        ([phase("setup", "skipped", text="root only"), phase("teardown")], SKIPPED),
        ([phase("setup"), phase("call", "skipped", text="no tmpfs"), phase("teardown")], SKIPPED),
        ([phase("setup")], UNFINISHED),
        ([phase("setup"), phase("teardown")], UNFINISHED),
        ([], UNFINISHED),
    ],
)
def test_the_outcome_of_a_case_is_that_of_all_its_phases(phases: list[Any], outcome: str) -> None:
    case = Case(f"{COUNT}[baseline]", "pytest ...")
    for one in phases:
        case.add(one)
    assert case.outcome == outcome


def test_signs_of_markdown_and_html_in_names_and_errors_stay_what_they_are(results: Results, tmp_path: Path) -> None:
    fails(results, "compat_tests/cases/test_x.py::test_it[baseline-<b>|*]", "E <script>alert(1)</script> a|b", [])
    text, page = written(results, tmp_path / "report")
    assert "<script>" not in page
    assert Links(page).open == ["html"] or not Links(page).open
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| it")}
    assert cells == {3}


def test_an_older_report_in_the_same_folder_is_replaced(results: Results, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "old.txt").write_text("of another run")
    passes(results, f"{COUNT}[baseline]")
    written(results, folder)
    assert {path.name for path in folder.iterdir()} == {"matrix.md", "matrix.html"}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (42.6, "43 s"), (119.4, "119 s"), (754.0, "12 min 34 s")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert matrix.duration(seconds) == text


def test_every_outcome_has_a_mark_and_an_explanation() -> None:
    assert matrix.MARKS.keys() == matrix.LEGEND.keys() == {PASSED, FAILED, SKIPPED, UNFINISHED, NOT_RUN}
