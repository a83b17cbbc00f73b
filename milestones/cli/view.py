"""Shows an `ApplicationStatus` on a terminal.

*Guarantees*: the functions change nothing. The view has a row for each task, or for each thread.
*Assumes*: the library rich is installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from milestones.cli.application_status import (
    ACCOUNTS,
    ACTIVE,
    CLIENT_QUEUES,
    ENDED,
    OTHER,
    RESIDENT,
    RESTORING,
    ApplicationStatus,
    CallRow,
    DatabaseRow,
    GlobalRow,
    InstanceView,
    ProcessingRow,
    StoreRow,
    TaskRow,
    Thread,
)
from milestones.common.clock import duration

ROLES = {ACTIVE: "green", RESTORING: "yellow", ENDED: "red", "warm-up": "magenta", "standby": "cyan", "promised": "dim"}
"""The roles with their colours, in the order in which the view counts them."""
STATES = {"Stable": "green", "RUNNING": "green", "ERROR": "red", "DEAD": "red", "Empty": "red", "Dead": "red"}
UNKNOWN = "–"
WRITES_WAIT = {1: "disk full", 2: "being mended"}
"""The text for each value of the metric `writes_wait`: the reason why writes wait."""
BAR_WIDTH = 10
MOST_REASONS = 3
LONG_MS = 1_000
"""The age from which a commit is shown."""
FOLLOWS = "REBALANCE_IN_PROGRESS"
"""The beginning of the reason of a member that joined only because others had asked for a rebalance."""
HEADINGS = {
    "instance": "left", "worker": "left", "thread": "left", "task": "left", "role": "left", "input lag": "right",
    "state": "left",
}  # fmt: skip
"""The columns. The column of workers is shown if an instance is a worker."""


def view(shown: ApplicationStatus, now_ms: int, *, tasks: bool) -> RenderableType:
    """Returns the whole view. `tasks`: True for a row per task, False for a row per thread. `now_ms`: the time, in ms
    since the epoch."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    workers = any(instance.worker is not None for instance in shown.instances)
    for heading, justify in HEADINGS.items():
        if heading == "worker" and not workers:
            continue
        table.add_column(heading if tasks or heading != "task" else "tasks", justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for number, instance in enumerate(shown.instances):
        if number:
            table.add_row()
        _add(table, instance, tasks, workers=workers)
    body: list[RenderableType] = ["", table] if shown.instances else []
    return Group(*_header(shown, now_ms), *body, *_footer(shown))


def height(shown: ApplicationStatus) -> int:
    """Returns the number of lines of the view with a row for each task."""
    rows = sum(max(3, _height(instance)) + 1 for instance in shown.instances)
    calls = sum(len(instance.calls) for instance in shown.instances)
    return rows + 9 + len(shown.notes) + sum(row.error is not None for row in shown.rows) + calls


def _height(instance: InstanceView) -> int:
    threads = sum(max(1, _lines(thread)) + len(thread.processing) for thread in instance.threads)
    return threads + (instance.globals is not None) + len(instance.databases)


def _lines(thread: Thread) -> int:
    return sum(1 + len(_apart(row)) for row in thread.tasks)


def _header(shown: ApplicationStatus, now_ms: int) -> Iterator[RenderableType]:
    title = Text.assemble((shown.application, "bold"), "  ", (shown.state, STATES.get(shown.state, "yellow")))
    if shown.generation is not None:
        title.append(f"  generation {shown.generation}")
    yield Rule(title, align="left", style="dim")
    if not shown.instances:
        return
    threads = sum(len(instance.threads) for instance in shown.instances)
    tasks = {row.task for row in shown.rows}
    what = [_number(len(shown.instances), "instance"), _number(threads, "thread"), _number(len(tasks), "task")]
    counts = Text(", ").join(_counted(shown.rows))
    lag = _sum(row.input_lag for row in shown.rows)
    yield Text(", ".join(what)) + (Text(": ") + counts if counts else Text()) + Text(f"; input lag {lag}")
    if shown.rebalanced_ms is not None:
        asked = [one for one in shown.reasons if not one[0].startswith(FOLLOWS)]
        reasons = "; ".join(f"{reason} ({count})" if count > 1 else reason for reason, count in asked[:MOST_REASONS])
        more = f"; {len(asked) - MOST_REASONS} more" if len(asked) > MOST_REASONS else ""
        ago = duration(max(0, now_ms - shown.rebalanced_ms) / 1000)
        yield Text(f"rebalanced {ago} ago: {reasons or 'a member left, or its session expired'}{more}", "dim")
    yield from _memory([instance.memory for instance in shown.instances])


def _memory(known: Sequence[Mapping[str, int] | None]) -> Iterator[Text]:
    """Yields one line with the memory of all instances that report it, the largest accounts first. Accounts below half
    a MB are left out."""
    told = [memory for memory in known if memory is not None]
    if told:
        sums = Counter[str]()
        for memory in told:
            sums.update(memory)
        whose = "" if len(told) == len(known) else f" ({len(told)} of {len(known)})"
        largest = sorted((*ACCOUNTS, OTHER), key=lambda name: -sums[name])
        shown = ((name.replace("_", " "), f"{sums[name] / 1e6:,.0f}") for name in largest)
        used = ", ".join(f"{name} {size}" for name, size in shown if size not in {"0", "-0"})
        line = f"memory {sums[RESIDENT] / 1e6:,.0f} MB{whose}, client queues ≤ {sums[CLIENT_QUEUES] / 1e6:,.0f}: {used}"
        yield Text(line, "dim", no_wrap=True, overflow="ellipsis")


def memory_view(shown: ApplicationStatus) -> RenderableType:
    """Returns a table of the memory of each instance, in MB: a row for each account, with its limit if it has one."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("memory, MB", no_wrap=True)
    for instance in shown.instances:
        table.add_column(instance.name, justify="right", no_wrap=True)
    for name in (*ACCOUNTS, OTHER, RESIDENT):
        cells = (_megabytes(name, instance) for instance in shown.instances)
        table.add_row(name.replace("_", " "), *cells, style="bold" if name == RESIDENT else None)
    return Group(table, *_footer(shown))


def _megabytes(name: str, instance: InstanceView) -> str:
    """Returns the text for an account, such as `1.5 of 64`."""
    if instance.memory is None or name not in instance.memory:
        return UNKNOWN
    limit = (instance.memory_limits or {}).get(name)
    return f"{instance.memory[name] / 1e6:,.1f}{'' if limit is None else f' of {limit / 1e6:,.0f}'}"


def _footer(shown: ApplicationStatus) -> Iterator[RenderableType]:
    unseen: dict[str, list[str]] = {}
    for instance in shown.instances:
        if instance.unseen is not None:
            unseen.setdefault(instance.unseen, []).append(instance.name)
    notes = [f"{', '.join(names)}: {why}; states and restore progress aren't known" for why, names in unseen.items()]
    refused = {thread.error for instance in shown.instances for thread in instance.threads if thread.error}
    failing = [row for row in shown.rows if row.error is not None]
    ended = [f"task {row.task} has ended: {row.error}" for row in failing if row.role == ENDED]
    notes += [f"task {row.task} fails: {row.error}" for row in failing if row.role != ENDED]
    notes += [_call(call) for instance in shown.instances for call in instance.calls]
    notes += [*(f"refused: {error}" for error in sorted(refused)), *shown.notes]
    if ended or notes:
        yield ""
    yield from (Text(note, "red") for note in ended)
    yield from (Text(note, "yellow") for note in notes)


def _call(call: CallRow) -> str:
    return f"{call.thread} is in {call.function}, for {duration(call.seconds)}"


def _add(table: Table, instance: InstanceView, tasks: bool, *, workers: bool) -> None:
    """Add the rows of an instance. The lines about the instance itself are in the first column, next to its threads.
    `workers`: True if there is a column of workers."""
    rows: list[list[RenderableType]] = []
    for thread in instance.threads:
        rows += _task_rows(thread) if tasks else _thread_row(thread)
        rows += [_processing_row(one) for one in thread.processing]
    if instance.globals is not None:
        rows.append(_global_row(instance.globals))
    rows += [_database_row(number, one, instance.restoring(number)) for number, one in instance.databases.items()]
    own = list(_own(instance))
    for number in range(max(len(rows), len(own))):
        beside = rows[number] if number < len(rows) else []
        worker = [(instance.worker or "") if number == 0 else ""] if workers else []
        table.add_row(own[number] if number < len(own) else "", *worker, *beside)


def _own(instance: InstanceView) -> Iterator[Text]:
    yield Text(instance.name, "bold")
    state = [(f"{instance.state} ", STATES.get(instance.state, "yellow"))] if instance.state else []
    yield Text.assemble(*state, (instance.stage, "dim"))
    yield Text(" ".join(filter(None, [instance.host, instance.version])), "dim")
    if instance.tags:
        yield Text(" ".join(f"{key}={text}" for key, text in sorted(instance.tags.items())), "dim")


def _global_row(row: GlobalRow) -> list[RenderableType]:
    if row.left:
        return [Text("global stores"), "", Text("restoring", ROLES[RESTORING]), "",
                _bar(row.progress, f"{_records(row.left)} left")]  # fmt: skip
    behind = "caught up" if row.lag == 0 else f"{_records(row.lag)} behind"
    return [Text("global stores", "dim"), "", "", "", Text(behind, "dim")]


def _database_row(number: int, row: DatabaseRow, restoring: Sequence[int]) -> list[RenderableType]:
    unsynced = f", unsynced for {row.unsynced_ms / 1000:,.1f} s" if row.unsynced_ms else ""
    restores = f", {_number(len(restoring), 'task')} with {_records(sum(restoring))} to restore" if restoring else ""
    says = Text(f"{row.size_bytes / 1e6:,.1f} MB in {_number(row.files, 'file')}{unsynced}{restores}", "dim")
    return [Text(f"state {number}", "dim"), "", Text(WRITES_WAIT.get(row.writes_wait, ""), "red"), "", says]


def _label(thread: Thread) -> Text:
    label = Text(thread.label)
    state = thread.state
    if state is not None and state != "RUNNING":
        label.append(f" {state.lower().removeprefix('partitions_')}", STATES.get(state, "yellow"))
    if thread.leads:
        label.append(" leads", "dim")
    if thread.commit_age_ms is not None and thread.commit_age_ms >= LONG_MS:
        label.append(f" commits for {duration(thread.commit_age_ms / 1000)}", "yellow")
    return label


def _processing_row(thread: ProcessingRow) -> list[RenderableType]:
    says = f"{thread.state.lower()}, busy {100 * thread.busy:.0f} %, {thread.records:,} records"
    return [Text(thread.label, "dim"), "", "", "", Text(says, "dim")]


def _task_rows(thread: Thread) -> Iterator[list[RenderableType]]:
    if not thread.tasks:
        yield [_label(thread), Text(UNKNOWN, "dim"), Text("refused" if thread.error else "", "red")]
    for number, row in enumerate(thread.tasks):
        role = Text(row.role, ROLES[row.role])
        lag = _records(row.input_lag) if row.role in (ACTIVE, RESTORING, ENDED) else ""
        yield [_label(thread) if number == 0 else "", row.task, role, lag, _state(row)]
        for store in _apart(row):
            yield ["", "", "", "", _bar(store.progress, f"{store.store}: {_left(store.left, [store])}")]


def _apart(row: TaskRow) -> tuple[StoreRow, ...]:
    """Returns the stores that get rows of their own. A single store gets none, because its row would repeat the
    task's."""
    return row.stores if len(row.stores) > 1 else ()


def _state(row: TaskRow) -> RenderableType:
    if row.role == ENDED:
        return Text(f"ended: {row.error_class}", "red")
    if row.role == RESTORING:
        left = _left(row.behind, row.stores)
        return left if row.progress is None else _bar(row.progress, left)
    if row.role in ("standby", "warm-up"):
        if row.behind is None:
            return Text(UNKNOWN, "dim")
        return Text("caught up", "dim") if row.behind == 0 else f"{_records(row.behind)} behind"
    if row.error is not None:
        return Text(f"fails, tried for {duration(row.seconds_left or 0)} more", "red")
    return Text("waits for its owner", "dim") if row.role == "promised" else ""


def _bar(progress: float, text: str) -> RenderableType:
    bar = Table.grid(padding=(0, 1))
    bar.add_row(ProgressBar(100, 100 * progress, BAR_WIDTH), f"{100 * progress:.0f} %, {text}")
    return bar


def _left(records: int | None, stores: Collection[StoreRow]) -> str:
    """Returns a text about the records still to restore, with the bytes and the time of the slowest store if they are
    known."""
    size = f" ({sum(store.bytes_left for store in stores) / 1e6:,.1f} MB)" if stores else ""
    times = [store.seconds_left for store in stores if store.seconds_left is not None]
    rest = f", {duration(max(times))} to go" if times and len(times) == len(stores) else ""
    return f"{_records(records)} left{size}{rest}"


def _thread_row(thread: Thread) -> Iterator[list[RenderableType]]:
    of = {role: [row for row in thread.tasks if row.role == role] for role in ROLES}
    said = [f"{_sum(row.behind for row in of[RESTORING])} to restore"] if of[RESTORING] else []
    failing = sum(row.error is not None for row in of[ACTIVE])
    said += [f"{failing} failing"] if failing else []
    copies = of["standby"] + of["warm-up"]
    if copies:
        behind = _sum(row.behind for row in copies)
        said.append("standbys caught up" if behind == "0" else f"standbys {behind} behind")
    lag = _sum(row.input_lag for row in of[ACTIVE] + of[RESTORING] + of[ENDED])
    counts = Text(", ").join(_counted(thread.tasks))
    yield [_label(thread), str(len(thread.tasks)), counts, lag, ", ".join(said)]


def _counted(rows: Iterable[TaskRow]) -> list[Text]:
    found = Counter(row.role for row in rows)
    return [Text(f"{found[role]:,} {role}", color) for role, color in ROLES.items() if found[role]]


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _records(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def _sum(counts: Iterable[int | None]) -> str:
    """Returns the sum of the known counts, or a dash if none is known."""
    known = [count for count in counts if count is not None]
    return f"{sum(known):,}" if known else UNKNOWN
