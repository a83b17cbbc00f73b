"""The pages about the architecture draw what the code has: names, threads, steps, parts, phases, accounts."""

from __future__ import annotations

import ast
import builtins
import re
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from milestones import Streams, StreamsBuilder, serdes
from milestones.common.clock import SystemClock
from milestones.common.memory import Account
from milestones.common.task.lifecycle import TaskState
from milestones.stream_thread.commits.timed_commit import TIMED_AS
from milestones.stream_thread.loop import StreamLoop
from milestones.stream_thread.task_registry import MOVES, Phase
from milestones.testing import KafkaProbe
from milestones.wiring import REPLACEMENTS
from tests.sources import ROOT, parsed

DOCS = ROOT / "docs"
ARCHITECTURE, THREADS, TASKS = DOCS / "architecture.md", DOCS / "threads.md", DOCS / "tasks.md"
COMMITS, MEMORY = DOCS / "commits.md", DOCS / "memory.md"
NARRATIVE, GLOSSARY = DOCS / "a-day-in-the-life-of-a-record.md", DOCS / "glossary.md"
PAGES = (
    ARCHITECTURE, THREADS, TASKS, COMMITS, MEMORY, DOCS / "membership.md", DOCS / "fetching.md", NARRATIVE, GLOSSARY,
)  # fmt: skip

TIMEOUT_S = 60

sources = partial(parsed, "common", "milestones")

PLACEHOLDERS = {"<client>": ".+", "<host>": ".+", "<n>": r"\d+", "<k>": r"\d+"}
"""What stands for the varying parts of a thread's name, as patterns."""

KAFKAS = frozenset({"JoinGroup", "SyncGroup", "KafkaStreams", "OffsetCommit"})
"""Names of Kafka's protocol, and of Kafka Streams."""

NO_RUNTIME = (
    "milestones/cli/", "milestones/demo/", "common/kafka/embedded/",
    *(f"milestones/workers/{name}.py" for name in ("endpoint", "line_pump", "process")),
)  # fmt: skip
"""Folders and files whose threads no instance has. The parent of workers is no instance."""


def section(page: Path, title: str) -> str:
    level = title.split()[0]
    found = re.search(rf"^{re.escape(title)}$(.*?)(?=^{level} |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The rows of the first table in a text, without its head."""
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[0].splitlines()[2:]]


def drawings(text: str) -> str:
    return "\n".join(re.findall(r"^```(?:mermaid)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def classes() -> set[str]:
    return {node.name for tree in sources().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def threads() -> Iterator[tuple[str, str]]:
    """Class and module of each thread of an instance: subclasses of `Thread`, and classes that start one."""
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not path.startswith(NO_RUNTIME):
                bases = {ast.unparse(base) for base in node.bases}
                calls = {ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
                starts = (bases | calls) & {"threading.Thread", "Observer"}
                if "ABC" not in bases and (starts or "StreamThread" in bases):
                    yield node.name, path


def patterns(stage: str) -> Mapping[str, re.Pattern[str]]:
    """The names that the threads of a stage may have, by the word for the thread."""
    found = {}
    for word, before, from_m4, *_ in rows(section(THREADS, "## The threads")):
        name = next(iter(quoted(before if stage < "m4" or from_m4 == "same" else from_m4)), None)
        since = re.search(r"\((m\d)( to (m\d))?", word)
        if name is None or (since is not None and not since[1] <= stage <= (since[3] or "m9")):
            continue
        pattern = re.escape(name)
        for placeholder, stands_for in PLACEHOLDERS.items():
            pattern = pattern.replace(re.escape(placeholder), stands_for)
        found[word] = re.compile(pattern)
    return found


def named_classes(page: Path) -> set[str]:
    text = page.read_text()
    texts = [*quoted(text), drawings(text)]
    return {name for text in texts for name in re.findall(r"(?<![\w.<-])[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_class_that_a_page_names_exists(page: Path) -> None:
    named = named_classes(page)
    assert named - classes() - KAFKAS - set(dir(builtins)) - {"StreamThread", "ProcessingThread"} == set()


def test_the_pages_name_their_classes() -> None:
    assert len(set[str]().union(*map(named_classes, PAGES))) > 50


def test_every_file_that_a_page_names_exists() -> None:
    names = [text for page in PAGES for text in quoted(page.read_text())]
    files = [name for name in names if re.fullmatch(r"(?:common|milestones|pipeline|tests)/[\w/.]+", name)]
    assert len(files) > 20
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_the_threads_of_an_instance_are_those_of_the_code() -> None:
    documented = {tuple(quoted(row[4])) for row in rows(section(THREADS, "## The threads"))}
    assert documented == set(threads())


@pytest.mark.kafka
@pytest.mark.parametrize("stage", ["m2", "m4", "m5", "m6"])
def test_the_threads_of_a_running_instance_have_the_names_on_the_page(kafka: str, tmp_path: Path, stage: str) -> None:
    name = f"threads-{uuid4().hex[:8]}"
    KafkaProbe(kafka).create({name: 1, f"{name}-out": 1, f"{name}-global": 1})
    builder = StreamsBuilder()
    builder.global_table(f"{name}-global")
    stream = builder.stream(name, key=serdes.STRING, value=serdes.STRING).group_by_key()
    stream.count(store="counts").to_stream().to(f"{name}-out", key=serdes.STRING, value=serdes.LONG)
    streams = Streams(
        builder, application_id=name, bootstrap_servers=kafka, state_dir=tmp_path / "state", metrics_port=0,
        processing_guarantee="exactly_once_v2", milestones=stage, snapshot_url=(tmp_path / "snapshots").as_uri(),
    )  # fmt: skip
    before = {thread.ident for thread in threading.enumerate()}
    expected = patterns(stage)
    seen = set[str]()
    with streams:
        producer = Producer({"bootstrap.servers": kafka})
        producer.produce(name, b"value", b"key")
        producer.flush(TIMEOUT_S)
        deadline = SystemClock().monotonic_ms() + TIMEOUT_S * 1000
        while SystemClock().monotonic_ms() < deadline:
            seen |= {thread.name for thread in threading.enumerate() if thread.ident not in before}
            found = {word for word, pattern in expected.items() if any(map(pattern.fullmatch, seen))}
            if found == set(expected):
                break
            SystemClock().sleep_ms(20)
    assert found == set(expected)
    seen = {name for name in seen if not name.endswith("-housekeeper-admin-topics")}  # it asks once, and is gone
    assert [name for name in seen if not any(pattern.fullmatch(name) for pattern in expected.values())] == []


def test_a_flag_replaces_the_parts_that_the_page_names() -> None:
    table = rows(section(THREADS, "## Which parts a flag replaces"))
    documented = {quoted(row[0])[0]: (quoted(row[1]), quoted(row[2])) for row in table}
    assert documented == {flag: (list(put.thread), list(put.instance)) for flag, put in REPLACEMENTS.items()}


def test_the_steps_of_a_turn_are_those_of_the_loop() -> None:
    listed = re.findall(r"(\d\. [a-z ]+?)(?:;|\n| when)", StreamLoop.run_once.__doc__ or "")
    assert [row[0] for row in rows(section(ARCHITECTURE, "## A record's way"))] == listed
    assert len(listed) == 7


def test_the_phases_of_a_task_and_their_moves_are_those_of_the_register() -> None:
    table = rows(section(TASKS, "## A task's places"))
    assert {Phase[quoted(row[0])[0]]: {Phase[name] for name in quoted(row[2])} for row in table} == MOVES
    drawn = set(re.findall(r"\b[A-Z]{4,}\b", drawings(section(TASKS, "## A task's places"))))
    assert drawn == {phase.name for phase in Phase}


def test_the_states_that_the_page_names_are_those_of_a_task() -> None:
    named = {name for name in quoted(section(TASKS, "## A task")) if name.isupper()}
    assert named == {state.name for state in TaskState}


def test_the_steps_of_a_commit_are_those_of_the_committer() -> None:
    drawn = re.findall(r"\b[A-Z]{6,}\b", drawings(section(COMMITS, "## The steps of a commit")))
    assert drawn == [step.name for step in dict.fromkeys(TIMED_AS.values())]


def test_the_accounts_of_the_memory_are_those_of_the_budget() -> None:
    assert [quoted(row[0])[0] for row in rows(section(MEMORY, "## Accounts"))] == [account.value for account in Account]
