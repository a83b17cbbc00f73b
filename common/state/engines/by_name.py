"""The table of engines by name: those that the setting `rocksdb_engine` chooses from, and the engine in memory.

*Guarantees*: a database library is imported only when its engine is opened.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from milestones.common.errors import ConfigError
from milestones.common.state.engine import Engines
from milestones.common.state.engines.rocks import RocksSettings


def _rocksdict(settings: RocksSettings, read_only: bool) -> Engines:
    from milestones.common.state.engines.rocksdict_engine import RocksDictEngines

    return RocksDictEngines(settings, read_only=read_only)


def _rocksdb(settings: RocksSettings, _: bool) -> Engines:
    try:
        from milestones.common.state.engines.rocksdb_engine import RocksDbEngines
    except ImportError as error:
        reason = "needs the extra 'rocksdb' (pip install 'milestones[rocksdb]'), which exists for Python 3.11 and 3.12"
        raise ConfigError("rocksdb_engine", "rocksdb", f"{reason}: {error}") from error
    return RocksDbEngines(settings)


def _memory(_settings: RocksSettings, _: bool) -> Engines:
    from milestones.common.state.engines.memory_engine import MemoryEngines

    return MemoryEngines()


ENGINES: Mapping[str, Callable[[RocksSettings, bool], Engines]] = {
    "rocksdict": _rocksdict,
    "rocksdb": _rocksdb,
    "memory": _memory,
}

ROCKSDB_ENGINES = ("rocksdict", "rocksdb")
"""The values of the setting `rocksdb_engine`. The first one is the default."""


def open_engines(name: str, settings: RocksSettings | None = None, *, read_only: bool = False) -> Engines:
    """Make the `Engines` object of this name, whose engines share memory. A process makes one such object.

    `read_only`: nothing is written into the databases that are opened, if the library can open them so. Raises
    `ConfigError`."""
    if name not in ENGINES:
        raise ConfigError("rocksdb_engine", name, f"choose one of {', '.join(ROCKSDB_ENGINES)}")
    return ENGINES[name](settings or RocksSettings(), read_only)
