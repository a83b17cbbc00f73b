"""The golden trace: what a stream thread does about its transaction, event by event, as text.

    stage | event -> actions: outcome | stage
    OPEN | turn -> begin, step: False | FLUSHING

It judges a change of the inside: before and after, the same seeds have the same trace. The names of events and actions
are those of this file, not of the code that is watched, so that they outlive it: a change that moves a method moves its
row in `EVENTS` or `ACTIONS`, and nothing else here.

    python -m tests.milestones.chaos.traces 0 10000 m5      a digest of each hundred seeds, and how often what was met
    GOLDEN_TRACE=FILE pytest tests/milestones -n 0          a digest of each test that moves a transaction

Compare the outputs of two trees, with `diff`. Tests with real threads or a broker have another trace each time: run one
tree twice to know them.

*Guarantees*: watching changes nothing of what is watched. Each thread has events of its own.
*Assumes*: methods are watched where their classes define them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from milestones.parts.transaction import CommitStage
from milestones.stream_thread.commits.driver import CommitDriver
from milestones.stream_thread.commits.group_answers import GroupAnswers
from milestones.stream_thread.commits.recoveries import Recoveries
from milestones.stream_thread.commits.timed_commit import TIMED_AS, TimedCommit
from milestones.stream_thread.tasks import ThreadTasks

EVENTS: Final[Mapping[tuple[type, str], str]] = {
    (CommitDriver, "run_once"): "turn",
    (CommitDriver, "commit_now"): "commit all now",
    (CommitDriver, "finish_earlier"): "finish earlier ones",
    (Recoveries, "recover"): "error",
    (Recoveries, "run_once"): "turn of a recovery",
    (Recoveries, "finish"): "finish the recovery",
    (GroupAnswers, "may_join"): "join needed",
    (GroupAnswers, "may_release"): "assigned: tasks leave",
    (GroupAnswers, "part"): "tasks leave now",
    (GroupAnswers, "abandon"): "membership lost",
}
"""What happens to the transaction, by the method that hears of it."""

ACTIONS: Final[Mapping[tuple[type, str], str]] = {
    (TimedCommit, "begin"): "begin",
    (TimedCommit, "run_once"): "step",
    (TimedCommit, "abandon"): "abandon",
    (CommitDriver, "commit_once_more"): "retain",
    (CommitDriver, "drop_unconfirmed"): "drop",
    (ThreadTasks, "roll_back"): "roll back",
    (ThreadTasks, "close"): "close tasks",
    (ThreadTasks, "rebuild"): "rebuild stores",
}
"""What is done about it."""


class Line(NamedTuple):
    """One event. `outcome`: what the method returned, or the name of the error that it raised."""

    before: str
    event: str
    actions: tuple[str, ...]
    outcome: str
    after: str

    def __str__(self) -> str:
        return f"{self.before} | {self.event} -> {', '.join(self.actions) or 'nothing'}: {self.outcome} | {self.after}"


def stage_of(commits: CommitDriver) -> str:
    """Where the transaction is, in words."""
    register = commits._register
    words = [TIMED_AS.get(register.step, CommitStage.OPEN).name]
    words += ["RETAINED"] if register.retained else []
    words += ["FAILED"] if commits.pace.failing else []
    words += ["RECOVERING"] if register.errors else []
    return " ".join(words)


class UnderWay(threading.local):
    """The actions of a thread's event that is under way, None without one."""

    actions: list[str] | None = None


class Trace:
    """*Owns*: the lines, in the order in which events ended; what is under way."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._now = UnderWay()

    @contextmanager
    def watching(self) -> Iterator[Trace]:
        """Everything that happens to transactions within becomes a line."""
        with ExitStack() as stack:
            for watched, made in ((EVENTS, self._event), (ACTIONS, self._action)):
                for (owner, method), name in watched.items():
                    stack.enter_context(patch.object(owner, method, made(getattr(owner, method), name)))
            yield self

    def _event(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(call)
        def noted(watched: Any, *args: Any, **options: Any) -> Any:
            now = self._now
            if now.actions is not None:  # a part of the event that is under way
                return call(watched, *args, **options)
            commits = watched if isinstance(watched, CommitDriver) else watched._commits
            before, actions, outcome = stage_of(commits), list[str](), ""
            now.actions = actions
            try:
                found = call(watched, *args, **options)
                outcome = str(found)
                return found
            except BaseException as error:
                outcome = type(error).__name__
                raise
            finally:
                now.actions = None
                self.lines.append(Line(before, name, tuple(actions), outcome, stage_of(commits)))

        return noted

    def _action(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(call)
        def noted(watched: Any, *args: Any, **options: Any) -> Any:
            if self._now.actions is not None:
                self._now.actions.append(name)
            return call(watched, *args, **options)

        return noted


def digest(lines: list[Line]) -> str:
    return hashlib.sha256("\n".join(map(str, lines)).encode()).hexdigest()[:16]
