"""`milestones state`: lists, verifies, exports and imports the state on a disk.

*Guarantees*: `show` and `verify` change nothing. `export` and `import` lose no data, even if they are interrupted: see
`m6_state_manager/conversion/layouts.py`.
*Assumes*: no instance uses the state directory. Otherwise the lock of the directory refuses the command.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import rich_click as click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from milestones.cli.console import OK, err, out, verbose_option
from milestones.cli.loading import load_config
from milestones.cli.settings import config_options
from milestones.common.errors import StateError
from milestones.workers.settings import state_directories

if TYPE_CHECKING:
    from milestones.common.state.directory import StateDirectory
    from milestones.common.state.engine import Engines
    from milestones.m6_state_manager.reading import StoreOnDisk


class OnDisk(NamedTuple):
    """The state of one application on this disk, opened."""

    directory: StateDirectory
    engines: Engines
    weights: Mapping[int, int]
    """The setting `task_priorities`."""


@click.group()
@verbose_option
def state() -> None:
    """Look at the state on this disk, or change its layout.

    Before stage m6 each store of each task has a folder. From m6 on each sub-topology has a database. An instance
    converts the state when it starts. With `import` and `export` you can convert it before, or for an older release. No
    instance may use the state directory meanwhile.

    \b
    Examples:
      milestones state show words.py
      milestones state verify words.py --set state_dir=/mnt/state
      milestones state export words.py      # for an older release
    """


Command = Callable[[str, Path | None, dict[str, str]], int]


def _command(act: Callable[[OnDisk], None]) -> Command:
    """Returns a command that opens an application's state and calls `act` with it: first the state of an instance or of
    worker 1, then that of each other worker."""

    @verbose_option
    @config_options
    @click.argument("app")
    def command(app: str, file: Path | None, given: dict[str, str]) -> int:
        with closing(_opened(app, file, given)) as everything:
            for found in everything:
                act(found)
        return OK

    command.__doc__ = act.__doc__
    return command


def _opened(app: str, file: Path | None, given: dict[str, str]) -> Generator[OnDisk, None, None]:
    from milestones.common.state.directory import StateDirectory
    from milestones.common.state.engines.by_name import open_engines

    config = load_config(app, file, given)
    paths = state_directories(config.state_dir, config.application_id)
    if not paths:
        raise StateError(f"there is no state of {config.application_id} in {config.state_dir}")
    for path in paths:
        if len(paths) > 1:
            err().print(f"{path}:", highlight=False, markup=False, soft_wrap=True)
        with closing(StateDirectory(path.parent, path.name)) as directory:
            yield OnDisk(directory, open_engines(config.rocksdb_engine), config.task_priorities)


def _show(found: OnDisk) -> None:
    """List the stores on this disk, with task, layout and changelog offset."""
    out().print(_table(found, counted=False))


def _verify(found: OnDisk) -> None:
    """Read every entry of every store. If a store can't be read, an error names it, with exit code 4."""
    out().print(_table(found, counted=True))


def _export(found: OnDisk) -> None:
    """Convert the state to one folder per task and store, for stages before m6 and for older releases."""
    from milestones.m6_state_manager.conversion.all_tasks import folder_state_manager

    folder_state_manager(found.directory, found.engines, "export", weights=found.weights)
    err().print(f"{found.directory.path} is in folders now")


def _import(found: OnDisk) -> None:
    """Convert the state to one database per sub-topology, for stage m6."""
    from milestones.m6_state_manager.manager import RangeStateManager

    RangeStateManager(found.directory, found.engines, "import", weights=found.weights).release()
    err().print(f"{found.directory.path} is in databases now")


def _table(found: OnDisk, *, counted: bool) -> Table:
    """Returns a table of all stores. `counted`: read and count their entries. Raises `StateError`, which names the
    first store that can't be read."""
    from milestones.m6_state_manager.reading import on_disk

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("task", "store", "layout", "offset", *(["entries"] if counted else [])):
        table.add_column(heading, overflow="fold", justify="right" if heading in ("offset", "entries") else "left")
    for layout, store in on_disk(found.directory.path, found.engines):
        table.add_row(*_row(layout, store), *([f"{sum(1 for _ in store.entries):,}"] if counted else []))
    if not table.row_count:
        err().print(f"there are no stores in {found.directory.path}")
    return table


def _row(layout: str, store: StoreOnDisk) -> list[str]:
    return [str(store.task), store.store, layout, "" if store.offset is None else f"{store.offset:,}"]


for _name, _act in {"show": _show, "verify": _verify, "export": _export, "import": _import}.items():
    state.command(_name)(_command(_act))
