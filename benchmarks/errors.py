"""What can go wrong with a benchmark. Results that are wrong are errors, not rows."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A benchmark can't be run, or what it measured doesn't count; the message says why."""
