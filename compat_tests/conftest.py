"""Options, selections and the fixtures of the compatibility suite. See README.md.

*Guarantees*: a case that takes `stage` runs once per stage asked for, one that takes `guarantee` once per guarantee;
a failure prints the seed and the command that repeats it; each run writes the matrix of cases by stage.
*Assumes*: one process runs the suite (the broker and the report are the session's).
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from compat_tests.harness import brokers, report
from compat_tests.harness.world import World, new_world
from milestones.flags import STAGES

GUARANTEES = ("at_least_once", "exactly_once_v2")
SELECTIONS = ("short", "full", "soak")
CASE_S = 400
"""More than the deadlines of a case's waits together: these say more than a time-out of the whole."""
IN_MATRIX = ("cases", "random_topologies", "soak")
"""Folders whose cases are in the matrix; the planted faults aren't."""
REPORT = Path("report") / "compatibility"

_results = pytest.StashKey[report.Results]()
_broker_note = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("compatibility suite")
    group.addoption("--stages", default="", help="comma-separated, or 'all'; default: the newest")
    group.addoption("--guarantee", default="", choices=("", *GUARANTEES), help="default: both")
    group.addoption("--broker", default="auto", help="auto (default), testcontainers, process, HOST:PORT")
    group.addoption("--selection", default="short", choices=SELECTIONS, help="each includes the ones before")
    group.addoption("--seed", type=int, default=None, help="of everything random; default: another one each time")
    group.addoption("--soak-minutes", type=float, default=60.0, help="how long each soak case goes on; default: 60")
    group.addoption("--report", type=Path, default=None, help=f"folder of the matrix; default: {REPORT}")


def pytest_configure(config: pytest.Config) -> None:
    for selection in SELECTIONS[1:]:
        config.addinivalue_line("markers", f"{selection}: runs only with --selection {selection} or longer")
    config.addinivalue_line("markers", "short_under(guarantee): the short selection runs it under this one only")
    config.addinivalue_line("markers", "broker_faults: kills or pauses the broker; not on one of yours")
    if config.option.seed is None:
        config.option.seed = random.randrange(1_000_000)
    choice, note = brokers.resolve(config.option.broker)
    config.option.broker, config.stash[_broker_note] = choice, note
    config.stash[_results] = report.Results(seed=config.option.seed, broker=choice)


def pytest_report_header(config: pytest.Config) -> list[str]:
    option = config.option
    chosen = f"stages {','.join(stages(config))}, guarantee {option.guarantee or 'both'}, selection {option.selection}"
    lines = [f"compatibility suite: {chosen}, broker {option.broker}, seed {option.seed}"]
    return [*lines, note] if (note := config.stash[_broker_note]) else lines


def stages(config: pytest.Config) -> list[str]:
    """The stages asked for; an unknown one is a usage error."""
    built = [stage.name for stage in STAGES if stage.built]
    asked = config.option.stages
    chosen = built if asked == "all" else asked.split(",") if asked else built[-1:]
    unknown = [stage for stage in chosen if stage not in built]
    if unknown:
        raise pytest.UsageError(f"--stages {asked}: {', '.join(unknown)} isn't built; there are {', '.join(built)}")
    return chosen


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stage" in metafunc.fixturenames:
        metafunc.parametrize("stage", stages(metafunc.config))
    if "guarantee" in metafunc.fixturenames:
        only = metafunc.config.option.guarantee
        metafunc.parametrize("guarantee", [only] if only else GUARANTEES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(CASE_S))
    included = SELECTIONS[: SELECTIONS.index(config.option.selection) + 1]
    left_out = set(SELECTIONS) - set(included)
    dropped = [
        item
        for item in items
        if any(item.get_closest_marker(name) for name in left_out)
        or (config.option.selection == "short" and not config.option.guarantee and _other_guarantee(item))
    ]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


def _other_guarantee(item: pytest.Item) -> bool:
    """Whether the short selection runs this case under the other guarantee only."""
    mark = item.get_closest_marker("short_under")
    return mark is not None and item.callspec.params["guarantee"] != mark.args[0]  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """The session's Kafka."""
    with brokers.running(request.config.option.broker, tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def world(
    request: pytest.FixtureRequest, broker: brokers.Broker, stage: str, guarantee: str, tmp_path: Path
) -> Iterator[World]:
    """A world for a case that runs under both guarantees."""
    yield from _world(request, broker, stage, guarantee, tmp_path)


@pytest.fixture
def plain_world(
    request: pytest.FixtureRequest, broker: brokers.Broker, stage: str, tmp_path: Path
) -> Iterator[World]:
    """A world for a case that has nothing to do with guarantees: at least once."""
    yield from _world(request, broker, stage, GUARANTEES[0], tmp_path)


def _world(
    request: pytest.FixtureRequest, broker: brokers.Broker, stage: str, guarantee: str, directory: Path
) -> Iterator[World]:
    if request.node.get_closest_marker("broker_faults") and not broker.has_faults:
        pytest.skip("a broker of yours is neither killed nor paused")
    name, seed = request.node.name, request.config.option.seed
    with new_world(broker, name, stage, guarantee, seed, directory) as world:
        request.node.world = world
        yield world


@pytest.fixture
def report_file(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Path]:
    """Where to write a file that is to lie in the report's folder when the run has ended."""

    def named(name: str) -> Path:
        request.config.stash[_results].files.append(tmp_path / name)
        return tmp_path / name

    return named


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Failures get the seed, the command and the instances' logs; every case a line in the matrix."""
    result = yield
    world: World | None = getattr(item, "world", None)
    results = item.config.stash[_results]
    if world is not None and result.failed:
        result.sections.append(("repeat it with", _command(item)))
        for instance in world.instances:
            result.sections.append((f"instance {instance.name}", instance.log_tail()))
    if _in_the_matrix(item):
        logs = [instance.log_file for instance in world.instances] if world is not None else []
        results.add(item.nodeid, result, _command(item), logs)
    return result


def _in_the_matrix(item: pytest.Item) -> bool:
    return "stage" in getattr(item, "fixturenames", ()) and item.path.parent.name in IN_MATRIX


def _command(item: pytest.Item) -> str:
    option = item.config.option
    parts = ["pytest", item.nodeid, "--seed", str(option.seed), "--broker", option.broker]
    parts += ["--selection", option.selection]
    parts += ["--stages", option.stages] if option.stages else []
    return shlex.join(parts)


def pytest_sessionfinish(session: pytest.Session) -> None:
    results = session.config.stash[_results]
    if results.cases:
        planned = [item.nodeid for item in session.items if _in_the_matrix(item)]
        results.write(session.config.option.report or session.config.rootpath / REPORT, planned)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    results = config.stash[_results]
    if results.written is not None:
        terminalreporter.write_line(f"matrix of cases by stage: {results.written}")
