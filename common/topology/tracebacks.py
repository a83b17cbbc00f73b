"""Finds the nodes in a traceback. The code of each node's closure has the node's name (`compiled.named`).

*Guarantees*: the functions are pure.
*Assumes*: no user function has a name that begins with `MARK`. (A Python name can't contain its space.)
"""

from __future__ import annotations

MARK = "node "
"""The prefix before the node's name in the name of its code."""


def failing_node(error: BaseException) -> str | None:
    """Return the innermost node in the traceback of `error`. None if there is none."""
    return _innermost(error)[0]


def failing_call(error: BaseException) -> str | None:
    """Return the function or method that the innermost node has called, such as `Totals.init`. None if the node itself
    failed."""
    return _innermost(error)[1]


def _innermost(error: BaseException) -> tuple[str | None, str | None]:
    node = call = None
    step = error.__traceback__
    while step is not None:
        name = step.tb_frame.f_code.co_qualname
        if name.startswith(MARK):
            node, call = name.removeprefix(MARK), None
        elif node is not None and call is None:
            call = name.rpartition("<locals>.")[2]
        step = step.tb_next
    return node, call
