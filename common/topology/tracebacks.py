"""The nodes in a traceback: each node's closure carries the node's name (`compiled.named`).

*Guarantees*: pure.
*Assumes*: no function of a user has a name that begins with `MARK`: it isn't a name in Python.
"""

from __future__ import annotations

MARK = "node "
"""The mark before a node's name in the name of its code."""


def failing_node(error: BaseException) -> str | None:
    """The innermost node in the traceback of `error`; None when there is none."""
    return _innermost(error)[0]


def failing_call(error: BaseException) -> str | None:
    """The function or method called by the innermost node, such as `Totals.init`; None when the node itself failed."""
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
