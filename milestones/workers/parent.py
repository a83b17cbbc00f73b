"""`WorkersParent`: the process that starts the workers of a command, and ends when all of them have ended.

*Guarantees*: no worker is left when `run` returns or raises. The exit code is that of the first worker that has failed.
The parent has no Kafka client, and doesn't load the application.
*Assumes*: it is called in the main thread, because Python delivers signals only to this thread.
"""

from __future__ import annotations

import logging
import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, Final
from uuid import uuid4

from milestones.common.errors import MilestonesError
from milestones.workers.endpoint import Addresses, WorkersEndpoint
from milestones.workers.line_pump import LinePump, flush_own_output
from milestones.workers.place import COUNTS_PARTITIONS, WorkerPlace
from milestones.workers.process import Event, Events, Signalled, ThreadDied, WorkerEnded, WorkerProcess, WorkerSaid

log: Final = logging.getLogger(__name__)

INTERRUPTED: Final = 130
GOOD: Final = frozenset({0, INTERRUPTED})
ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
PROFILE_SIGNAL: Final = signal.SIGUSR1 if hasattr(signal, "SIGUSR1") else None
LOOK_S: Final = 0.1
SAME_S: Final = 0.5
"""If the same signal comes twice within this time (in seconds), the second one doesn't count, as in `Streams.run`."""
REST_S: Final = 10.0
"""How long a worker may take to end in addition to its `close_timeout_ms`."""
DEFAULT_CLOSE_S: Final = 25.0
ID_LENGTH: Final = 12
"""The length of the id that the workers of one parent share. The group's metadata has it once per member."""

Command = Callable[[WorkerPlace], Sequence[str]]
SetUpLogs = Callable[[str, str], None]


class WorkersParent:
    """*Owns*: the workers, their end and the exit code. *Receives*: `WorkerEnded`, `WorkerSaid`, `Signalled`,
    `ThreadDied`. *Sends*: signals and answers to the workers, their lines to the parent's output.

    `command`: returns the command line of a worker. `count`: the number of workers, or the number of cores with `auto`.
    `auto`: a process counts the partitions of the inputs first, and there are no more workers than partitions.
    `set_up_logs`: called with `log_level` and `log_format` before the first line is logged."""

    def __init__(self, command: Command, count: int, set_up_logs: SetUpLogs, *, auto: bool = False) -> None:
        self._command, self._count, self._set_up_logs, self._auto = command, count, set_up_logs, auto
        self._id = uuid4().hex[:ID_LENGTH]
        self._events: Events = queue.SimpleQueue()
        self._workers: dict[int, WorkerProcess] = {}
        self._settings: dict[int, Mapping[str, Any]] = {}
        self._alive = set[int]()
        self._lines = LinePump(lambda error: self._events.put(ThreadDied("lines", error)))
        self._addresses = Addresses()
        self._endpoint: WorkersEndpoint | None = None
        self._signals: dict[int, float] = {}
        self._signal: int | None = None
        self._ends_at_s: float | None = None
        self._code: int | None = None
        self._why: str | None = None
        self._error: MilestonesError | None = None
        self._gone = self._logs = self._killed = False

    def run(self) -> int:
        """Start the workers, wait for their end, and return the exit code. Raises the `MilestonesError` that has kept
        the workers from being started."""
        flush_own_output()
        with ExitStack() as held:
            held.enter_context(self._signalled())
            self._lines.start()
            held.callback(self._lines.close)
            held.callback(self._close)
            self._start(COUNTS_PARTITIONS if self._auto else 1)
            while self._alive:
                self._take(self._next())
        if self._error is not None:
            raise self._error
        if self._why is not None:
            self._log(logging.ERROR, "ended with exit code %d: %s", self._code, self._why)
        return self._exit_code()

    def _exit_code(self) -> int:
        if self._code is not None:
            return self._code
        return INTERRUPTED if self._signal == signal.SIGINT else 0

    # -- events

    def _next(self) -> Event | None:
        """Return the next event, or None if the workers take too long to end. A signal doesn't end a wait, so each wait
        is short."""
        while self._ends_at_s is None or time.monotonic() < self._ends_at_s:
            with suppress(queue.Empty):
                return self._events.get(timeout=LOOK_S)
        return None

    def _take(self, event: Event | None) -> None:
        match event:
            case None:
                self._kill_the_rest()
            case WorkerEnded(worker, code):
                self._ended(self._workers[worker], code)
            case WorkerSaid(worker, message):
                self._said(worker, message)
            case Signalled(number):
                self._signalled_by(number)
            case ThreadDied(name, error):
                self._thread_died(name, error)

    def _said(self, worker: int, message: Mapping[str, Any]) -> None:
        if "settings" in message:
            self._prepared(worker, message["settings"])
        elif "serves" in message:
            self._addresses.serves(worker, message["serves"])
        elif "partitions" in message:
            self._settings[worker] = message
            self._count = max(1, min(self._count, message["partitions"]))

    def _prepared(self, worker: int, settings: Mapping[str, Any]) -> None:
        """A worker has loaded the application. After worker 1 the others are started. After all of them they go on."""
        if worker == 1:
            self._ensure_logs(settings["log_level"], settings["log_format"])
            self._listen(settings)
        self._settings[worker] = settings
        if self._ends_at_s is not None:
            self._workers[worker].answer(go=None, end=True)
            return
        if worker == 1:
            for number in range(2, self._count + 1):
                self._start(number)
        ready = [self._workers[number] for number in self._settings if number != COUNTS_PARTITIONS]
        if len(ready) == self._count:
            self._gone = True
            for each in ready:
                each.answer(go=None if self._endpoint is None else self._endpoint.address)

    def _listen(self, settings: Mapping[str, Any]) -> None:
        if settings["metrics_port"] is None:
            return
        try:
            self._endpoint = WorkersEndpoint(settings["metrics_host"], settings["metrics_port"], self._addresses)
        except MilestonesError as error:
            self._error = error
            self._end(signal.SIGTERM)
        else:
            self._log(logging.INFO, "metrics of all workers are served at http://%s/metrics", self._endpoint.address)

    def _ended(self, worker: WorkerProcess, code: int) -> None:
        place, number = worker.place, worker.place.number
        self._lines.settle()
        self._alive.discard(number)
        unheard = number not in self._settings and self._ends_at_s is None
        if (code in GOOD and not unheard) or -code in worker.sent:  # it had no handler yet for a signal of ours
            self._addresses.ended(number)
            if number == COUNTS_PARTITIONS and self._ends_at_s is None:
                self._start(1)
            elif self._ends_at_s is None and self._alive:
                self._log(logging.INFO, "worker %s has ended; %d still run", place, len(self._alive))
            return
        name = "the process that counts partitions" if number == COUNTS_PARTITIONS else f"worker {place}"
        why = f"{name} was killed by {_name(-code)}" if code < 0 else f"{name} has failed"
        if code in GOOD:
            why = f"{name} ended before it came to run the application"
        first = self._code is None and self._error is None
        if first:
            self._code, self._why = max(code, 1), why
        if self._alive or not first:
            ends = "; the others end" if self._ends_at_s is None else ""
            self._log(logging.ERROR, "%s%s%s", why, f", exit code {code}" if code > 0 else "", ends)
        self._end(signal.SIGTERM)

    # -- the end

    def _thread_died(self, name: str, error: BaseException) -> None:
        why = f"the command's thread {name} has died of {error!r}; this is a bug"
        self._log(logging.ERROR, "%s; all workers end", why, exc_info=error)
        if self._code is None:
            self._code, self._why = 1, why
        self._end(signal.SIGTERM)

    def _signalled_by(self, number: int) -> None:
        if number == PROFILE_SIGNAL:
            for each in self._workers.values():
                if each.place.number in self._settings:  # before, the signal would kill it
                    each.signal(number)
            return
        if self._signal is None:
            self._signal = number
            self._log(logging.INFO, "%s: all workers end; the same again ends them at once", _name(number))
            self._end(number)
        else:
            self._log(logging.ERROR, "ended at once, without a last commit: what wasn't committed is processed again")
            self._code, self._why = INTERRUPTED, None
            for each in self._workers.values():
                each.kill()

    def _end(self, number: int) -> None:
        """Send a signal to all workers, unless they end already."""
        if self._ends_at_s is None:
            closing_ms = [each["close_timeout_ms"] for each in self._settings.values() if "close_timeout_ms" in each]
            most_s = max(closing_ms) / 1000 if closing_ms else DEFAULT_CLOSE_S
            self._ends_at_s = time.monotonic() + most_s + REST_S
            for each in self._workers.values():
                each.signal(number)
                if each.place.number in self._settings and not self._gone:  # it waits, and may not see the signal
                    each.answer(go=None, end=True)

    def _kill_the_rest(self) -> None:
        names = ", ".join(str(self._workers[number].place) for number in sorted(self._alive))
        why = f"workers that didn't end in time were killed: {names}"
        self._log(logging.ERROR, "%s", why)
        if self._code is None and self._error is None:
            self._code, self._why = 1, why
        self._ends_at_s = time.monotonic() + REST_S
        for each in self._workers.values():
            each.kill()
        if self._killed:  # their ends aren't reported any more
            self._alive.clear()
        self._killed = True

    def _close(self) -> None:
        """Kill the workers that run still, after an error of the parent, and stop listening."""
        for each in self._workers.values():
            each.close()
        if self._endpoint is not None:
            self._endpoint.close()

    # -- the start

    def _start(self, number: int) -> None:
        place = WorkerPlace(number, self._count, self._id)
        worker = self._workers[number] = WorkerProcess(place, self._command(place), self._events)
        self._alive.add(number)
        if number != COUNTS_PARTITIONS:
            self._addresses.expect(number)
        self._lines.add(worker.stdout, place.label, 1)
        self._lines.add(worker.stderr, place.label, 2)

    @contextmanager
    def _signalled(self) -> Iterator[None]:
        """Put the signals that come during the block into the queue."""

        def note(number: int, _: FrameType | None) -> None:
            now_s, last_s = time.monotonic(), self._signals.get(number)
            if last_s is None or now_s - last_s >= SAME_S or number == PROFILE_SIGNAL:
                self._signals[number] = now_s
                self._events.put(Signalled(number))

        numbers = [*ENDING_SIGNALS, *([PROFILE_SIGNAL] if PROFILE_SIGNAL is not None else [])]
        previous = {number: signal.signal(number, note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    # -- logs

    def _log(self, level: int, text: str, *values: object, exc_info: BaseException | None = None) -> None:
        self._ensure_logs("INFO", "text")
        log.log(level, text, *values, exc_info=exc_info)

    def _ensure_logs(self, level: str, form: str) -> None:
        if not self._logs:
            self._logs = True
            self._set_up_logs(level, form)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
