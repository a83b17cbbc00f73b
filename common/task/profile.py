"""`Profile` measures how long nodes, serdes and stores take. Each of their calls is wrapped when a task's program is
compiled.

Every node, deserialiser and store is called through a function that measures the time and stores it by caller. So a
node's own time is the time of its calls without the calls that it made to other nodes and stores.

*Guarantees*: a task without a profile calls nothing of this module. Times are those of the wall clock. Each call
counts, even if it raises an error. For some turns of a task, chosen at random, the CPU time of the thread is measured,
too.
*Assumes*: one thread at a time runs a task. Another thread may commit the task, and any thread may read the profile.
*Why this way*: a sampler in this process would show wrong nodes. The sampler gets the interpreter's lock only when
another thread releases the lock. So the sampler finds the node that waits, never the node that computed before.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from milestones.common.records import TaskId
from milestones.common.topology.compiled import CompiledSource, Observe, Program, compile_program
from milestones.common.topology.nodes import SourceNode
from milestones.common.topology.program import Process, PunctuationType, TaskServices

if TYPE_CHECKING:
    from milestones.common.task.commits import TaskCommits
    from milestones.common.task.runner import Runner
    from milestones.common.topology.nodes import SubTopology

CPU_ONE_IN = 64
"""CPU time is measured in one of this number of turns of a task, as measuring it is several times as slow as measuring
wall-clock time."""

NONE, UNKNOWN = -1, -2
"""Numbers of callers in a stopwatch: NONE is a caller that isn't timed, UNKNOWN one that isn't known yet."""

RECORDS, PUNCTUATIONS, FLUSHES, FREEZES, WRITES = "records", "punctuations", "caches", "commit", "writes"

Kind = Literal["work", "node", "punctuation", "serde", "store"]


class Part(NamedTuple):
    """A thing that takes time: a node, a node's punctuation, a source's deserialiser, a method of a store, or a task's
    work around them."""

    kind: Kind
    name: str
    call: str = ""


class Spent(NamedTuple):
    """The number of calls, and their time (ns), including everything that they called. For the calls whose CPU time was
    measured: their time, and their CPU time."""

    calls: int = 0
    ns: int = 0
    watched_ns: int = 0
    cpu_ns: int = 0

    def plus(self, other: Iterable[int]) -> Spent:
        return Spent(*map(sum, zip(self, other, strict=True)))


Edges: TypeAlias = dict[tuple[Part | None, Part], Spent]
"""The time spent, by the calling part and the called part. None stands for a caller that isn't timed."""


def one_in(number: int) -> Callable[[], bool]:
    """Return a function that returns True at its first call, and later at random, once in this number of calls."""
    left = [1]

    def choose() -> bool:
        left[0] -= 1
        if left[0]:
            return False
        left[0] = random.randint(1, 2 * number - 1)
        return True

    return choose


class Stopwatch:
    """Times the calls of one thread at a time. `caller`: the part that is running. `with_cpu`: True while CPU time is
    measured."""

    def __init__(
        self,
        clock: Callable[[], int] = perf_counter_ns,
        cpu_clock: Callable[[], int] = thread_time_ns,
        choose: Callable[[], bool] = lambda: False,
    ) -> None:
        self.caller, self.with_cpu = NONE, False
        self._clock, self._cpu_clock, self._choose = clock, cpu_clock, choose
        self._numbers: dict[Part, int] = {}
        self._parts: list[tuple[Part, defaultdict[int, list[int]]]] = []
        """Each part with its calls, ns, watched ns and CPU ns by the number of the caller. The index is the part's
        number. The list only grows: so a number that was found always has its part, even while the task's thread makes
        a program."""
        self._usual: list[Callable[[], tuple[int, int, Spent]]] = []

    def edges(self) -> Edges:
        """Return the time that was spent so far. Any thread may ask."""
        found = Edges()
        others = ((number, *one) for number, (_, of) in enumerate(self._parts) for one in of.copy().items())
        for number, caller, spent in chain(others, (usual() for usual in [*self._usual])):
            if spent[0]:
                edge = None if caller == NONE else self._parts[caller][0], self._parts[number][0]
                _add(found, {edge: Spent(*spent)})
        return found

    def _number(self, part: Part) -> tuple[int, defaultdict[int, list[int]]]:
        if part not in self._numbers:
            self._numbers[part] = len(self._parts)
            self._parts.append((part, defaultdict(lambda: [0, 0, 0, 0])))
        number = self._numbers[part]
        return number, self._parts[number][1]

    def node(self, node: str, process: Process) -> Process:
        """Return a function that times the calls of a node's `process`. The returned function costs a third less than
        that of `call`, as it is optimised for calls from one caller without CPU time."""
        part = Part("node", node)
        me, clock, watch, others = self._number(part)[0], self._clock, self, self.call(part, process)
        usual, calls, ns = UNKNOWN, 0, 0

        def timed(key: Any, value: Any, timestamp: int) -> None:
            nonlocal usual, calls, ns
            caller = watch.caller
            if caller != usual or watch.with_cpu:
                if usual == UNKNOWN:
                    usual = caller
                others(key, value, timestamp)
                return
            watch.caller = me
            began = clock()
            try:
                process(key, value, timestamp)
            finally:
                ns += clock() - began
                calls += 1
                watch.caller = caller

        self._usual.append(lambda: (me, usual, Spent(calls, ns)))
        return timed

    def call(self, part: Part, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that times each call of `function`."""
        me, by_caller = self._number(part)
        clock, cpu_clock, watch = self._clock, self._cpu_clock, self

        def timed(*args: Any, **named: Any) -> Any:
            caller, with_cpu = watch.caller, watch.with_cpu
            watch.caller = me
            cpu = cpu_clock() if with_cpu else 0
            began = clock()
            try:
                return function(*args, **named)
            finally:
                took = clock() - began
                spent = by_caller[caller]
                spent[0] += 1
                spent[1] += took
                if with_cpu:
                    spent[2] += took
                    spent[3] += cpu_clock() - cpu
                watch.caller = caller

        return timed

    def turn(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that times `function`, with which a task's work begins. The returned function also decides
        whether CPU time is measured."""
        timed = self.call(Part("work", name), function)

        def turn(*args: Any, **named: Any) -> Any:
            before, self.with_cpu = self.with_cpu, self.with_cpu or self._choose()
            try:
                return timed(*args, **named)
            finally:
                self.with_cpu = before

        return turn

    def source(self, source: CompiledSource) -> CompiledSource:
        """Return `source` with deserialisers that are timed."""
        read_key = self.call(Part("serde", source.node, "key"), source.read_key)
        return replace(
            source, read_key=read_key, read_value=self.call(Part("serde", source.node, "value"), source.read_value)
        )


class TimedStore:
    """A store whose calls are timed. `isinstance` sees the store's class. The time of an iterator counts for the node
    that reads it."""

    def __init__(self, store: Any, name: str, watch: Stopwatch) -> None:
        self._store, self._name, self._watch = store, name, watch

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._store.__class__

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if callable(found) and not name.startswith(("_", "set_")):
            found = self._watch.call(Part("store", self._name, name.removesuffix("_raw")), found)
            setattr(self, name, found)
        return found


class TimedServices:
    """A task's services, whose stores and punctuations are timed."""

    def __init__(self, services: TaskServices, watch: Stopwatch) -> None:
        self._services, self._watch = services, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._services, name)

    def store(self, name: str) -> Any:
        return TimedStore(self._services.store(name), name, self._watch)

    def global_store(self, name: str) -> Any | None:
        found = self._services.global_store(name)
        return None if found is None else TimedStore(found, name, self._watch)

    def schedule(
        self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None], node: str,
        start_ms: int | None = None,
    ) -> Any:
        timed = self._watch.call(Part("punctuation", node), callback)
        return self._services.schedule(interval_ms, kind, timed, node, start_ms)


class Profile:
    """The times of all tasks of a client, including tasks that have gone.

    *Concurrency*: the list of stopwatches changes when a task comes. A lock protects it, which timing never takes.
    """

    def __init__(
        self,
        clock: Callable[[], int] = perf_counter_ns,
        cpu_clock: Callable[[], int] = thread_time_ns,
        choose: Callable[[], bool] | None = None,
    ) -> None:
        self._clocks, self._choose = (clock, cpu_clock), choose
        self._lock = threading.Lock()
        self._tasks: dict[TaskId, tuple[Stopwatch, ...]] = {}
        self._threads: dict[str, Stopwatch] = {}
        self._former: dict[str | None, Edges] = {}

    def follow(self, task: TaskId, runner: Runner, commits: TaskCommits | None = None) -> None:
        """Time a new task. The task's commits have their own stopwatches, as other threads make them."""
        watch, *others = watches = tuple(Stopwatch(*self._clocks, self._choose or one_in(CPU_ONE_IN)) for _ in range(3))
        _time(watch, runner, {"process": RECORDS, "punctuate": PUNCTUATIONS, "_flush": FLUSHES})
        if commits is not None:
            for other, (method, name) in zip(others, (("freeze", FREEZES), ("apply", WRITES)), strict=True):
                _time(other, commits, {method: name})
        with self._lock:
            self._keep(None, *self._tasks.get(task, ()))
            self._tasks[task] = watches

    def follow_thread(self, thread: str, methods: Iterable[tuple[object, Mapping[str, str]]]) -> None:
        """Time a new thread. `methods`: objects that only this thread calls, each with a table from method name to a
        description. If one of these methods calls another, the time of the inner call doesn't count as the outer one's
        own."""
        watch = Stopwatch(*self._clocks, lambda: True)
        for owner, names in methods:
            _time(watch, owner, names)
        with self._lock:
            if thread in self._threads:
                self._keep(thread, self._threads[thread])
            self._threads[thread] = watch

    def _keep(self, thread: str | None, *watches: Stopwatch) -> None:
        """Keep the sums of stopwatches that are replaced: those of tasks that have gone, or of an earlier thread of the
        same name."""
        for watch in watches:
            _add(self._former.setdefault(thread, {}), watch.edges())

    def compiled(
        self, sub: SubTopology, services: TaskServices, topics: Iterable[str], observe: Observe | None
    ) -> Program:
        """Compile the program of a task that `follow` was called for, with everything timed."""
        watch = self._tasks[services.task_id][0]
        sources = {node.name for node in sub.nodes if isinstance(node, SourceNode)}
        timed = set[Process]()

        def observed(node: str, process: Process) -> Process:
            """Time a node. A node that only forwards records, such as a merge, shares the closure of its child, and
            isn't timed a second time. A source is always timed."""
            if process in timed and node not in sources:
                return process
            made = watch.node(node, process if observe is None else observe(node, process))
            timed.add(made)
            return made

        program = compile_program(sub, cast(TaskServices, TimedServices(services, watch)), topics, observed)
        program.sources = {topic: watch.source(source) for topic, source in program.sources.items()}
        return program

    def edges(self) -> Edges:
        """Return the time that all tasks have spent so far. Any thread may ask."""
        with self._lock:
            found = dict(self._former.get(None, {}))
            watches = [watch for each in self._tasks.values() for watch in each]
        for watch in watches:
            _add(found, watch.edges())
        return found

    def threads(self) -> dict[str, Edges]:
        """Return the time that each thread has spent so far, by name. Any thread may ask."""
        with self._lock:
            found = {name: (dict(self._former.get(name, {})), watch) for name, watch in self._threads.items()}
        for sums, watch in found.values():
            _add(sums, watch.edges())
        return {name: sums for name, (sums, _) in found.items()}


def _time(watch: Stopwatch, owner: object, methods: Mapping[str, str]) -> None:
    for method, name in methods.items():
        setattr(owner, method, watch.turn(name, getattr(owner, method)))


def _add(sums: Edges, edges: Edges) -> None:
    for edge, spent in edges.items():
        sums[edge] = sums.get(edge, Spent()).plus(spent)
