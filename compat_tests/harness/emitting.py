"""What stages differ in on purpose: which updates are emitted behind a cache, and which are logged.

*Guarantees*: no check knows a flag of its own for either.
*Assumes*: nothing.
"""

from __future__ import annotations

from milestones.flags import parse_milestones

COLLECTED = "committed_collector"
"""The flag of stages that emit every update, log the last one of each key and commit, and send again what a failed
transaction held."""


def thins_out(cache: int, *stages: str) -> bool:
    """Whether a cache of so many bytes (`statestore_cache_max_bytes`) leaves out outputs at any of these stages."""
    return cache > 0 and not logs_at_commits(*stages)


def logs_at_commits(*stages: str) -> bool:
    """Whether changelogs have one record per key and commit at all of these stages."""
    return all(COLLECTED in parse_milestones(stage) for stage in stages)
