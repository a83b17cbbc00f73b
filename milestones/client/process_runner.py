"""Runs a client as the whole work of a process, until a signal or an error, with logs and an exit code.

*Guarantees*: the first SIGINT or SIGTERM ends a client cleanly, also during its start. The second one ends the process
within half a second, whatever its threads do. The same signal within half a second of the first doesn't count. Signal
handlers are put back. Objects that the program has made before are left out of garbage collections, and these come more
seldom.
*Assumes*: it is called in the main thread of the process, because Python delivers signals only to this thread.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

from milestones.client.logs import log_to_stderr
from milestones.common.assignment.machines import WORKER_TAG
from milestones.common.diagnostics import text_of
from milestones.common.errors import MilestonesError
from milestones.workers.settings import idle_folders

if TYPE_CHECKING:
    from milestones.client.supervisor import Supervisor
    from milestones.common.config import StreamsConfig

log: Final = logging.getLogger(__name__)

INTERRUPTED = 130
LOOK_S = 0.2
NEW_OBJECTS: Final = 10_000
"""A young collection comes when there are this many more containers (tuples, lists, dicts, instances) than after the
former one. Python's own number is at most 2,000. A record makes some ten, most of which are gone after it, and those
that wait for a commit, which need no collection: they are in no cycle. This saves 2 % of a session's instructions on
m6."""
OF_PYTHON: Final = ((700, 10, 10), (2_000, 10, 0), (2_000, 10, 10))
"""The thresholds of Python 3.11 to 3.14, if the program has set none."""

SAME_S = 0.5
"""If the same signal comes twice within this time (in seconds), the second one doesn't count: a program that ends
others may send a signal to the process and to its process group."""


def run(supervisor: Supervisor, config: StreamsConfig, start: Callable[[], None], leave_group: bool) -> int:
    """Call `start`, wait for the client's end, and return the exit code (`common/errors.py`). An error is logged, and
    is set as the supervisor's error.
    """
    refuse_other_threads()
    log_to_stderr(config.log_level, config.log_format, worker=config.client_tags.get(WORKER_TAG))
    log.info(
        "%s runs on %s: stage %s, %s, state in %s; Ctrl-C ends it",
        config.application_id, config.bootstrap_servers, supervisor.stage, config.processing_guarantee,
        config.state_dir,
    )  # fmt: skip
    if idle := idle_folders(config):
        log.warning(
            "workers that aren't started have left state in %s: the tasks are restored from standbys, snapshots or "
            "changelogs. Start more workers to use this state, or delete it", ", ".join(map(str, idle)),
        )  # fmt: skip
    with signals() as received, long_lived():
        try:
            started = _start(start, received, lambda: supervisor.ask_to_close(leave_group))
        except MilestonesError as error:
            supervisor.error = error
        else:
            if not started:
                return INTERRUPTED if signal.SIGINT in received else 0
            _until_stopped(supervisor, received, leave_group)
    if supervisor.error is not None:
        code = supervisor.error.exit_code if isinstance(supervisor.error, MilestonesError) else 1
        if supervisor.told:  # other lines followed in the log: the last line says why the process ended
            log.error("ended with exit code %d: %s", code, text_of(supervisor.error))
        else:
            log.error("%s", text_of(supervisor.error))
        return code
    return INTERRUPTED if signal.SIGINT in received else 0


def refuse_other_threads() -> None:
    """Raise a `MilestonesError` if this isn't the main thread."""
    if threading.current_thread() is not threading.main_thread():
        raise MilestonesError(
            "run() waits for signals, which Python gives to the main thread only; in another thread use start(), "
            "wait() and close()"
        )


@contextmanager
def signals() -> Iterator[list[int]]:
    """Collect the signals that come during the block, in order. They have no other effect."""
    received: list[int] = []
    last_s: dict[int, float] = {}

    def note(number: int, _: FrameType | None) -> None:
        now_s = time.monotonic()
        if now_s - last_s.get(number, -math.inf) >= SAME_S:
            last_s[number] = now_s
            received.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, note) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def long_lived() -> Iterator[None]:
    """Take the present objects out of garbage collections, and let these come more seldom, until the end of the block.
    A full collection stops all threads while it looks at each object of the program, 50 ms for 70,000 of them, and
    outputs that wait for their commit cause one every few seconds. A program that has frozen objects, or has set
    thresholds, keeps what it has set."""
    freezes, thresholds = gc.get_freeze_count() == 0, gc.get_threshold()
    ours = (NEW_OBJECTS, *thresholds[1:])
    if freezes:
        gc.collect()
        gc.freeze()
    if thresholds in OF_PYTHON:
        gc.set_threshold(*ours)
    try:
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(*thresholds)
        if freezes:
            gc.unfreeze()


def _start(start: Callable[[], None], received: list[int], close: Callable[[], None]) -> bool:
    """Call `start` in a separate thread, because calls to Kafka may take long and the main thread must receive signals.
    Returns False if a signal came first: if the start succeeds later, the client is closed. An error of `start` is
    raised here.
    """
    errors: list[BaseException] = []
    done: list[bool] = []

    def starting() -> None:
        try:
            start()
            done.append(True)
        except BaseException as error:
            errors.append(error)
        else:
            if received:
                close()

    starter = threading.Thread(target=starting, name="start", daemon=True)
    starter.start()
    while starter.is_alive() and not received:
        starter.join(LOOK_S)
    if errors and not received:
        raise errors[0]
    return bool(done)


def _until_stopped(supervisor: Supervisor, received: list[int], leave_group: bool) -> None:
    """Wait until the client has stopped; the first signal asks the client to close."""
    asked = False
    while not supervisor.wait(LOOK_S):
        if received and not asked:
            asked = True
            log.info("%s: ending; the same again ends it at once", signal.Signals(received[0]).name)
            supervisor.ask_to_close(leave_group)
        if len(received) > 1:
            _end_at_once()


def _end_at_once() -> None:
    """End the process without waiting for any thread: uncommitted records are processed once more after the next start.
    """
    log.error("ended at once, without a last commit: what wasn't committed is processed again")
    logging.shutdown()
    os._exit(INTERRUPTED)
