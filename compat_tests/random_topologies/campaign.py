"""Random cases one after the other, each by its own seed; a failure is shrunk and said in full.

*Guarantees*: logs and state of failures stay in the directory, those of the others don't. What shrinking comes to has
failed in the same way, after no more runs than allowed.
*Assumes*: one broker for all of them. A case that passes once may yet fail another time: what is dropped because of
that is lost.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.harness.brokers import Broker
from compat_tests.oracles.findings import PromiseBrokenError, kinds
from compat_tests.random_topologies.cases import Case, Fault, simpler
from compat_tests.random_topologies.running import run

TRIES = 12
"""Runs that shrinking may take: some minutes."""


class RandomCaseFailedError(AssertionError):
    """A random case whose outcome isn't as promised."""


@dataclass(frozen=True)
class Failure:
    """A case, and what it failed with."""

    case: Case
    error: Exception


def attempt(run: Callable[[Case], None], case: Case) -> Failure | None:
    """Run it; None when all is as promised."""
    try:
        run(case)
    except Exception as error:
        return Failure(case, error)
    return None


def shrunk(failure: Failure, run: Callable[[Case], None], tries: int) -> Failure:
    """The smallest case found with so many runs."""
    left = tries
    while left > 0:
        for candidate in simpler(failure.case):
            left -= 1
            smaller = attempt(run, candidate)
            if smaller is not None and alike(smaller.error, failure.error):
                failure = smaller
                break
            if left <= 0:
                return failure
        else:
            return failure
    return failure


def alike(one: Exception, other: Exception) -> bool:
    """Whether two failures may well be the same."""
    if isinstance(one, PromiseBrokenError) and isinstance(other, PromiseBrokenError):
        return bool(kinds(one.findings) & kinds(other.findings))
    return type(one) is type(other)


@dataclass
class Campaign:
    """`choice`: what `--broker` says, for the command that repeats a failure. `say`: where progress is told."""

    broker: Broker
    choice: str
    stage: str
    directory: Path
    tries: int = TRIES
    say: Callable[[str], None] = print
    failures: list[Failure] = field(default_factory=list)
    done: int = 0
    missed: list[Fault] = field(default_factory=list)
    """Faults of the last case that never came to strike."""

    def run(self, cases: Iterable[Case], until: float = float("inf"), most_failures: float = float("inf")) -> None:
        """All of them, or as many as begin before `until` (of `time.monotonic`) and before so many have failed."""
        for case in cases:
            if time.monotonic() >= until or len(self.failures) >= most_failures:
                return
            self.try_one(case)

    def try_one(self, case: Case) -> None:
        """Run it, shrink it when it fails, and tell."""
        began = time.monotonic()
        self.done += 1
        failure = attempt(self._runner("first"), case)
        faults = " ".join(f"{fault.kind} {fault.point}".strip() for fault in case.faults) or "no fault"
        outcome = "failed" if failure else "passed, without its fault," if self.missed else "passed"
        took = f"{time.monotonic() - began:.0f} s"
        self.say(f"{self.done}: seed {case.seed} {case.guarantee} {outcome} in {took} ({faults})")
        if failure is not None:
            self.say(f"{type(failure.error).__name__}: {failure.error}")  # shrinking takes long, and may be cut off
            failure = shrunk(failure, self._runner("smaller"), self.tries)
            self.failures.append(failure)
            self.say(self.told(failure))

    def _runner(self, kind: str) -> Callable[[Case], None]:
        """Runs a case in a directory that stays when it fails; the same case again has another one."""

        def run_one(case: Case) -> None:
            where = self.directory / f"{self.done}-{case.seed}-{case.guarantee}-{kind}"
            shutil.rmtree(where, ignore_errors=True)
            self.missed = run(self.broker, case, self.stage, where)
            shutil.rmtree(where)

        return run_one

    def told(self, failure: Failure) -> str:
        """A failure in full: the error, the case, the commands."""
        case, error = failure.case, failure.error
        beside = ["--beside", case.beside] if case.beside else []
        by_seed = ["--seeds", str(case.seed), "--guarantee", case.guarantee, *beside]
        return (
            f"seed {case.seed}, {case.guarantee}, stage {self.stage}: {type(error).__name__}\n{error}\n"
            f"the smallest case that failed: {case.text()}\n"
            f"repeat it with\n    {self._command(['--case', case.text()])}\n"
            f"or, as it was at first, with\n    {self._command(by_seed)}"
        )

    def _command(self, what: list[str]) -> str:
        where = ["--stage", self.stage, "--broker", self.choice]
        return shlex.join(["python", "-m", "compat_tests.random_topologies", *where, *what])

    def hold(self) -> None:
        """Raise when any case has failed."""
        if self.failures:
            raise RandomCaseFailedError("\n\n".join(self.told(failure) for failure in self.failures))
