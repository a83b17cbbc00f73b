"""Public names: each has one path, the one by which pages, programs, errors and `repr` know it."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import milestones
from docs.api import MODULES, SECTIONS, TYPES
from milestones import (
    LogAndContinue,
    MilestonesError,
    Processor,
    ProcessorContext,
    Record,
    StoreSpec,
    StreamsBuilder,
    StreamsConfig,
    TopologyError,
    serdes,
)
from milestones.common.topology.handlers import HEADER_EXCEPTION
from milestones.testing import TopologyTestDriver
from tests.sources import ROOT, files, module_of, place

SPARK = tuple(f"milestones.pipeline{name}" for name in ("", ".audit", ".backfill", ".snapshots"))
"""What `docs/spark.md` describes; it can't be imported without PySpark."""

PROGRAMS = (
    "benchmarks", "compat_tests/apps", "compat_tests/random_topologies", "compat_tests/spark", "docs", "examples",
    "milestones/demo",
)  # fmt: skip
"""Where programs are as users write them."""

ALLOWED = {
    "benchmarks/alone.py": "says where it is as the commands of this package do",
    "benchmarks/assignor.py": "measures the assignors by themselves",
    "benchmarks/cli.py": "refuses an unknown stage before it starts anything",
    "benchmarks/cluster.py": "tells errors that pass from others, as the runtime does",
    "benchmarks/convert/work.py": "measures the conversions by themselves",
    "benchmarks/instructions/job.py": "makes clients as the runtime does",
    "benchmarks/instructions/parts.py": "measures the parts of a stage by themselves",
    "benchmarks/contenders.py": "runs Kafka Streams with the jars of the embedded broker",
    "benchmarks/moves/traffic.py": "writes as the runtime does where nobody reads the producer's log",
    "benchmarks/audit/work.py": "places keys, and writes the audit's page",
    "benchmarks/paced.py": "places keys, and writes as the runtime does where nobody reads the producer's log",
    "benchmarks/looks.py": "times the turns of a loop",
    "benchmarks/tasks/app.py": "times commits",
    "benchmarks/works.py": "measures each stage that this version has",
    "benchmarks/opening/app.py": "delays a store, and times what a stream thread does",
    "benchmarks/opening/work.py": "writes as the runtime does where nobody reads the producer's log",
    "benchmarks/snapshot/delta.py": "measures what a helper process writes",
    "benchmarks/snapshot/work.py": "measures the engine by itself",
    "benchmarks/reads.py": "measures engines and stores by themselves",
    "benchmarks/stores/app.py": "times the opening of databases",
    "compat_tests/apps/forks.py": "arms fault points",
    "compat_tests/apps/profiles.py": "does what `milestones run --profile` does",
    "compat_tests/apps/refusals.py": "fails where RocksDB is called",
    "compat_tests/apps/disk.py": "watches the runtime's engines from beside",
    "compat_tests/apps/waits.py": "watches the runtime's threads from beside",
    "compat_tests/random_topologies/__main__.py": "runs each stage that this version has",
    "compat_tests/random_topologies/cases.py": "arms fault points",
    "compat_tests/spark/processes.py": "starts Spark's own processes",
    "docs/transaction.py": "reads the tables of the register",
    "docs/settings.py": "reads the table of keys and librdkafka's names",
    "docs/api.py": "reads the annotations of built-in serdes",
    "milestones/demo/play.py": "refuses an unknown stage before it starts anything, ends as the embedded broker does",
    "milestones/demo/reading.py": "asks Kafka for offsets and ends, as the runtime does",
    "milestones/demo/story.py": "creates topics, as the runtime does",
}
"""Tools beside the programs, and what they need of the inside."""

NEVER_MET = {
    "CommitRetriableError", "ConnectionLostError", "CoordinatorError", "LeftOutError", "MailboxClosedError",
    "MailboxFullError", "NoAnswerError", "RefusedTogetherError", "RejectionIdentifiedError", "RolledBackError",
    "SendAgainError", "SnapshotGoneError", "StaleGenerationError", "StateBusyError", "TaskCorruptedError",
    "TaskMigratedError", "TornError", "UnknownOutcomeError", "UnsentError",
}  # fmt: skip
"""Errors that steer the runtime: a thread of its own always catches them."""


def exported(module: str) -> set[str]:
    """Its `__all__`, read from its source."""
    path = ROOT / module.replace(".", "/")
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    (names,) = (
        node.value for node in ast.parse(text).body if isinstance(node, ast.Assign) and "__all__" in ast.dump(node)
    )
    return set(ast.literal_eval(names))


PUBLIC = {name: exported(name) for name in (*(module.__name__ for module in MODULES), *SPARK)}


def private_imports(source: str) -> Iterator[str]:
    """What the source imports of the product that isn't public."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = {(one.name, "") for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "", one.name) for one in node.names}
        else:
            continue
        for module, name in names:
            inside = module.partition(".")[0] == "milestones" and not module.startswith("milestones.demo")
            public = name in PUBLIC.get(module, ()) or f"{module}.{name}".rstrip(".") in PUBLIC
            if inside and not public:
                yield f"{module} {name}".strip()


def blocks() -> dict[str, str]:
    """The Python programs in the repository's pages."""
    pages = [path for path in ROOT.rglob("*.md") if "site-packages" not in path.parts]
    found = {
        f"{page.relative_to(ROOT)}:{number}": block
        for page in pages
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
    }
    return {where: block for where, block in found.items() if "milestones" in block}


def test_programs_and_pages_import_public_names_only() -> None:
    assert len(blocks()) > 3
    every = {place(path): path.read_text() for path in files(*PROGRAMS)} | blocks()
    found = {where: [*private_imports(source)] for where, source in every.items()}
    assert {where: names for where, names in found.items() if names and where not in ALLOWED} == {}
    assert {where for where in ALLOWED if not found[where]} == set(), "take out what needs no exception any more"


@pytest.mark.parametrize(
    "line",
    ["from milestones.common.errors import StateError", "import milestones.wiring", "from milestones import flags"],
)
def test_an_import_of_a_private_name_is_found(line: str) -> None:
    assert [*private_imports(line)]


def test_pages_dont_name_a_private_module_as_something_to_import_or_run() -> None:
    pages = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
    naming = {name for name, text in pages.items() if "milestones.common" in text}
    assert naming == {"api.md"}, "which says that it is private"


def test_a_name_is_public_in_one_module_and_is_the_one_that_the_api_page_shows() -> None:
    counts = Counter(name for module in MODULES for name in module.__all__)
    assert {name for name, count in counts.items() if count > 1} == set()
    shown = {entry.__name__ for entries in SECTIONS.values() for entry in entries}
    constants = {name for name in serdes.__all__ if name.isupper()}
    assert counts.keys() - constants == shown | TYPES.keys() | {"serdes", "stores"}


def test_import_star_gives_the_public_names() -> None:
    for module in MODULES:
        names: dict[str, Any] = {}
        exec(f"from {module.__name__} import *", names)
        assert names.keys() - {"__builtins__"} == set(module.__all__)


def test_a_class_is_called_by_the_path_from_which_it_is_imported_and_found_there_by_pickle() -> None:
    for module in MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, type):
                assert f"{thing.__module__}.{thing.__qualname__}" == f"{module.__name__}.{name}"
                assert pickle.loads(pickle.dumps(thing)) is thing


RENAMED = [("milestones", "Exceptions", "UncaughtExceptionResponse"), ("milestones.testing", "Not", "NotYet")]


@pytest.mark.parametrize(("module", "old", "new"), RENAMED, ids=[old for _, old, _ in RENAMED])
def test_an_old_name_stands_for_the_new_one_with_a_warning_that_names_it(module: str, old: str, new: str) -> None:
    names: dict[str, Any] = {}
    with pytest.warns(DeprecationWarning, match=f"{module}.{old} is called {module}.{new} now") as warned:
        exec(compile(f"from {module} import {old}", "the user's program", "exec"), names)
    assert names[old] is getattr(importlib.import_module(module), new)
    assert {warning.filename for warning in warned} == {"the user's program"}
    assert old not in importlib.import_module(module).__all__


@pytest.mark.parametrize("module", ["milestones", "milestones.testing"])
def test_a_name_that_never_was_is_no_attribute(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'Nobody'"):
        importlib.import_module(module).Nobody  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Nobody'"):
        exec(f"from {module} import Nobody")


def test_every_error_that_a_user_can_meet_is_public() -> None:
    for path in files("common", "milestones"):
        if "Error)" in path.read_text():
            importlib.import_module(module_of(path))
    inside = {kind.__name__ for kind in below(MilestonesError) if kind.__module__ not in PUBLIC}
    inside -= {kind.__name__ for kind in below(MilestonesError) if kind.__module__.startswith(SPARK)}
    assert {name for name in inside if not name.startswith("_")} == NEVER_MET


def below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("milestones"):
            yield each
            yield from below(each)


class Meeting(Processor):
    """Notes whatever the runtime gives to a processor, then fails."""

    def __init__(self) -> None:
        self.met: list[object] = []
        met.append(self.met)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.met += [context, context.get_state_store("seen")]
        self.met.append(context.schedule(1_000, "stream-time", self.met.append))

    def process(self, record: Record) -> None:
        self.met += [record, self.context.record_metadata()]
        raise TopologyError("no such thing")


met: list[list[object]] = []


def test_a_user_meets_public_names_in_repr_tracebacks_dead_letters_and_settings() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(StoreSpec("seen"))
    stream = builder.stream("in")
    stream.process(Meeting, "seen")
    told = [repr(thing) for thing in (builder, stream, stream.group_by_key(), stream.to_table(), stream.split())]
    settings = {"processing_exception_handler": LogAndContinue("dead"), "application_id": "app"}
    with TopologyTestDriver(builder, settings, topics=["dead"]) as driver:
        driver.create_input_topic("in", value=serdes.BYTES).pipe(None, b"")
        (letter,) = driver.create_output_topic("dead").read_records()
        told += [repr(driver), *map(repr, met[-1])]
    assert dict(letter.headers)[HEADER_EXCEPTION] == b"milestones.TopologyError"
    told += traceback.format_exception_only(TopologyError("no such thing"))
    config = StreamsConfig(
        application_id="app", bootstrap_servers="localhost:1", default_value_serde="milestones.serdes:LONG",
        default_timestamp_extractor="milestones:wallclock_timestamp_extractor",
    )  # fmt: skip
    assert config.default_timestamp_extractor is milestones.wallclock_timestamp_extractor
    assert "default_timestamp_extractor='milestones:wallclock_timestamp_extractor'" in repr(config)
    told.append(repr(config))
    assert len(told) > 12
    assert [text for text in told if "milestones.common" in text] == []
