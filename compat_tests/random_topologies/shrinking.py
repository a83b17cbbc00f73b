"""Makes a failing case smaller, within a number of tries: each one is a run on a real broker.

*Guarantees*: what comes out has failed in the same way; never more runs than allowed.
*Assumes*: a case that passes once may yet fail another time: what is dropped because of that is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compat_tests.oracles.findings import PromiseBrokenError, kinds
from compat_tests.random_topologies.cases import Case, simpler


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
