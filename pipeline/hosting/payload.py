"""Sends the application to the processes that run Spark's tasks.

*Guarantees*: the user's code arrives. Processes on this machine import modules from the same places as the driver. So
functions are sent to them by the name of their module. Functions of the main program, and of modules that other
processes wouldn't find, are sent as code. To other machines, all of the user's modules are sent as code. If an object
can't be sent, an error names it.
*Assumes*: all machines have the same installed packages, including this one.
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

# Serdes often contain a `struct.Struct`, which can't be pickled without this.
copyreg.pickle(struct.Struct, lambda layout: (struct.Struct, (layout.format,)))


@dataclass(frozen=True)
class Payload:
    """The data that every Spark task of a run needs. `path`: the folders, as absolute paths, from which the driver
    imports modules. `history`: URL of an archive with the inputs' records that Kafka has deleted, or None.
    """

    topology: bytes
    path: tuple[str, ...]
    history: str | None = None


def pack(topology: Topology, config: StreamsConfig, *, near: bool) -> Payload:
    """Serialise the payload. `near`: True if the processes are on this machine. Raises a `TopologyError` that names an
    object that can't be sent to another process.
    """
    lost = _is_lost if near else _is_users
    modules = [module for name, module in list(sys.modules.items()) if lost(name, module)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        packed = cloudpickle.dumps((topology, config))  # type: ignore[no-untyped-call]
    except Exception as error:  # the user's objects may raise anything
        raise TopologyError(
            f"the topology, or a setting, can't be sent to Spark's processes: {error}; make such objects (connections, "
            "locks, open files) in Processor.init or when they are first used, instead of capturing them"
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return Payload(packed, tuple(str(Path(entry).resolve()) for entry in sys.path))


def _is_lost(name: str, module: ModuleType) -> bool:
    """True if a module was loaded from a file under a name by which other processes can't import it."""
    if not _has_file(name, module):
        return False
    found = PathFinder.find_spec(name)
    return found is None or found.origin != module.__file__


def _is_users(name: str, module: ModuleType) -> bool:
    """True if a module or package of the user isn't an installed one."""
    return _has_file(name, module) and not any(Path(module.__file__ or "").is_relative_to(at) for at in _INSTALLED)


def _has_file(name: str, module: ModuleType) -> bool:
    return name not in _NOT_ASKED and "." not in name and getattr(module, "__file__", None) is not None


_INSTALLED = {Path(path).resolve() for path in sysconfig.get_paths().values()}
_NOT_ASKED = frozenset({"__main__", "milestones"})


def unpack(payload: Payload) -> tuple[Topology, StreamsConfig]:
    """Deserialise the payload, in the process of a Spark task."""
    sys.path.extend(entry for entry in payload.path if entry not in sys.path)
    topology, config = cloudpickle.loads(payload.topology)
    return topology, config
