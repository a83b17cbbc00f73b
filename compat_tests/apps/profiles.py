"""Times a run, as `milestones run --profile` does.

*Guarantees*: the same tables on stdout, the same file.
*Assumes*: the main thread runs the client.
"""

from milestones.cli.profiling import profiled

__all__ = ["profiled"]
