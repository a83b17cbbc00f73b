"""Finds the application that a command names.

*Guarantees*: the result is a `Topology`, or a `Streams` with its own config. A failure raises `TopologyError`, which
says what was searched and where. If the application's file itself raises a `MilestonesError`, this error is raised.
*Assumes*: a file that starts its application does so under `if __name__ == "__main__"`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from milestones.cli.settings import options_named
from milestones.common.config import StreamsConfig
from milestones.common.errors import MilestonesError, TopologyError

if TYPE_CHECKING:
    from milestones.client.streams import Streams
    from milestones.common.topology import Topology


def load(app: str) -> Topology | Streams:
    """Returns the application that `app` names as `module:attribute`, `path/file.py:attribute`, or `path/file.py`."""
    where, attribute = _split(app)
    module = _import_file(app, Path(where)) if _is_path(where) else _import_module(app, where)
    found = _attribute(app, module, attribute) if attribute else _only_candidate(app, module)
    return _as_application(app, found)


def load_streams(app: str, file: Path | None, given: dict[str, Any]) -> Streams:
    """Returns the application that `app` names, with the settings of the command line: `file` is a TOML file, and
    `given` contains single settings."""
    from milestones.client.streams import Streams

    found = load(app)
    if isinstance(found, Streams):
        if file is None and not given:
            return found
        config = found.config if file is None else found.config.over_file(file)
        return found.with_config(config.with_options(given))
    return Streams(found, load_config(None, file, given))


def load_config(app: str | None, file: Path | None, given: dict[str, Any]) -> StreamsConfig:
    """Returns the settings with which `load_streams` would run `app`. Without `app`, returns the settings of the
    command line."""
    if app is not None:
        return load_streams(app, file, given).config
    with options_named():
        return StreamsConfig.of_options(file, given)


def _split(app: str) -> tuple[str, str]:
    where, colon, attribute = app.rpartition(":")
    if not colon or os.sep in attribute or "/" in attribute:
        return app, ""
    return where, attribute


def _is_path(where: str) -> bool:
    return where.endswith(".py") or os.sep in where or "/" in where or Path(where).is_file()


def _import_file(app: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise TopologyError(f"APP {app!r}: there is no file {path}; give module:attribute or path/file.py:attribute")
    stem = path.stem.replace("-", "_")
    name = f"_app_{stem}" if stem in sys.modules else stem  # the file may have the name of an imported module
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TopologyError(f"APP {app!r}: {path} isn't a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[name] = module
    _run(app, lambda: spec.loader.exec_module(module))
    return module


def _import_module(app: str, name: str) -> ModuleType:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise TopologyError(f"APP {app!r}: give module:attribute or path/file.py:attribute")
    sys.path.insert(0, str(Path.cwd()))
    try:
        known = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        known = False
    if not known:
        raise TopologyError(f"APP {app!r}: there is no module {name!r} here or on Python's path")
    modules: list[ModuleType] = []
    _run(app, lambda: modules.append(importlib.import_module(name)))
    return modules[0]


def _run(app: str, execute: Any) -> Any:
    """Run the user's code. A `MilestonesError` of this code is raised as it is. Any other error is raised as a
    `TopologyError` with the place of the error."""
    try:
        return execute()
    except MilestonesError:
        raise
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        file, line, said = place.filename, place.lineno, str(error)
        if isinstance(error, SyntaxError) and error.filename:
            file, line, said = error.filename, error.lineno, error.msg
        raise TopologyError(f"APP {app!r}: {file}, line {line}, raised {type(error).__name__}: {said}") from error


def _attribute(app: str, module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            kinds = _candidates(module)
            hint = f"; it has {', '.join(kinds)}" if kinds else ""
            raise TopologyError(f"APP {app!r}: {module.__name__} has no {path!r}{hint}")
        found = getattr(found, name)
    return found


def _candidates(module: ModuleType) -> dict[str, Any]:
    kinds = _kinds()
    return {n: v for n, v in vars(module).items() if isinstance(v, kinds) and not n.startswith("_")}


def _only_candidate(app: str, module: ModuleType) -> Any:
    """Returns the only application in the module. If the module has a `Streams` and its `Topology`, returns the
    `Streams`."""
    candidates = _candidates(module)
    for kind in _kinds():
        of_kind = {name: value for name, value in candidates.items() if isinstance(value, kind)}
        if len(of_kind) == 1:
            return next(iter(of_kind.values()))
        if of_kind:
            raise TopologyError(f"APP {app!r}: which of {', '.join(of_kind)}? Add it: {app}:{next(iter(of_kind))}")
    raise TopologyError(
        f"APP {app!r}: no Streams, Topology or StreamsBuilder at the top of the module; "
        f"if a function makes one, name it: {app}:function"
    )


def _kinds() -> tuple[type, ...]:
    from milestones.client.streams import Streams
    from milestones.common.topology import StreamsBuilder, Topology

    return Streams, Topology, StreamsBuilder


def _as_application(app: str, found: Any) -> Topology | Streams:
    streams, topology, builder = _kinds()
    if callable(found) and not isinstance(found, (streams, topology, builder)):
        found = _call(app, found)
    if isinstance(found, builder):
        return _run(app, found.build)  # type: ignore[attr-defined, no-any-return]
    if isinstance(found, (streams, topology)):
        return found  # type: ignore[return-value]
    raise TopologyError(
        f"APP {app!r} is a {type(found).__name__}; it must be a Topology, a StreamsBuilder, a Streams, "
        "or a function without arguments that returns one"
    )


def _call(app: str, function: Any) -> Any:
    parameters = inspect.signature(function).parameters.values()
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [one.name for one in parameters if one.default is one.empty and one.kind not in open_ended]
    if required:
        raise TopologyError(f"APP {app!r} needs arguments ({', '.join(required)}); it must be callable without any")
    return _run(app, function)
