"""A pytest plugin for tests that hang although their time-out has ended them: their process ends, with all stacks.

pytest-timeout ends a test once, by a signal whose handler is Python code. So two things outlive it: a call into a
library that doesn't come back, and a teardown that waits for what the failed test has left running. Either one would
hang the whole run, without a word about which test it was.

*Guarantees*: no phase of a test (setup, call, teardown) takes longer than the test's time-out and `GRACE_S`. A phase
that does prints the stacks of all threads to the run's standard error, and ends its process. If it is a worker of
pytest-xdist, the test has failed with "crashed while running", and another worker takes the tests that are left.
*Assumes*: nothing else in the process uses `faulthandler.dump_traceback_later`, of which there is one in a process.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import pytest

GRACE_S = 60.0
"""Longer than a test takes to fail after its time-out."""

_stderr = pytest.StashKey[int]()


def register(config: pytest.Config) -> None:
    """Register this plugin, once: `pytest tests compat_tests` has two files that want it."""
    plugin = sys.modules[__name__]
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin)


def pytest_configure(config: pytest.Config) -> None:
    """Remember standard error itself: during a test pytest puts a file in its place."""
    config.stash[_stderr] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_stderr])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    return (yield from _watched(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    return (yield from _watched(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    return (yield from _watched(item))


def pytest_enter_pdb() -> None:
    """Stop the clock: a test that is looked at in a debugger has no time-out."""
    faulthandler.cancel_dump_traceback_later()


def _watched(item: pytest.Item) -> Generator[None]:
    seconds = _timeout(item)
    if seconds > 0:
        faulthandler.dump_traceback_later(seconds + GRACE_S, exit=True, file=item.config.stash[_stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _timeout(item: pytest.Item) -> float:
    """The test's time-out in seconds, as pytest-timeout finds it. 0: none."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs.get("timeout", 0))
    return float(item.config.getvalue("timeout") or item.config.getini("timeout") or 0)
