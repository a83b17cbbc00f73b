"""Options, selections and the fixtures of the compatibility suite. See README.md.

*Guarantees*: a case that takes `stage` runs once per stage asked for, one that takes `guarantee` once per guarantee;
a failure prints the seed and the command that repeats it; each run writes the matrix of cases by stage.
*Assumes*: one process runs the cases, or workers of pytest-xdist do: each has a broker, the first process the report.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import pytest

from compat_tests import ALO, EOS, GUARANTEES
from compat_tests.harness import brokers, hangs, workers
from compat_tests.harness.instance import FORKS
from compat_tests.harness.report import LOGS, Recorder, Results, command
from compat_tests.harness.world import MakeWorld, World, new_world
from compat_tests.random_topologies.campaign import Campaign
from compat_tests.spark import PYSPARK
from milestones.common.errors import ConfigError
from milestones.flags import parse_milestones, stage_name, stage_names

SELECTIONS = ("short", "full", "soak")
CASE_S = 400
"""More than the deadlines of a case's waits together: these say more than a time-out of the whole."""
REPORT = Path("report") / "compatibility"

_files = pytest.StashKey[Path]()
_notes = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("compatibility suite")
    group.addoption("--stages", default="", help="stages, or flags joined by +, with commas, or 'all'; "
                    "default: the newest")
    group.addoption("--guarantee", default="", choices=("", *GUARANTEES), help="default: both")
    group.addoption("--broker", default="auto", help="auto (default), testcontainers, process, HOST:PORT")
    group.addoption("--selection", default="short", choices=SELECTIONS, help="each includes the ones before")
    group.addoption("--older", default="", choices=("", *SELECTIONS), help="selection of all stages but the last asked "
                    "for; default: as --selection")
    group.addoption("--part", default=(1, 1), type=_part, metavar="K/N", help="of what a selection has beyond the "
                    "short one: the K-th of N parts, the same ones each time; default: all")
    group.addoption("--between", default=(1, 1), type=_part, metavar="K/N", help="of the cases on stages between the "
                    "first and the last one asked for: the K-th of N parts, the same ones each time; default: all")
    group.addoption("--until", type=float, default=None, metavar="SECONDS", help="what hasn't begun then, in seconds "
                    "since 1970, is left out, and told, but for the last stage's short selection; default: all runs")
    group.addoption("--fresh", action="store_true", help="start each instance as a new interpreter; default: as a "
                    "fork of one that has imported the runtime")
    group.addoption("--seed", type=int, default=None, help="of everything random; default: another one each time")
    group.addoption("--soak-minutes", type=float, default=60.0, help="how long each soak case goes on; default: 60")
    group.addoption("--report", type=Path, default=None, help=f"folder of the matrix; default: {REPORT}")


def _part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text}: K/N, with K from 1 to N")
    return int(part), int(parts)


def pytest_configure(config: pytest.Config) -> None:
    hangs.register(config)
    for selection in SELECTIONS[1:]:
        config.addinivalue_line("markers", f"{selection}: runs only with --selection {selection} or longer")
    config.addinivalue_line("markers", "short_under(guarantee): the short selection runs it under this one only")
    config.addinivalue_line("markers", "last_stage: of the stages asked for it runs on the last one only")
    config.addinivalue_line("markers", "broker_faults: kills or pauses the broker; not on one of yours")
    FORKS.fresh = FORKS.fresh or config.option.fresh
    if (given := workers.handed(config)) is None:
        _lead(config)
    else:
        config.option.seed, config.option.broker, config.stash[_files] = given
        workers.mind_interrupts_in_cases_only()


def _lead(config: pytest.Config) -> None:
    """Decide for all workers, and record what they did; without workers, for this process."""
    option = config.option
    if option.seed is None:
        option.seed = random.randrange(1_000_000)
    option.broker, note = brokers.resolve(option.broker)
    workers.send_one_by_one(config)
    config.stash[_notes] = [note] if note else []
    config.stash[_files] = Path(tempfile.mkdtemp(prefix="milestones-report-"))
    config.add_cleanup(lambda: shutil.rmtree(config.stash[_files], ignore_errors=True))
    results = Results(option.seed, option.broker, workers.count(config))
    folder = option.report or config.rootpath / REPORT
    config.pluginmanager.register(Recorder(results, option, folder, config.stash[_files]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: workers.Node) -> None:
    """What the worker would otherwise choose for itself."""
    config: pytest.Config = node.config  # type: ignore[attr-defined]
    workers.hand_over(node, workers.Handed(config.option.seed, config.option.broker, config.stash[_files]))


def pytest_report_header(config: pytest.Config) -> list[str]:
    option = config.option
    chosen = f"stages {','.join(stages(config))}, guarantee {option.guarantee or 'both'}, selection {option.selection}"
    chosen += f" ({option.older} before the last stage)" if option.older else ""
    part, parts = option.between
    chosen += f" (part {part} of {parts} between the first and the last stage)" if parts > 1 else ""
    first = f"compatibility suite: {chosen}, broker {option.broker}, seed {option.seed}"
    lines = [first, *config.stash.get(_notes, [])]
    if count := workers.count(config):
        share = "each with a broker of its own" if brokers.is_own(option.broker) else "all on this broker"
        lines.append(f"parallel workers: {count}, {share}")
    if not PYSPARK:
        lines.append("cases on Spark: left out, PySpark isn't installed here (`tox -e spark` has it)")
    return lines


def stages(config: pytest.Config) -> list[str]:
    """The stages asked for, or other legal sets of flags; an unknown one is a usage error."""
    asked = config.option.stages
    if asked in ("", "all"):
        return list(stage_names() if asked else stage_names()[-1:])
    try:
        return [stage_name(parse_milestones(stage)) for stage in asked.split(",")]
    except ConfigError as error:
        raise pytest.UsageError(f"--stages {asked}: {error.reason}; there are {', '.join(stage_names())}") from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stage" in metafunc.fixturenames:
        asked = stages(metafunc.config)
        metafunc.parametrize("stage", asked[-1:] if metafunc.definition.get_closest_marker("last_stage") else asked)
    if "guarantee" in metafunc.fixturenames:
        only = metafunc.config.option.guarantee
        metafunc.parametrize("guarantee", [only] if only else GUARANTEES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(CASE_S))
    asked = stages(config)
    older, between = frozenset(asked[:-1]), frozenset(asked[1:-1])
    dropped = [item for item in items if not (_included(item, older) and _is_in_turn(item, between))]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]
    if workers.handed(config) is not None:
        items[:] = workers.longest_first(items)
    if config.option.until is not None:
        items.sort(key=lambda item: _urgency(item, asked))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.option.until
    if until is not None and time.time() > until and _urgency(item, stages(item.config)) > 0:
        pytest.skip("left out, as this run has taken long enough (--until)")


def _urgency(item: pytest.Item, asked: list[str]) -> int:
    """The short selection of the last stage, then of the first one, then what is in turn."""
    stage = _params(item).get("stage")
    if stage in asked[1:-1] or _begins_with(item) > 0:
        return 2
    return int(stage in asked[:-1])


def _included(item: pytest.Item, older: frozenset[str]) -> bool:
    """Whether the selection of the item's stage has it; `older`: all stages but the last."""
    option, begins_with = item.config.option, _begins_with(item)
    selection = (_params(item).get("stage") in older and option.older) or option.selection
    mine = begins_with == 0 or _is_of_part(item, option.part)
    return mine and begins_with <= SELECTIONS.index(selection)


def _begins_with(item: pytest.Item) -> int:
    """The shortest selection that has the item, by its place in `SELECTIONS`."""
    marks = [SELECTIONS.index(longer) for longer in SELECTIONS[1:] if item.get_closest_marker(longer)]
    only = item.get_closest_marker("short_under")
    if marks or only is None or item.config.option.guarantee:
        return max(marks, default=0)
    return int(_params(item)["guarantee"] != only.args[0])


def _params(item: pytest.Item) -> dict[str, str]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _is_in_turn(item: pytest.Item, between: frozenset[str]) -> bool:
    return _params(item).get("stage") not in between or _is_of_part(item, item.config.option.between)


def _is_of_part(item: pytest.Item, of: tuple[int, int]) -> bool:
    """All variants of a case are of the same one."""
    part, parts = of
    return crc32(item.nodeid.partition("[")[0].encode()) % parts == part - 1


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """The session's Kafka; each worker is a session."""
    with brokers.running(request.config.option.broker, tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def make_world(
    request: pytest.FixtureRequest, broker: brokers.Broker, stage: str, tmp_path: Path
) -> Iterator[MakeWorld]:
    """Makes the case's world."""
    option = request.config.option
    with ExitStack() as opened:

        def make(guarantee: str, properties: Mapping[str, str] | None = None) -> World:
            own = broker
            if not broker.has_faults and (properties or request.node.get_closest_marker("broker_faults")):
                pytest.skip("a broker of yours is neither killed nor paused, and keeps its settings")
            if properties:
                own = opened.enter_context(brokers.running(option.broker, tmp_path / "broker", properties))
            made = new_world(own, request.node.name, stage, guarantee, option.seed, tmp_path)
            world: World = opened.enter_context(made)
            request.node.world = world
            return world

        yield make


@pytest.fixture
def world(make_world: MakeWorld, guarantee: str) -> World:
    """A world for a case that runs under both guarantees."""
    return make_world(guarantee)


@pytest.fixture
def plain_world(make_world: MakeWorld) -> World:
    """A world for a case that has nothing to do with guarantees: at least once."""
    return make_world(ALO)


@pytest.fixture
def exact_world(make_world: MakeWorld) -> World:
    """A world for a case that is about transactions: exactly once."""
    return make_world(EOS)


@pytest.fixture
def campaign(request: pytest.FixtureRequest, broker: brokers.Broker, stage: str, tmp_path: Path) -> Campaign:
    """For random cases on this stage."""
    return Campaign(broker, request.config.option.broker, stage, tmp_path)


@pytest.fixture
def report_file(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Where to write a file that is to lie in the report's folder when the run has ended."""
    return lambda name: request.config.stash[_files] / name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with workers.in_a_case(item.config):
        try:
            return (yield)
        finally:
            vars(item).pop("world", None)  # pytest keeps items until its end; a world's rows are for its case only


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Failures get the seed, the command and the instances' logs."""
    result = yield
    world: World | None = getattr(item, "world", None)
    if world is not None and result.failed:
        result.sections.append(("repeat it with", command(item.config.option, item.nodeid)))
        for instance in world.instances:
            result.sections.append((f"instance {instance.name}", instance.log_tail()))
        result.user_properties.append((LOGS, [str(instance.log_file) for instance in world.instances]))
    return result
