"""Every engine, one at a time: what is true of one is true of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milestones.common.state.directory import StateDirectory
from milestones.common.state.engine import Engine, Engines
from milestones.common.state.engines.by_name import ENGINES, open_engines
from milestones.common.state.engines.rocks import RocksSettings
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.testing import StepClock
from tests.common.state.owners import OWNERS

ON_DISK = tuple(name for name in ENGINES if name != "memory")


def engines_named(name: str, settings: RocksSettings | None = None) -> Engines:
    """The engines called `name`; the test is skipped where their library isn't installed."""
    if name == "rocksdb":
        pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    return open_engines(name, settings)


@pytest.fixture(params=tuple(ENGINES))
def any_engines(request: pytest.FixtureRequest) -> Engines:
    return engines_named(request.param)


@pytest.fixture(params=ON_DISK)
def disk_engines(request: pytest.FixtureRequest) -> Engines:
    return engines_named(request.param)


@pytest.fixture
def open_files(tmp_path: Path) -> Callable[[], int]:
    """Counts the test's own files that this process has open: clients of tests before may still come and go."""

    def own(descriptor: Path) -> bool:
        try:
            return descriptor.readlink().is_relative_to(tmp_path)
        except OSError:  # closed meanwhile
            return False

    return lambda: sum(own(descriptor) for descriptor in Path("/dev/fd").iterdir())


@pytest.fixture
def engine(any_engines: Engines, tmp_path: Path) -> Iterator[Engine]:
    opened = any_engines.open(tmp_path / "engine", OWNERS)
    yield opened
    opened.close()

@pytest.fixture
def local(tmp_path: Path, disk_engines: Engines) -> Iterator[LocalStateManager]:
    disk_engines.open(tmp_path / "warm-up").close()
    directory = StateDirectory(tmp_path, "words", StepClock())
    opened = LocalStateManager(directory, disk_engines, "baseline", static_id="static-1")
    yield opened
    opened.release()
