"""The application on its way to the processes that run Spark's tasks.

*Guarantees*: the user's code arrives. To processes on this machine, which look for modules where the driver does,
functions travel by their module's name; those of the main program, and of modules that other processes wouldn't find,
as code. To other machines all of the user's modules travel as code. An object that can't travel is an error with its
name.
*Assumes*: packages are installed alike on all machines, this one among them.
"""

from __future__ import annotations

import copyreg
import struct
import sys
import sysconfig
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from milestones.common.config import StreamsConfig
from milestones.common.errors import TopologyError
from milestones.common.topology import Topology

# What serdes are often made of, and no pickle knows.
copyreg.pickle(struct.Struct, lambda layout: (struct.Struct, (layout.format,)))


@dataclass(frozen=True)
class Payload:
    """What every task of a run needs. `path`: where the driver looks for modules, absolute. `history`: URL of an
    archive of what Kafka no longer has of the inputs, None for none."""

    topology: bytes
    path: tuple[str, ...]
    history: str | None = None


def pack(topology: Topology, config: StreamsConfig, *, near: bool) -> Payload:
    """`near`: the processes are on this machine. `TopologyError` names what can't be sent to another process."""
    lost = _is_lost if near else _is_users
    modules = [module for name, module in list(sys.modules.items()) if lost(name, module)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        packed = cloudpickle.dumps((topology, config))  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever the user's objects raise
        raise TopologyError(
            f"the topology, or a setting, can't be sent to Spark's processes: {error}; make such objects (connections, "
            "locks, open files) in Processor.init or when they are first used, instead of capturing them"
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return Payload(packed, tuple(str(Path(entry).resolve()) for entry in sys.path))


def _is_lost(name: str, module: ModuleType) -> bool:
    """A module made from a file, under a name by which other processes wouldn't find it."""
    if not _has_file(name, module):
        return False
    found = PathFinder.find_spec(name)
    return found is None or found.origin != module.__file__


def _is_users(name: str, module: ModuleType) -> bool:
    """A module, or a package with all below it, that isn't installed."""
    return _has_file(name, module) and not any(Path(module.__file__ or "").is_relative_to(at) for at in _INSTALLED)


def _has_file(name: str, module: ModuleType) -> bool:
    return name not in _NOT_ASKED and "." not in name and getattr(module, "__file__", None) is not None


_INSTALLED = {Path(path).resolve() for path in sysconfig.get_paths().values()}
_NOT_ASKED = frozenset({"__main__", "milestones"})


def unpack(payload: Payload) -> tuple[Topology, StreamsConfig]:
    """In the process of a Spark task."""
    sys.path.extend(entry for entry in payload.path if entry not in sys.path)
    topology, config = cloudpickle.loads(payload.topology)
    return topology, config
